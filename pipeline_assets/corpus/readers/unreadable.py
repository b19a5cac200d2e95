"""Unreadable files: local files with damaged content or of a different format.

A reader raises InputError for such a file. Faults outside of the content, such as a wrong recipe or a failed disk,
raise ChangedFileError, UsageError, RetryableError, or an InputError whose context is an OSError with an errno.
"""

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from fractions import Fraction

from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import ChangedFileError, InputError, RetryableError, UsageError
from pipeline_assets.spine.ledger import MAX_FLOOR_SHARE
from pipeline_assets.spine.rejects import sufficient_limit

UNREADABLE = "unreadable_file"
_MAX_NAMED_FILES = 5


@contextlib.contextmanager
def note_unreadable(file: SourceFile, reasons: MutableMapping[str, str] | None) -> Iterator[None]:
    """Catch an InputError about a file's content, and add its text to `reasons`.

    The key in `reasons` is the file's name. Other errors are raised; if `reasons` is None, all errors are raised.
    """
    try:
        yield
    except InputError as error:
        is_other_fault = isinstance(error, ChangedFileError | RetryableError | UsageError)
        if reasons is None or is_other_fault or getattr(error.__context__, "errno", None) is not None:
            raise
        reasons.setdefault(file.name, error.what)


@dataclass(frozen=True)
class UnreadableFiles:
    """Reasons and sizes of a source's unreadable files, whose rows cannot be counted."""

    reasons: Mapping[str, str]  # by file name
    bytes: int  # total size of the unreadable files
    source_bytes: int  # total size of all files of the source
    source_files: int  # number of all files of the source

    def raise_if_above_limit(self, max_fraction: str, where: object) -> None:
        """Raise InputError if unreadable files exceed `max_fraction` of a source's bytes.

        If `max_fraction` is above 0 and the source has at least three files, a single unreadable file of up to a third
        of the bytes is accepted, too.
        """
        limit, share = Fraction(max_fraction), Fraction(self.bytes, max(self.source_bytes, 1))
        is_small = limit > 0 and max(share, Fraction(1, max(self.source_files, 1))) <= MAX_FLOOR_SHARE
        if share <= limit or (len(self.reasons) == 1 and is_small):
            return
        named = "; ".join(f"{name}: {why}" for name, why in list(self.reasons.items())[:_MAX_NAMED_FILES])
        part = f"{len(self.reasons):,} of {self.source_files:,} files cannot be read, {float(share):.1%} of the bytes"
        what = f"{part}, above `max_reject_fraction` {max_fraction} (the first: {named})"
        accept = f"set `max_reject_fraction` in the recipe to {sufficient_limit(share)} to lose them"
        raise InputError(what, where, f"repair these files, list them in `exclude` in the recipe, or {accept}")
