"""`corpusmill`: the commands. Results on stdout, progress on stderr; exit 0 yes, 1 no, 2 wrong use.

Dagster, the hub's client and torch are imported by the commands that need them, so that the rest answer at once.
"""

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from pipeline_assets.commands import admin, build, dedup, diff, nemotron, plan, rebuild, stage_a, status, trace, verify
from pipeline_assets.corpus.spine.errors import InputError, Obstacle, UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="LLM training data whose every token traces to a row at a hub commit.",
    epilog="Example: corpusmill run healing_text_v1 --workers 2",
)
for group in (plan, build, verify, rebuild, status, diff, trace, stage_a, dedup, nemotron, admin):
    app.add_typer(group.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("corpusmill"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """LLM training data whose every token traces to a row at a hub commit."""


def main() -> None:
    """The console script: errors of the user's world are one line, never a traceback."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads would do nothing here but spin
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a name that isn't UTF-8 is shown with escapes, as is a lone surrogate
            stream.reconfigure(errors="backslashreplace")
    try:
        _refuse_other_encodings()
        sys.exit(app(prog_name="corpusmill", standalone_mode=False))
    except TyperException as error:
        if "\n" not in error.format_message():
            _fail(_refused(error))
        typer.echo(error.format_message(), err=True)  # the help of a group, of which no command was typed
        sys.exit(error.exit_code)
    except InputError as error:
        _fail(error)
    except OSError as error:
        from pipeline_assets.corpus.spine.durable import explain

        explained = explain(error, Path(os.fsdecode(error.filename or ".")))
        for note in getattr(error, "__notes__", []) if isinstance(explained, Obstacle) else []:
            explained.add_note(note)
        _fail(explained)


def _refuse_other_encodings() -> None:
    """
    Raises:
        UsageError: a name that was typed isn't UTF-8. Parquet's library and the UI's database take no other.
    """
    for name in (*sys.argv[1:], os.environ.get("CORPUSMILL_DATA", ""), os.getcwd()):
        if not name.isprintable() and any(0xDC80 <= ord(letter) <= 0xDCFF for letter in name):
            raise UsageError("this name isn't UTF-8", name, "rename it, or type another")


def _refused(error: TyperException) -> UsageError:
    """What the parser of the command line says, in the form of all other errors."""
    import pydantic

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "corpusmill"
    cause = error.__cause__
    if (
        isinstance(error, typer.BadParameter)
        and error.param is not None
        and isinstance(cause, pydantic.ValidationError)
    ):
        complaint = cause.errors(include_url=False)[0]
        source = context.get_parameter_source(error.param.name) if context is not None else None
        where = error.param.envvar if getattr(source, "name", "") == "ENVIRONMENT" else error.param.opts[-1]
        return UsageError(f"it is {complaint['input']!r}", where, _wanted(complaint))
    what = error.format_message().rstrip(".")
    where = command.partition(" ")[2] or "command line"
    return UsageError(what[:1].lower() + what[1:], where, f"see {command} --help")


def _wanted(complaint: "ErrorDetails") -> str:
    match complaint["type"]:
        case "greater_than_equal":
            return f"give {complaint['ctx']['ge']:.10g} or more"
        case "less_than_equal":
            return f"give {complaint['ctx']['le']:.10g} at most"
        case "int_parsing":
            return "give a whole number"
        case "float_parsing":
            return "give a number"
    return complaint["msg"].removeprefix("Value error, ").rstrip(".")


def _fail(error: InputError) -> None:
    typer.echo("\n".join([f"corpusmill: {error}", *getattr(error, "__notes__", [])]), err=True)
    sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
