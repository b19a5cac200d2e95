"""Stages: pure functions from an input shard to an output shard.

Shards are planned from content, never from the number of workers, so that a restart with more or fewer workers reuses
every finished shard.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.shard import Shard
from pipeline_assets.spine.staging import Receipt, StagingView
from pipeline_assets.spine.verified_reads import collect_hashes

T = TypeVar("T")


def group_by_size(pieces: Iterable[T], get_size: Callable[[T], int], min_size: int) -> Iterator[list[T]]:
    """Group consecutive pieces so that each group but the last reaches `min_size`."""
    group: list[T] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += get_size(piece)
        if size >= min_size:
            yield group
            group, size = [], 0
    if group:
        yield group


MAX_SHARDS = 100_000  # of an artifact: file names have five digits, by which other programs sort them


def number_shards(groups: Iterable[T]) -> list[tuple[str, T]]:
    """Pair each group with a shard name of five digits; UsageError above MAX_SHARDS."""
    shards = [(f"{number:05d}", group) for number, group in enumerate(groups)]
    if len(shards) > MAX_SHARDS:
        what = f"an artifact is limited to {MAX_SHARDS:,} shards, got {len(shards):,}"
        raise UsageError(what, None, "increase the shard size, or split the source")
    return shards


KILLED_WORKER = "killed_worker"


S = TypeVar("S", bound=Shard)


@dataclass(frozen=True)
class Window:
    """Range of a shard's rows that a stage reads, from `start` to before `stop`.

    If `stop` is None, the window ends with the shard. At first, the window is the whole shard. If a row crashes its
    worker (native panic, too much memory), the pool halves the window until it finds this poison row. The stage does
    not process `poison_rows`: it rejects them with the reason `killed_worker`, or raises InputError.
    """

    start: int = 0
    stop: int | None = None
    poison_rows: frozenset[int] = frozenset()

    def enumerate_rows(self, rows: Sequence[T], first_row: int) -> Iterable[tuple[int, T]]:
        """Return (row number, row) pairs in the window; the caller handles poison rows.

        `rows` are consecutive rows of the shard, and `first_row` is the row number of the first of them.
        """
        # Clip the window to positions in `rows`. The slice and the range are both empty if stop <= start.
        start = max(self.start - first_row, 0)
        stop = len(rows) if self.stop is None else max(min(self.stop - first_row, len(rows)), start)
        return zip(range(first_row + start, first_row + stop), rows[start:stop], strict=True)

    def relative_to(self, first_row: int) -> "Window":
        """Return the window with rows numbered from `first_row`; bounds may be negative."""
        stop = None if self.stop is None else self.stop - first_row
        return Window(self.start - first_row, stop, frozenset(row - first_row for row in self.poison_rows))


WHOLE_SHARD = Window()


Work: TypeAlias = Callable[[S, Window, StagingView], Receipt]
"""Function that runs a stage on one shard: it writes files durably, and returns a receipt that the engine commits.

It is a module-level function or a `functools.partial` of one, so that it can be sent to a worker process.
"""
WarmUp = Callable[[], object]


def no_warm_up() -> None:
    """Do nothing: the warm-up of stages that load nothing."""


def run_shard(work: Work[S], shard: S, window: Window, staging: StagingView, stage: str | None) -> Receipt:
    """Run a shard, and commit its receipt under `stage`; None commits nothing.

    The hashes of files that the work read completely are added to the receipt.
    """
    with collect_hashes() as reads:
        receipt = work(shard, window, staging)
    receipt = replace(receipt, reads={**reads, **receipt.reads})
    if stage is not None:
        staging.commit(stage, shard.name, receipt)
    return receipt
