"""Terminal input and output that the commands share: options, tables and logs."""

import contextlib
import datetime
import json
import logging
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, TextIO, TypeAlias

import typer

from pipeline_assets.commands.output import writing_output
from pipeline_assets.spine.errors import InputError, OptionFinder, RetryableError, UsageError
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.json_log import JsonFormatter, is_json_log
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.visible import VISIBLE_TABLE


def complete_recipe_name(incomplete: str) -> list[str]:
    """List the recipe names that start with `incomplete`, for the shell to complete."""
    from pipeline_assets.build.recipe_paths import recipe_paths

    try:
        names = recipe_paths(Path(os.environ.get("CORPUSMILL_DATA", "data")))
    except InputError:
        return []
    return [name for name in names if name.startswith(incomplete)]


RecipeName = Annotated[str, typer.Argument(help="Name or path of a recipe.", autocompletion=complete_recipe_name)]
Root = Annotated[Path, typer.Option("--data", envvar="CORPUSMILL_DATA", help="Data root.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OptionalRoot = Annotated[
    Path | None, typer.Option("--data", help="Data root. Default: FOLDER's, CORPUSMILL_DATA or data.")
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", "--cpu-threads", min=0, envvar="CORPUSMILL_WORKERS", help="Worker processes; 0 uses none."
    ),
]
VERBOSE_VARIABLE = "CORPUSMILL_VERBOSE"
# Signals that stop a command, with their default actions.
_STOP_SIGNALS: dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
_REPEAT_DELAY_S = 0.05
_FIRST_WORD = re.compile(r"(\s*)(\w+)((?s:.*))")
_COLOURS_BY_STATE = dict.fromkeys(("built", "current", "sealed", "identical", "passed", "ok"), "green")
_COLOURS_BY_STATE |= dict.fromkeys(("stale", "missing", "building", "interrupted", "unfinished", "warning"), "yellow")
_COLOURS_BY_STATE |= dict.fromkeys(("failed", "FAILED", "damaged", "differs", "fault"), "red")
_ROOT_ADVICE = "pass the data root with --data"
# A line to print: a text, or its parts; a coloured part is (text, colour).
Line: TypeAlias = str | tuple[str | tuple[str, str], ...]


def data_root(folder: Path | None, explicit_root: Path | None) -> Path:
    """Return `explicit_root`, else the data root of `folder`, else CORPUSMILL_DATA.

    If none of the three is set or found, return the path `data`, or raise UsageError if `folder` was passed.
    """
    from pipeline_assets.spine.data_root import find_data_root
    from pipeline_assets.spine.sealed_folder import require_manifest

    root = explicit_root or (find_data_root(folder) if folder else None) or os.environ.get("CORPUSMILL_DATA")
    if folder is not None and root is None:
        require_manifest(folder)  # raises its own error if the folder is not an artifact
        raise UsageError("the folder is not inside a data root", folder, "pass the data root of its inputs with --data")
    return require_root(Path(root or "data"))


def require_root(root: Path) -> Path:
    """Return the data root; raise UsageError if it is not a folder, or in an artifact."""
    from pipeline_assets.spine.sealed_folder import raise_if_artifact

    require_folder(root, _ROOT_ADVICE)
    raise_if_artifact(root, _ROOT_ADVICE)
    return root


def check_root(root: Path, option: str = "--data") -> None:
    """Raise UsageError if a data root is a file or is in an artifact."""
    from pipeline_assets.spine.sealed_folder import raise_if_artifact

    if root.exists():
        require_folder(root, "choose another folder, or move the file away")
    raise_if_artifact(root, f"set {option} to another folder")


def print_lines(lines: Iterable[Line], err: bool = False) -> None:
    """Print lines as they are produced; colour the first word if it is a state."""
    for line in lines:
        if isinstance(line, str) and (match := _FIRST_WORD.match(line)) and match[2] in _COLOURS_BY_STATE:
            line = (match[1], (match[2], _COLOURS_BY_STATE[match[2]]), match[3])
        echo(line, err=err)


def echo(line: Line, err: bool = False) -> None:
    """Print a line, in colour where supported, with control characters made visible.

    If logs are JSON, lines to stderr are JSON log lines.
    """
    parts = [line] if isinstance(line, str) else line
    coloured = [(part, None) if isinstance(part, str) else part for part in parts]
    if err and is_json_log():
        text = "".join(part for part, _ in coloured)
        level = "ERROR" if text.startswith(("corpusmill: ", "FAILED")) else "WARNING"
        text = JsonFormatter().format(logging.makeLogRecord({"msg": text, "levelname": level}))
    else:
        visible = ((part.translate(VISIBLE_TABLE), colour) for part, colour in coloured)
        text = "".join(part if colour is None else typer.style(part, fg=colour) for part, colour in visible)
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    with contextlib.nullcontext() if err else writing_output():
        typer.echo(text, err=err, color=False if is_plain else None)


def print_answer(as_json: bool, content: object, lines: Iterable[Line]) -> None:
    """Print the answer of a command: its content as JSON, or lines for people.

    In JSON, dataclasses and structs become objects, and values without a JSON type become text.
    """
    if as_json:
        import msgspec

        lines = [json.dumps(msgspec.to_builtins(content, enc_hook=str), indent=1)]
    print_lines(lines)


def format_bytes(count: float) -> str:
    """Format a number of bytes in powers of ten: `535.9 kB`, `12.3 MB`, `1.45 GB`."""
    for unit, size, digits in (("TB", 1e12, 2), ("GB", 1e9, 2), ("MB", 1e6, 1), ("kB", 1e3, 1)):
        if abs(count) >= size * 0.99995:  # the unit below would show 1,000.0
            return f"{count / size:,.{digits}f} {unit}"
    return pluralize(round(count), "byte")


def format_age(moment: datetime.datetime) -> str:
    """Format the time since a moment in days, hours, minutes or seconds: `3 h`.

    Use the largest unit in which the number is at least 2, or seconds below two minutes.
    """
    seconds = max(0, int((datetime.datetime.now(datetime.UTC) - moment).total_seconds()))
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def join_first(names: Sequence[str], limit: int) -> str:
    """Join up to `limit` names; an ellipsis stands for the others."""
    return ", ".join(names[:limit]) + ", …" * (len(names) > limit)


def align(rows: Sequence[tuple[str, ...]], number_columns: Collection[int] = ()) -> list[str]:
    """Format rows as aligned columns; `number_columns` (from 0) align right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in number_columns else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def format_command(*arguments: object) -> str:
    """Format a command of this program with its arguments, quoted for the shell."""
    return shlex.join(["corpusmill", *map(str, arguments)])


def running_command() -> str:
    """Return the running command as typed, quoted for the shell."""
    return format_command(*sys.argv[1:])


@contextlib.contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """Show how to continue after Ctrl-C, a retryable error or an unexpected exception.

    Ctrl-C, SIGTERM and SIGHUP end the command with status 130.
    """
    try:
        with _interrupt_on_stop_signals(), _repeat_ignored_stops():
            yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be closed
            echo(f"stopped\nto continue: {command}", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        if isinstance(error, RetryableError) or not isinstance(error, InputError):
            error.add_note(f"to continue: {command}")
        raise


@contextlib.contextmanager
def _repeat_ignored_stops() -> Iterator[None]:
    """Send SIGINT again if Python ignored a KeyboardInterrupt, as in a destructor."""
    former = sys.unraisablehook

    def repeat(ignored: "sys.UnraisableHookArgs") -> None:
        if isinstance(ignored.exc_value, KeyboardInterrupt):
            threading.Timer(_REPEAT_DELAY_S, os.kill, (os.getpid(), signal.SIGINT)).start()  # after the callback's end
        else:
            former(ignored)

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = former


@contextlib.contextmanager
def _interrupt_on_stop_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt for `_STOP_SIGNALS` that have their default handlers."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number, action in _STOP_SIGNALS.items() if is_main and signal.getsignal(number) is action]
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:
            signal.signal(number, signal.SIG_DFL)  # a worker that was just forked ends by the signal itself
            os.kill(os.getpid(), number)
            return
        while frame is not None and not _replaces_exceptions(frame):
            frame = frame.f_back
        if frame is None:
            raise KeyboardInterrupt
        # Send the signal again later.
        threading.Timer(_REPEAT_DELAY_S, os.kill, (process, number)).start()

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, _STOP_SIGNALS[number])


def _replaces_exceptions(frame: FrameType) -> bool:
    """Check whether a function's caller replaces a KeyboardInterrupt by another error.

    Python 3.11 does so with a RuntimeError for `__set_name__` methods, and pydantic with a SchemaError while it builds
    a model.
    """
    is_pydantic = str(frame.f_globals.get("__name__")).startswith("pydantic._internal.")
    return is_pydantic or frame.f_code.co_name == "__set_name__"


@contextlib.contextmanager
def explain_recipe_keys(file: object = None, find_option: OptionFinder | None = None) -> Iterator[None]:
    """Name options instead of recipe keys in InputErrors that a `with` block raises.

    A key that no option sets is named as `FILE: KEY`.
    """
    try:
        yield
    except InputError as error:
        error.name_keys(file, find_option)
        raise


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Log handler that writes to the current `sys.stderr`, above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr() -> None:
    """Print the log lines of corpusmill to stderr."""
    handler = _StderrHandler()
    as_text = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if is_json_log() else as_text)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # the log of corpusmill has each try
    logger = logging.getLogger("corpusmill")
    logger.handlers = [handler, *(other for other in logger.handlers if isinstance(other, logging.FileHandler))]
    logger.setLevel(logging.DEBUG if os.environ.get(VERBOSE_VARIABLE) or is_json_log() else logging.INFO)
    logger.propagate = False
