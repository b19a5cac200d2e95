"""Stages: pure functions from one input shard to one finished shard.

Shards are planned from content, never from the number of workers: a restart with other workers reuses every finished
one.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeAlias, TypeVar

from pipeline_assets.spine.files import collect_hashes
from pipeline_assets.spine.staging import Receipt, StagingView

T = TypeVar("T")


def grouped_by_size(pieces: Iterable[T], size_of: Callable[[T], int], at_least: int) -> Iterator[list[T]]:
    """Runs of consecutive pieces, each closed by the piece that brings it to `minimum`; the last may stay below."""
    group: list[T] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += size_of(piece)
        if size >= at_least:
            yield group
            group, size = [], 0
    if group:
        yield group


KILLED_WORKER = "killed_worker"


class Shard(Protocol):
    """A piece of input, planned from content: picklable, the same for any number of workers."""

    @property
    def name(self) -> str:
        """Unique in its stage; names the output."""

    @property
    def rows(self) -> int:
        """Input rows, read or rejected."""


S = TypeVar("S", bound=Shard)


@dataclass(frozen=True)
class Window:
    """Which rows of a shard a stage reads.

    The whole shard, but when a row kills its worker (a panic in native code, memory): then the engine halves the window
    until the row is found, and names it in `fatal`; the stage rejects it unread, with the reason `killed_worker`.
    """

    start: int = 0
    stop: int | None = None
    poison_rows: frozenset[int] = frozenset()

    def enumerate_rows(self, rows: Sequence[T], first: int) -> Iterable[tuple[int, T]]:
        """(row number, row) inside the window, fatal rows included; `first` is the number of the first of `rows`."""
        start = max(self.start - first, 0)
        stop = len(rows) if self.stop is None else max(min(self.stop - first, len(rows)), start)
        return zip(range(first + start, first + stop), rows[start:stop], strict=True)


WHOLE = Window()


Work: TypeAlias = Callable[[S, Window, StagingView], Receipt]
"""What a stage does to one shard: writes its files into the folder, durable; the engine commits the receipt. A
module-level function or a `functools.partial` of one, so that it can be sent to a worker process.
"""
WarmUp = Callable[[], object]


def no_warm_up() -> None:
    """For stages that load nothing."""


def run_shard(work: Work[S], shard: S, window: Window, folder: StagingView, stage: str | None) -> Receipt:
    """The receipt of a shard, committed under `stage` if there is one; it tells which files were read whole."""
    with collect_hashes() as reads:
        receipt = work(shard, window, folder)
    receipt = replace(receipt, reads={**reads, **receipt.reads})
    if stage is not None:
        folder.commit(stage, shard.name, receipt)
    return receipt


@dataclass(frozen=True)
class Task:
    """What a stage does to one of its shards: `kernel(shard, …, window, folder, …)`."""

    name: str
    rows: int
    kernel: Callable[[Window, StagingView], Receipt]

    @classmethod
    def for_kernel(cls, kernel: Callable[..., Receipt], shard: Shard, *arguments: object, **named: object) -> Self:
        """Bind a kernel to a shard and to what it takes after the shard, or by name."""
        return cls(shard.name, shard.rows, functools.partial(kernel, shard, *arguments, **named))


def run_task(task: Task, window: Window, folder: StagingView) -> Receipt:
    """Run a task: the work of stages that share their workers."""
    return task.kernel(window, folder)
