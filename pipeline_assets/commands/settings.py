"""Options for run settings, which every command accepts before or after its name."""

import dataclasses
import difflib
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

import typer

HELP_PANEL = "Also"  # title of the section of the help that lists these options
_VARIABLE_PREFIX = "CORPUSMILL_"
# Read by the UI, the server's containers and the log; those of Modal are checked where they are read.
_OTHER_VARIABLES = """BIN BUILD_MEMORY CODE_HOST CODE_PORT CODE_SOCKET DATA HOST_DATA HOST_INPUT LOG OWNERS PORT
    REPORTS SERVER_LOGS TAGS WEBHOOK"""


def _option(*option_names: str, **properties: Any) -> Any:
    return typer.Option(*option_names, show_default=False, rich_help_panel=HELP_PANEL, **properties)


@dataclass(frozen=True)
class Settings:
    """Options that set environment variables, each named CORPUSMILL_<FIELD>.

    A value of None or False does not change the variable. The run, its workers and its libraries read the variables.
    """

    workers: Annotated[
        int | None,
        _option("--workers", "--cpu-threads", min=0, metavar="N", help="Workers; 0 uses none. Default of run: 2."),
    ] = None
    engine: Annotated[Literal["local", "ray"] | None, _option(help="Run workers on this machine, or on Ray.")] = None
    log_every: Annotated[int | None, _option(min=1, metavar="N", help="Log interval in s. Default of run: 10.")] = None
    verbose: Annotated[bool, _option("--verbose", help="Print debug logs, digests and passed checks.")] = False
    memory_mib: Annotated[int | None, _option(min=1, metavar="N", help="MiB for deduplication. Default: 2048.")] = None
    keep_work: Annotated[bool, _option("--keep-work", help="Keep work files, which the next version reuses.")] = False
    faiss_gpu: Annotated[int | None, _option(min=0, metavar="N", help="Number of the GPU for faiss. Default: 0.")] = (
        None
    )
    launcher: Annotated[Literal["local", "modal"] | None, _option(help="Run scoring on this machine, or on Modal.")] = (
        None
    )
    modal_cost_limit: Annotated[
        float | None, _option("--cost-limit", min=0, metavar="USD", help="Maximum cost of a command on Modal.")
    ] = None
    modal_split_cost_limit: Annotated[
        float | None, _option("--split-cost-limit", min=0, metavar="USD", help="Maximum cost of a split on Modal.")
    ] = None


def set_variables(values: Mapping[str, Any]) -> None:
    """Set the environment variables of all settings that the user passed."""
    for name, value in values.items():
        if value is not None and value is not False:
            os.environ[_VARIABLE_PREFIX + name.upper()] = "1" if value is True else str(value)


def invalid_settings(variables: Mapping[str, str]) -> list[str]:
    """Describe settings with an invalid value."""
    from pipeline_assets.build.run import SETTINGS
    from pipeline_assets.spine.errors import UsageError
    from pipeline_assets.spine.json_log import check_log_format
    from resources.launchers import remote_launcher_factory
    from resources.webhook import webhook_address

    errors = []
    for check in (*(setting.read for setting in SETTINGS), check_log_format, remote_launcher_factory, webhook_address):
        try:
            check(variables)
        except UsageError as error:
            errors.append(f"{error.where} {error.what}")
    return errors


def misspelled_settings(variables: Mapping[str, str]) -> list[str]:
    """Describe unknown variables with names similar to the name of a setting."""
    from pipeline_assets.build.run import SETTINGS

    known = {setting.variable.removeprefix(_VARIABLE_PREFIX) for setting in SETTINGS} | {*_OTHER_VARIABLES.split()}
    known |= {field.name.upper() for field in dataclasses.fields(Settings)}
    unread = {name.removeprefix(_VARIABLE_PREFIX) for name in variables if name.startswith(_VARIABLE_PREFIX)} - known
    near = {name: difflib.get_close_matches(name, sorted(known), n=1) for name in sorted(unread)}
    return [
        f"{_VARIABLE_PREFIX}{name} is not a setting, unlike {_VARIABLE_PREFIX}{found[0]}"
        for name, found in near.items()
        if found and not name.startswith("MODAL_")
    ]


def signature_parameters(options_class: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield a keyword-only parameter for each field of a dataclass of options."""
    hints = get_type_hints(options_class, include_extras=True)
    for name, parameter in inspect.signature(options_class).parameters.items():
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
