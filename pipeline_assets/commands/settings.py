"""Run settings as options, which every command accepts before or after its name."""

import dataclasses
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

import typer

PANEL = "Also"  # section of the help that lists these options
_SHOWN: Any = {"show_default": False, "rich_help_panel": PANEL}


@dataclass(frozen=True)
class Settings:
    """Options that set the variable CORPUSMILL_<FIELD>; None keeps the variable.

    The run, its workers and its libraries read the variables.
    """

    workers: Annotated[
        int | None,
        typer.Option("--workers", "--cpu-threads", min=0, metavar="N", help="Worker processes; 0 uses none.", **_SHOWN),
    ] = None
    log_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seconds between progress lines.", **_SHOWN)
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.", **_SHOWN)] = False
    memory_mib: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="MiB for deduplication; the rest spills.", **_SHOWN)
    ] = None
    faiss_gpu: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="GPU for faiss; default: the first.", **_SHOWN)
    ] = None
    launcher: Annotated[Literal["local", "modal"] | None, typer.Option(help="Where score shards run.", **_SHOWN)] = None
    modal_cost_limit: Annotated[
        float | None,
        typer.Option("--cost-limit", min=0, metavar="USD", help="Limit per command on Modal.", **_SHOWN),
    ] = None
    modal_split_cost_limit: Annotated[
        float | None,
        typer.Option("--split-cost-limit", min=0, metavar="USD", help="Limit per split on Modal.", **_SHOWN),
    ] = None


def apply(values: Mapping[str, Any]) -> None:
    """Set the variables of the typed settings, given by field name."""
    for name, value in values.items():
        if value is not None and value is not False:
            os.environ[f"CORPUSMILL_{name.upper()}"] = "1" if value is True else str(value)


def click_parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield a command's parameter for each field of a dataclass."""
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
        )
