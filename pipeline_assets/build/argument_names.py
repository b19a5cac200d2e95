"""Errors for Python callers, with argument names instead of command-line options."""

import contextlib
from collections.abc import Iterator

from pipeline_assets.build.build_target import REPLACE_OPTION
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import OTHER_ROOT_HINT

_ARGUMENT_BY_OPTION = {REPLACE_OPTION: "`replace=True`", "pass --data": "pass `data`"}
_ARGUMENT_BY_OPTION |= {"use --row": "use `row`", "with --row": "with `row`"}
_ARGUMENT_BY_OPTION |= {OTHER_ROOT_HINT: "use the data root that contains it"}


@contextlib.contextmanager
def name_arguments() -> Iterator[None]:
    """Replace command-line options in raised InputErrors by Python arguments.

    Errors that were found together become notes, which a traceback shows.
    """
    try:
        yield
    except InputError as error:
        for found in (error, *error.others):
            for option, argument in _ARGUMENT_BY_OPTION.items():
                found.replace_text(option, argument)
        for other in error.others:
            error.add_note(str(other))
        raise
