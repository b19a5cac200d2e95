"""Settings of a run as options, which every command takes before its name or after it."""

import dataclasses
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

import typer

PANEL = "Also"  # section of the help that names them
_SHOWN: Any = {"show_default": False, "rich_help_panel": PANEL}


@dataclass(frozen=True)
class Settings:
    """Each is the variable CORPUSMILL_<FIELD>, which the run, its workers and its libraries read; None leaves it."""

    workers: Annotated[
        int | None,
        typer.Option("--workers", "--cpu-threads", min=0, metavar="N", help="Worker processes; 0 uses none.", **_SHOWN),
    ] = None
    log_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seconds between progress lines.", **_SHOWN)
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.", **_SHOWN)] = False
    memory_mib: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Memory of deduplication; the rest spills.", **_SHOWN)
    ] = None
    faiss_gpu: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="GPU to search on; else the first, or CPU.", **_SHOWN)
    ] = None
    launcher: Annotated[Literal["local", "modal"] | None, typer.Option(help="Where score shards run.", **_SHOWN)] = None
    modal_cost_limit: Annotated[
        float | None,
        typer.Option("--cost-limit", min=0, metavar="USD", help="Limit of a command on Modal.", **_SHOWN),
    ] = None
    modal_split_cost_limit: Annotated[
        float | None,
        typer.Option("--split-cost-limit", min=0, metavar="USD", help="Limit of a split on Modal.", **_SHOWN),
    ] = None


def apply(given: Mapping[str, Any]) -> None:
    """Set the variables of the settings that were typed, by the names of their fields."""
    for name, value in given.items():
        if value is not None and value is not False:
            os.environ[f"CORPUSMILL_{name.upper()}"] = "1" if value is True else str(value)


def click_parameters(fields_of: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command that are the fields of a dataclass."""
    hints = get_type_hints(fields_of, include_extras=True)
    for field in dataclasses.fields(fields_of):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
        )
