"""What the steps of a deduplication share: their run, the tasks that they give its workers, and the documents that were
seen before.

Each step is over files: sketches → exact copies → pairs → edges → decisions → documents. What is worked on at a time
are shards of the corpus, or ranges of what is sorted. Ranges depend on how much memory there is; what they add up to
doesn't.

Documents that were seen before are in a signature store, from which later ones are told without reading a text again.
They come before all others in the order, whatever others are selected by, and none of them goes.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.order import KeyRange, Runs, document_numbers, include, is_seen, no_documents
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.formats.parquet import mask, numbers, read_columns, strings
from pipeline_assets.corpus.spine.engine import RunSettings, RunStage
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, Receipt, StagingDir
from pipeline_assets.corpus.spine.worker import Shard, Window

_PROCESS_BYTES = 200 << 20  # libraries, compiled code, tables
_LEAST_SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Task:
    """What a step does to one shard of the corpus, or to one range of runs: `kernel(shard, …, window, folder)`."""

    name: str
    rows: int
    kernel: Callable[[Window, BuildFolder], Receipt]

    @classmethod
    def of(cls, kernel: Callable[..., Receipt], shard: Shard, *arguments: object) -> Self:
        return cls(shard.name, shard.rows, functools.partial(kernel, shard, *arguments))


def do(task: Task, window: Window, folder: BuildFolder) -> Receipt:
    """The work of every step: what its tasks say."""
    return task.kernel(window, folder)


def share_bytes(settings: RunSettings) -> int:
    """What one worker may hold of the corpus. Where the limit is below what libraries take alone, it is passed."""
    for_all = settings.memory_bytes - _PROCESS_BYTES
    return max(for_all // max(settings.workers, 1) - _PROCESS_BYTES, _LEAST_SHARE_BYTES)


def parts(settings: RunSettings) -> int:
    """Into how many parts work is cut at least, so that all workers have some."""
    return 4 * settings.workers if settings.workers > 1 else 1


SETS_SUFFIX, INDEX_SUFFIX = ".sets", ".index"


class SeenRun(NamedTuple):
    """A run of a signature store, whose documents have numbers from 0 there, and from `first_number` in a corpus."""

    path: Path
    first_number: int


class SetsFile(NamedTuple):
    """Sets of one shard, and the entries of their index; `offset` is added to the numbers there."""

    offset: int
    sets: Path
    entries: Path


@dataclass(frozen=True)
class SeenStore:
    """A signature store whose documents come before those of a corpus.

    Attributes:
        first_number: the number of its first document in the corpus.
        hashes, bands, sketches: runs, as `sketch_shard` writes them; None where there are none.
        sets: of all its documents.
        sources: (number of the first document, source), for each source that they are of.
    """

    name: str
    first_number: int
    documents: int
    listed: Path
    hashes: SeenRun
    bands: SeenRun | None
    sketches: SeenRun | None
    sets: tuple[SetsFile, ...]
    sources: tuple[tuple[int, str], ...]


def with_seen(of: KeyRange, seen: Sequence[SeenRun]) -> pa.Table:
    """A range of a corpus, and after it those rows of the same range of stores that have one of its keys.

    Args:
        of: its first column is the key, and one is the `order`, as those of the stores' runs.
    """
    own = of.table()
    if not own.num_rows:
        return own
    keys = np.sort(numbers(own.column(0)))
    tables = [own]
    for path, first_number in seen:
        table = KeyRange(of.low, of.high, (path,), first_number).table()
        values = numbers(table.column(0))
        is_own = keys[np.minimum(np.searchsorted(keys, values), len(keys) - 1)] == values
        tables.append(pa.table(table.filter(mask(is_own)).columns, schema=own.schema))
    return pa.concat_tables(tables)


def stores_of(orders: NDArray[np.uint64], seen: Sequence[SeenStore]) -> pa.StringArray:
    """The name of the store that each document stands in, or null."""
    bounds = np.array([store.first_number + store.documents for store in seen], np.uint64)
    places = np.searchsorted(bounds, document_numbers(orders), side="right")
    places_or_null = [mask(is_seen(orders)).buffers()[1], pa.py_buffer(places)]
    return strings([store.name for store in seen]).take(pa.Array.from_buffers(pa.int64(), len(orders), places_or_null))


@dataclass(frozen=True)
class DedupRun:
    """One deduplication under way.

    Attributes:
        seen: stores whose documents come before those of the shards.
    """

    building: StagingDir
    shards: Sequence[CorpusShard]
    recipe: DedupRecipe
    settings: RunSettings
    run_stage: RunStage[Task]
    seen: Sequence[SeenStore] = ()

    @property
    def share_bytes(self) -> int:
        """What one worker may hold of the corpus."""
        return share_bytes(self.settings)

    @property
    def documents(self) -> int:
        """How many have a number: those seen before, and all of the shards, those that can't be read too."""
        return sum(store.documents for store in self.seen) + sum(shard.rows for shard in self.shards)

    def run(self, stage: str, tasks: Iterable[Task]) -> list[Receipt]:
        """A receipt of each task."""
        return list(self.run_stage(stage, list(tasks), self.building))

    def runs(self, receipts: Iterable[Receipt], area: str = WORK) -> Runs:
        """The runs below an area that receipts name."""
        files = (file.path for receipt in receipts for file in receipt.files)
        return tuple(self.building.path(path) for path in files if path.startswith(f"{area}/"))

    def documents_in(self, runs: Runs, *columns: str) -> NDArray[np.uint8]:
        """The set of documents that stand in columns of runs."""
        members = no_documents(self.documents)
        for run in runs:
            for column in read_columns(run, list(columns)).columns:
                include(members, numbers(column))
        return members
