"""What the commands share: their options, their log, and the line that says how to go on."""

import contextlib
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from pipeline_assets.corpus.spine.errors import InputError, Obstacle, OptionOf, UsageError, no_option

PROJECT = Path(__file__).parents[2]

Root = Annotated[Path, typer.Option("--data", envvar="CORPUSMILL_DATA", help="Data root.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OptionalRoot = Annotated[
    Path | None,
    typer.Option("--data", envvar="CORPUSMILL_DATA", help="Data root; default: that of FOLDER, without one data."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if a check warns.")]
Workers = Annotated[int, typer.Option(min=0, envvar="CORPUSMILL_WORKERS", help="Worker processes; 0 uses none.")]


# A page may hold escape sequences: on a terminal they are shown, not obeyed.
VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {
    code: "\N{REPLACEMENT CHARACTER}" for code in range(0x7F, 0xA0)
}
IN_ONE_LINE = VISIBLE | {ord("\n"): "⏎", ord("\t"): "⇥"}


def data_root(context: typer.Context, folder: Path, data: Path | None) -> Path:
    """The data root of a sealed artifact: the one that was typed, else the one that its folder lies in, else the
    environment's.

    Raises:
        UsageError: there is none of them, or no such folder.
    """
    from pipeline_assets.corpus.spine.artifact import sealed_manifest
    from pipeline_assets.corpus.spine.lineage import root_of

    is_typed = getattr(context.get_parameter_source("data"), "name", "") == "COMMANDLINE"
    root = data if is_typed else root_of(folder) or data
    if root is None:
        sealed_manifest(folder)  # what is no artifact isn't told to have no data root
        raise UsageError("it lies in no data root", folder, "say with --data where its upstream lies")
    return existing_root(root)


def existing_root(root: Path) -> Path:
    """The data root.

    Raises:
        UsageError: there is no such folder.
    """
    if root.is_dir():
        return root
    what = "a file lies where a folder belongs" if root.exists() else "there is no such folder"
    raise UsageError(what, root, "give the data root with --data")


def as_typed() -> str:
    """The command that is running, as it can be pasted."""
    return shlex.join(["corpusmill", *sys.argv[1:]])


@contextlib.contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """What ends the block early carries the command that goes on from what is there, unless that would fail again."""
    try:
        with _sigterm_as_ctrl_c():
            yield
    except KeyboardInterrupt:
        typer.echo(f"stopped\nto go on: {command}", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        if isinstance(error, Obstacle) or not isinstance(error, InputError):
            error.add_note(f"to go on: {command}")
        raise


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """A stop from outside, as a job scheduler sends it, ends the block as Ctrl-C does."""
    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_ours:
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)  # a worker that was just forked: it ends by the signal itself
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def naming(file: object = None, option_of: OptionOf = no_option, within: str = "") -> Iterator[None]:
    """Errors of the block name recipe keys as `InputError.name_keys` does."""
    try:
        yield
    except InputError as error:
        error.name_keys(file, option_of, within)
        raise


@contextlib.contextmanager
def writing_below(root: Path) -> Iterator[None]:
    """A failed write that names no file, as on a full disk, is told of the data root."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(root)
        raise


def log_to_stderr() -> None:
    """Progress of the kernels, on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # each of its tries is said by ours
    logger = logging.getLogger("corpusmill")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
