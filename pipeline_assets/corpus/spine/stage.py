"""Stages: pure functions from one input shard to one finished shard, and what the engine tells them to read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pipeline_assets.corpus.spine.building import BuildFolder, Receipt

KILLED_WORKER = "killed_worker"


class Shard(Protocol):
    """A piece of input, planned from content: picklable, the same for any number of workers."""

    @property
    def name(self) -> str:
        """Unique in its stage; names the output."""

    @property
    def rows(self) -> int:
        """Input rows, read or rejected."""


S_contra = TypeVar("S_contra", bound=Shard, contravariant=True)
T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """Which rows of a shard a stage reads.

    The whole shard, but when a row kills its worker (a panic in native code, memory): then the engine halves the window
    until the row is found, and names it in `fatal`; the stage rejects it unread, with the reason `killed_worker`.
    """

    start: int = 0
    stop: int | None = None
    fatal: frozenset[int] = frozenset()

    def of(self, rows: Sequence[T], first: int) -> Iterable[tuple[int, T]]:
        """(row number, row) inside the window, fatal rows included; `first` is the number of the first of `rows`."""
        start = max(self.start - first, 0)
        stop = len(rows) if self.stop is None else max(min(self.stop - first, len(rows)), start)
        return zip(range(first + start, first + stop), rows[start:stop], strict=True)


WHOLE = Window()


class Work(Protocol[S_contra]):
    """What a stage does to one shard: writes its files into the folder, durable, and says what it wrote.

    A module-level function or a `functools.partial` of one, so that it can be sent to a worker process.
    """

    def __call__(self, shard: S_contra, window: Window, folder: BuildFolder) -> Receipt:
        """The receipt; the engine commits it."""


WarmUp = Callable[[], None]


def no_warm_up() -> None:
    """For stages that load nothing."""
