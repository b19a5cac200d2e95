"""What the commands share: options, printing, the log, and the line that says how to go on."""

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
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, TextIO, TypeAlias

import typer

from pipeline_assets.commands.output import writing_output
from pipeline_assets.spine.errors import InputError, OptionOf, RetryableError, UsageError, no_option
from pipeline_assets.spine.visible import VISIBLE


def known_recipes(incomplete: str) -> list[str]:
    """Names of recipes that begin so, for the shell to complete: of the project, and of the data root that is set."""
    from pipeline_assets.build.recipe_paths import recipe_paths

    names = recipe_paths(Path(os.environ.get("CORPUSMILL_DATA", "data")))
    return [name for name in names if name.startswith(incomplete)]


RecipeName = Annotated[str, typer.Argument(help="Name or path of a recipe.", autocompletion=known_recipes)]
Root = Annotated[Path, typer.Option("--data", envvar="CORPUSMILL_DATA", help="Data root.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OptionalRoot = Annotated[
    Path | None, typer.Option("--data", help="Data root; default: that of FOLDER, else CORPUSMILL_DATA, else data.")
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", "--cpu-threads", min=0, envvar="CORPUSMILL_WORKERS", help="Worker processes; 0 uses none."
    ),
]
VERBOSE = "CORPUSMILL_VERBOSE"
_STOPS = (signal.SIGTERM, signal.SIGHUP)
_FIRST_WORD = re.compile(r"(\s*)(\w+)((?s:.*))")
_COLOURS = dict.fromkeys(("built", "current", "sealed", "identical", "passed"), "green")
_COLOURS |= dict.fromkeys(("stale", "missing", "building", "interrupted", "unfinished", "warning"), "yellow")
_COLOURS |= dict.fromkeys(("failed", "FAILED", "damaged", "differs"), "red")
# A line to print: a text, or its parts, those with a colour as (text, colour).
Line: TypeAlias = str | tuple[str | tuple[str, str], ...]


def data_root(folder: Path | None, typed: Path | None) -> Path:
    """The data root that was typed, else the one that the folder of a sealed artifact lies in, else the environment's.

    Args:
        folder: None where the command was given none: then `data` is the root if nothing else says it.
    Raises:
        UsageError: there is none of them, or no such folder.
    """
    from pipeline_assets.spine.artifact import require_manifest
    from pipeline_assets.spine.lineage import find_data_root

    root = typed or (find_data_root(folder) if folder else None) or os.environ.get("CORPUSMILL_DATA")
    if folder is not None and root is None:
        require_manifest(folder)  # what is no artifact isn't told to have no data root
        raise UsageError("it lies in no data root", folder, "say with --data where its upstream lies")
    return existing_root(Path(root or "data"))


def existing_root(root: Path) -> Path:
    """The data root.

    Raises:
        UsageError: there is no such folder.
    """
    if root.is_dir():
        return root
    what = "a file lies where a folder belongs" if root.exists() else "there is no such folder"
    raise UsageError(what, root, "give the data root with --data")


def print_lines(lines: Iterable[Line], err: bool = False) -> None:
    """Prints them, each once it is there; on a terminal what they begin with is coloured, if it is a state."""
    for line in lines:
        echo(color_state(line) if isinstance(line, str) else line, err=err)


def echo(line: Line, err: bool = False) -> None:
    """Print a line with visible control characters, and in its colours if the output is a terminal that has some."""
    parts = [line] if isinstance(line, str) else line
    shown = "".join(
        part.translate(VISIBLE) if isinstance(part, str) else typer.style(part[0].translate(VISIBLE), fg=part[1])
        for part in parts
    )
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    with contextlib.nullcontext() if err else writing_output():
        typer.echo(shown, err=err, color=False if is_plain else None)


def color_state(line: str) -> Line:
    """The line, its first word in the colour of what it says."""
    found = _FIRST_WORD.match(line)
    colour = _COLOURS.get(found[2]) if found is not None else None
    return line if found is None or colour is None else (found[1], (found[2], colour), found[3])


def answer(as_json: bool, content: object, lines: Iterable[Line]) -> None:
    """Prints an answer, as JSON or line by line.

    Args:
        content: JSON values; dataclasses and structs are their fields, all else is text.
    """
    if as_json:
        import msgspec

        lines = [json.dumps(msgspec.to_builtins(content, enc_hook=str), indent=1)]
    print_lines(lines)


def as_bytes(count: float) -> str:
    """`535.9 kB`, `12.3 MB`, `1.45 GB`: powers of ten."""
    for unit, size, digits in (("TB", 1e12, 2), ("GB", 1e9, 2), ("MB", 1e6, 1), ("kB", 1e3, 1)):
        if abs(count) >= size:
            return f"{count / size:,.{digits}f} {unit}"
    return f"{count:,.0f} bytes"


def ago(then: datetime.datetime) -> str:
    """How long ago, in the largest unit of which it is two or more; 0 s where a clock was set back."""
    seconds = max(0, int((datetime.datetime.now(datetime.UTC) - then).total_seconds()))
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def pluralize(count: int, noun: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def join_first(names: Sequence[str], most: int) -> str:
    """The first of them, in one line."""
    return ", ".join(names[:most]) + ", …" * (len(names) > most)


def aligned(rows: Sequence[tuple[str, ...]], numbers: Collection[int] = ()) -> list[str]:
    """Rows of cells as lines, column under column; the columns in `numbers` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def as_command(*words: object) -> str:
    """A command of this program, to be pasted."""
    return shlex.join(["corpusmill", *map(str, words)])


def as_typed() -> str:
    """The command that is running, to be pasted; what is begun anew once isn't again."""
    return as_command(*(word for word in sys.argv[1:] if word != "--fresh"))


@contextlib.contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """What ends the block early carries the command that goes on from what is there, unless that would fail again."""
    try:
        with _stops_as_ctrl_c():
            yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be closed
            echo(f"stopped\nto go on: {command}", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        if isinstance(error, RetryableError) or not isinstance(error, InputError):
            error.add_note(f"to go on: {command}")
        raise


@contextlib.contextmanager
def _stops_as_ctrl_c() -> Iterator[None]:
    """End the block as Ctrl-C does on signals to stop, unless they are ignored, as under nohup, or handled."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in _STOPS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)  # a worker that was just forked: it ends by the signal itself
        os.kill(os.getpid(), number)

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def naming(file: object = None, option_of: OptionOf = no_option) -> Iterator[None]:
    """Errors of the block name recipe keys as `InputError.name_keys` does."""
    try:
        yield
    except InputError as error:
        error.name_keys(file, option_of)
        raise


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Write to what stderr is then: above a progress bar where one is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr() -> None:
    """Progress of the kernels, on stderr."""
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # each of its tries is said by ours
    logger = logging.getLogger("corpusmill")
    logger.handlers = [handler, *(one for one in logger.handlers if isinstance(one, logging.FileHandler))]
    logger.setLevel(logging.DEBUG if os.environ.get(VERBOSE) else logging.INFO)
    logger.propagate = False
