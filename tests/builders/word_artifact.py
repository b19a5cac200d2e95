"""Tiny artifact whose three shards of words become files of upper-case words.

Variants of the stage fail in a chosen way. They are in this module, not in a test file, so that a spawned worker can
import them.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.stage import KILLED_WORKER, Window, Work
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, StagingView, total_counts
from pipeline_assets.spine.start_method import StartMethod
from pipeline_assets.spine.temporary_names import temporary_path


@dataclass(frozen=True)
class Words:
    """Shard with a name and its rows."""

    name: str
    words: tuple[str, ...]

    @property
    def rows(self) -> int:
        return len(self.words)


ENGLISH = [Words("a", ("one", "two")), Words("b", ("three", "four", "five")), Words("c", ("six",))]
FRENCH = [Words("a", ("un", "deux")), Words("b", ("trois", "quatre", "cinq")), Words("c", ("six",))]
SHARDS = {"english": ENGLISH, "french": FRENCH}


def write_words(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Write words in capitals and a work file of lengths, without poison rows."""
    words = [word for row, word in window.enumerate_rows(shard.words, 0) if row not in window.poison_rows]
    files = [
        _written(folder, f"parts/{shard.name}.txt", [word.upper() for word in words]),
        _written(folder, f".work/{shard.name}.lengths", [str(len(word)) for word in words]),
    ]
    fatal = len(window.poison_rows)
    return Receipt(files, {"documents": len(words), **({KILLED_WORKER: fatal} if fatal else {})})


def write_slowly(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Write words, in at least 20 ms."""
    time.sleep(0.02)
    return write_words(shard, window, folder)


def _written(folder: StagingView, name: str, lines: Sequence[str]) -> OutputFile:
    data = "".join(f"{line}\n" for line in lines).encode()
    sha256 = durable.write_durably(folder.path(name), data)
    return OutputFile(name, len(lines), len(data), sha256, sha256)


def target_in(language: str) -> Target:
    return Target(unknown_kind("words/parts", StageVersion("words", 1)), "words", Path("words"), {"language": language})


def build_words(
    root: Path,
    language: str,
    work: Work[Words] = write_words,
    workers: int = 0,
    start_method: StartMethod = "forkserver",
) -> Artifact:
    """Build the artifact `words` in a language, replacing one in another."""

    def make(building: StagingDir) -> BuildResult:
        settings = RunSettings(workers, start_method)
        receipts = list(run_stage("write", work, SHARDS[language], building, settings))
        return BuildResult([receipt.files[0] for receipt in receipts], total_counts(receipts), {})

    return build_target(target_in(language), root, make, replace=True, run_settings={"workers": workers})


def words_in(folder: Path) -> list[str]:
    """Read all words of an artifact, in order."""
    return [word for path in sorted((folder / "parts").iterdir()) for word in path.read_text().split()]


def refuse_five(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Refuse the word `five` like a stage that finds bad input."""
    if "five" in shard.words:
        raise InputError("five is not a word", f"{shard.name} row 2", "take four")
    return write_words(shard, window, folder)


def stumble_over_five(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Fail at the word `five` like a stage with a bug."""
    if "five" in shard.words:
        raise KeyError("five")
    return write_words(shard, window, folder)


def fill_the_disk(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Raise the error of a full disk like a library: without a file name."""
    raise OSError(errno.ENOSPC, "No space left on device")


class Unsendable(Exception):
    """Error that pickle can't restore, like those of some libraries."""

    def __init__(self, word: str, *, row: int) -> None:
        super().__init__(f"{word} in row {row}")


def raise_unsendable(shard: Words, window: Window, folder: StagingView) -> Receipt:
    raise Unsendable(shard.words[0], row=0)


def raise_unpicklable(shard: Words, window: Window, folder: StagingView) -> Receipt:
    error = ValueError("holds a function")
    error.function = lambda: None  # type: ignore[attr-defined]
    raise error


def die_once(shard: Words, window: Window, folder: StagingView, marker: Path) -> Receipt:
    """Kill the process on shard b unless the marker exists."""
    if shard.name == "b" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return write_words(shard, window, folder)


def die_of_words(shard: Words, window: Window, folder: StagingView, deadly: tuple[str, ...]) -> Receipt:
    """Kill the process at a deadly word; leave a torn file."""
    for row, word in window.enumerate_rows(shard.words, 0):
        if word in deadly and row not in window.poison_rows:
            temporary_path(folder.path(f"parts/{shard.name}.txt")).write_text("torn")
            os.kill(os.getpid(), signal.SIGKILL)
    return write_words(shard, window, folder)


def exit_on_five(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Exit with status 7 at the word `five`, like a native library."""
    if any(word == "five" and row not in window.poison_rows for row, word in window.enumerate_rows(shard.words, 0)):
        os._exit(7)
    return write_words(shard, window, folder)


def die_always(shard: Words, window: Window, folder: StagingView) -> Receipt:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def die_of_two_rows(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Kill the process if it reads two rows or more, like a memory shortage."""
    if len(list(window.enumerate_rows(shard.words, 0))) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return write_words(shard, window, folder)


def open_and_wait(shard: Words, window: Window, folder: StagingView, fifo: Path) -> Receipt:
    """Keep a FIFO open until the process dies, so that its reader sees the end."""
    descriptor = os.open(fifo, os.O_WRONLY)
    os.write(descriptor, b".")
    signal.pause()
    raise AssertionError("unreachable")


LOADED: list[int] = []


def load() -> None:
    """Record the process that loads the data of `write_where`."""
    LOADED.append(os.getpid())


def refuse_to_load() -> None:
    raise InputError("there is no tokenizer", "here", "bring one")


def fail_to_load() -> None:
    raise KeyError("a bug")


def die_loading() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt_the_parent() -> None:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.1)  # the parent waits for the answer when the signal arrives


def write_where(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Write words, and note the loading process, the own one and BLAS threads."""
    notes = {"loaded": list(LOADED), "process": os.getpid(), "threads": os.environ.get("OPENBLAS_NUM_THREADS")}
    return replace(write_words(shard, window, folder), notes=notes)


def write_unflushed(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Write words, and text without a line end to both output streams."""
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"[{shard.name}]")
    return write_words(shard, window, folder)


def write_environment(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Write words, and note the hub token of the environment."""
    return replace(write_words(shard, window, folder), notes={"HF_TOKEN": os.environ.get("HF_TOKEN")})


HOARD: list[bytes] = []


def hoard(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Write words, and keep 256 MB for ever."""
    HOARD.append(b"x" * (256 << 20))
    return write_where(shard, window, folder)


def kill_the_server_once(shard: Words, window: Window, folder: StagingView, marker: Path) -> Receipt:
    """Kill the fork server and this process on shard b unless the marker exists."""
    if shard.name == "b" and not marker.exists():
        marker.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return write_words(shard, window, folder)


def send_blocked_signals(connection: Connection) -> None:
    """Send the signals that are blocked in this process."""
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))
