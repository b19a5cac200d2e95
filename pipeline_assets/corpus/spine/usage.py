"""What a build tells of itself: how far it is, what it takes of its machine, and how its artifact came about.

Progress goes by the clock: a log line every few seconds with rate and time left, or a bar on a terminal.
Provenance is true, useful, and no part of any digest.
"""

import atexit
import contextlib
import datetime
import functools
import gc
import hashlib
import logging
import os
import platform
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline_assets.corpus.spine.visible import in_one_line

if TYPE_CHECKING:
    import rich.progress

logger = logging.getLogger("corpusmill")
_BAR_WIDTH = 20
_REDRAW_S = 0.1
_STEP: ContextVar[tuple[str, ...]] = ContextVar("step", default=())
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Progress:
    """Counts what is done of a known whole and says so by the clock, never by the row.

    Args:
        title: what is being done.
        total: the whole, in `unit`.
        unit: what is counted: `shards`, `files`; `bytes` are shown as MB.
        every_s: seconds between log lines.
        quiet_s: seconds at the start in which nothing is said, and nothing at all of what is done by then.
    """

    def __init__(self, title: str, total: int, unit: str, every_s: float, quiet_s: float = 0.0) -> None:
        self._title, self._total, self._unit, self._every_s = title, total, unit, every_s
        self._started = self._spoke = time.monotonic()
        self._speaks_from = self._started + quiet_s
        self._done = self._done_before = 0
        self._counts, self._counts_before = Counter[str](), Counter[str]()
        self._bar: _Bar | None = None

    def add_done_before(self, done: int, counts: Mapping[str, int] = _NOTHING) -> None:
        """`done` units that took no time now, with what they counted: no part of a rate."""
        self._done_before += done
        self._counts_before.update(counts)
        self.add(done, counts)

    def add(self, done: int, counts: Mapping[str, int] = _NOTHING) -> None:
        """`done` more units, with what they counted: `documents`, `tokens`, `bytes`."""
        self._done += done
        self._counts.update(counts)
        now, is_over = time.monotonic(), self._done >= self._total
        if now < self._speaks_from:
            return
        if sys.stderr.isatty():
            if self._bar is None or not self._bar.is_shown:
                self._bar = _Bar(self._title)
            self._bar.draw(self._done, self._total, self._words())
        elif now - self._spoke >= self._every_s or is_over:
            self._spoke = now
            logger.info(self.line())

    def line(self) -> str:
        """What is done, its counts, their rates and the time left."""
        return f"{self._title}: {self._words()}"

    def _words(self) -> str:
        """Done of total, counts, their rates and the time left; no rate of what nothing was worked on."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        done_now = self._done - self._done_before
        parts = [f"{self._done}/{self._total} {self._unit}"]
        if self._unit == "bytes":
            rate = _rate("bytes", done_now, seconds)
            parts = [f"{self._done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB{rate}"]
        for name, count in self._counts.items():
            rate = _rate(name, count - self._counts_before[name], seconds)
            parts.append((f"{count / 1e6:,.1f} MB" if name == "bytes" else f"{count:,} {name}") + rate)
        if done_now > 0 and self._done < self._total:
            parts.append(f"{seconds / done_now * (self._total - self._done):,.0f} s left")
        return "; ".join(parts)


def _rate(name: str, count: int, seconds: float) -> str:
    if count == 0:
        return ""
    return f", {count / seconds / 1e6:,.1f} MB/s" if name == "bytes" else f", {count / seconds:,.0f}/s"


class _Bar:
    """A line on a terminal that is drawn again as work goes on. Bars are shown together, until `end_bars`."""

    shown: "ClassVar[rich.progress.Progress | None]" = None

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.fields[words]}", markup=False),
        )
        if _Bar.shown is None:
            # Drawn by what counts, not by a thread: workers may be forks of this process. Results stay on stdout.
            console = Console(stderr=True)
            _Bar.shown = Progress(*columns, console=console, auto_refresh=False, redirect_stdout=False)
            _Bar.shown.start()
            atexit.register(end_bars)
        self._bars = _Bar.shown
        self._task = self._bars.add_task(in_one_line(" ".join([*_STEP.get(), title])), words="")
        self._drawn = -_REDRAW_S

    @property
    def is_shown(self) -> bool:
        """Whether no other work has ended the bars meanwhile."""
        return self._bars is _Bar.shown

    def draw(self, done: int, total: int, words: str) -> None:
        self._bars.update(self._task, completed=done, total=total, words=in_one_line(words))
        now = time.monotonic()
        if now - self._drawn >= _REDRAW_S:
            self._drawn = now
            self._bars.refresh()
        if self._bars.finished:
            end_bars()


def end_bars() -> None:
    """Leave the bars as they are, and give the terminal back; nothing where none is shown."""
    if _Bar.shown is not None:
        bars, _Bar.shown = _Bar.shown, None
        bars.stop()


@contextlib.contextmanager
def named_step(number: int, steps: int) -> Iterator[None]:
    """Bars of the block say which step of how many it is; they end with it."""
    token = _STEP.set((f"step {number} of {steps}:",))
    try:
        yield
    finally:
        _STEP.reset(token)
        end_bars()


_US = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # getrusage(2) counts bytes there, KiB elsewhere
_forked_maxrss, _forked_cpu_s = 0, 0.0


def count_forked(maxrss: int, cpu_s: float) -> None:
    """Note what a worker took that the fork server waited for; `getrusage` here leaves it out."""
    global _forked_maxrss, _forked_cpu_s
    _forked_maxrss, _forked_cpu_s = max(maxrss, _forked_maxrss), _forked_cpu_s + cpu_s


def forget_forked_cpu() -> None:
    """Leave out what workers of the fork server took: the server has ended, so that `getrusage` here has it."""
    global _forked_cpu_s
    _forked_cpu_s = 0.0


def peak_memory_bytes() -> int:
    """Return the largest resident set that this process, or one of its children that ended, has had since its start.

    It is that of one process, memory shared with others included, and the largest so far: of several builds in one
    process, a later one never shows less than an earlier one. A program that replaced another process (`exec`), as
    `subprocess` and spawned workers do, begins with what that one had.
    """
    return _MAXRSS_BYTES * max(_forked_maxrss, *(resource.getrusage(who).ru_maxrss for who in _US))


def resident_bytes() -> int:
    """Bytes of this process that are in memory, shared ones included; 0 where the system doesn't tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def cpu_seconds() -> float:
    """CPU time of this process, its children that ended, and workers that the fork server waited for."""
    ours = (resource.getrusage(who) for who in _US)
    return _forked_cpu_s + sum(used.ru_utime + used.ru_stime for used in ours)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, one with several names counted once; 0 where there is no such folder."""
    files: dict[tuple[int, int], int] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a live builder renames
                status = os.lstat(os.path.join(path, name))
                files[status.st_dev, status.st_ino] = status.st_size
    return sum(files.values())


class StepTimer:
    """Seconds of the parts of a build, one after the other, and what a counter, of bytes fetched, say, counted
    meanwhile.
    """

    def __init__(self, counter: Callable[[], int] = lambda: 0) -> None:
        self.seconds: dict[str, float] = {}
        self.counted: dict[str, int] = {}
        self._counter = counter
        self._since, self._before = time.monotonic(), counter()

    def end(self, part: str) -> None:
        """`part` ended now; it began when the part before it ended."""
        now, count = time.monotonic(), self._counter()
        self.seconds[part], self.counted[part] = round(now - self._since, 3), count - self._before
        self._since, self._before = now, count


_LIBRARIES = ("dagster", "gigatoken", "huggingface_hub", "msgspec", "numpy", "pyarrow", "tiktoken", "zstandard")
_PROJECT = Path(__file__).parents[3]


class Stopwatch:
    """Started at the beginning of a build; tells its provenance at the end. The command is what was typed, and an id
    that all builds of that process share; None in a process of the UI.
    """

    command: ClassVar[Mapping[str, str] | None] = None

    @classmethod
    def name_command(cls, typed: str) -> None:
        """Says what this process was started for."""
        process = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        cls.command = {"typed": typed, "id": hashlib.sha256(process.encode()).hexdigest()[:12]}

    def __init__(self) -> None:
        self._started_at = datetime.datetime.now(datetime.UTC)
        self._started = time.monotonic()
        self._used = cpu_seconds()

    def provenance(self, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """Times, host, versions and run settings. Settings hold no secret: tokens are never among them."""
        return {
            "started_at_utc": self._started_at.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._started, 3),
            "cpu_seconds": round(max(0.0, cpu_seconds() - self._used), 2),
            "host": socket.gethostname(),
            "platform": platform.platform(),
            "python": sys.version.split()[0],
            "libraries": dict(library_versions()),
            "git_sha": git_sha(),
            "run_settings": dict(run_settings),
            **({} if self.command is None else {"command": dict(self.command)}),
        }


@functools.cache
def library_versions() -> Mapping[str, str | None]:
    """Versions of the libraries that could have a part in the bytes; None for one that is not installed."""
    found = {name: next(iter(metadata.distributions(name=name)), None) for name in _LIBRARIES}
    return {name: None if one is None else one.version for name, one in found.items()}


def versions() -> dict[str, str | None]:
    """What could have a part in the bytes: the program's commit, Python, the platform, libraries."""
    return versions_of(Stopwatch().provenance({}))


def versions_of(provenance: Mapping[str, Any]) -> dict[str, str | None]:
    """As `versions`, of the machine that a manifest's provenance tells of, as far as it tells."""
    told = {"program": "git_sha", "python": "python", "platform": "platform"}
    return {
        **{name: provenance[key] for name, key in told.items() if key in provenance},
        **provenance.get("libraries", {}),
    }


@functools.cache
def git_sha() -> str | None:
    """Commit of the program's source, with `+changes` where the working tree differs; None outside a git checkout.

    Asked once: a process goes on with the source that it has loaded. An installed wheel has no commit, even if its
    environment is stored in some other project's checkout.
    """
    git = ["git", "--no-optional-locks", "-C", str(_PROJECT)]
    status = [*git, "status", "--branch", "--porcelain=2"]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        told = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    head = told[0].removeprefix("# branch.oid ")
    if head == "(initial)":  # nothing is committed yet
        return None
    return head + ("" if all(line.startswith("#") for line in told) else "+changes")


@contextlib.contextmanager
def no_cycles() -> Iterator[None]:
    """Python doesn't look while the block runs. Rows are trees, which are freed without: looking through them again and
    again, as they are made, takes a twelfth of the time and finds nothing. Whoever makes much calls `gc.collect(0)`.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
