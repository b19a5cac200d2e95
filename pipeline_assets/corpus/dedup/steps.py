"""What the steps of a deduplication share: the total order of documents, in which the first of several duplicates
stays, sets of documents, sorted runs; their run, the tasks that they give its workers, and the documents that were seen
before.

Each step is over files: sketches → exact copies → pairs → edges → decisions → documents. What is worked on at a time
are shards of the corpus, or ranges of what is sorted. Ranges depend on how much memory there is; what they add up to
doesn't.

A document has a number, its place in the corpus: sources in the order of the recipe, their shards, their rows. Its
order is a uint64: what it is selected by in the upper 32 bits, smaller for better, its number in the lower ones. There
0 is kept for documents that were seen before. A set of documents has a bit for each.

A run is a table in the order of its first column, an uncompressed Parquet file of small row groups, whose bounds say
which of them a range needs. So what has to be sorted may be larger than memory by far: of all runs together a range is
read at a time, and what it holds is sorted there.

Documents that were seen before are in a signature store, from which later ones are told without reading a text again.
They come before all others in the order, whatever others are selected by, and none of them goes.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.recipe import DedupRecipe, Selection
from pipeline_assets.corpus.formats.arrow_columns import mask, numbers, strings, to_array
from pipeline_assets.corpus.formats.parquet import open_parquet, read_columns
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, RunStage
from pipeline_assets.spine.stage import Task
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingDir, StagingView

MAX_DOCUMENTS = 2**32
_LAST = 2**32 - 1
_NUMBER = np.uint64(_LAST)
_32, _3, _7 = np.uint64(32), np.uint64(3), np.uint64(7)
_ONE = np.uint8(1)


def priorities(
    numbers: NDArray[np.uint64], selection: Selection, text_bytes: NDArray[np.int64], quality: NDArray[np.float32]
) -> NDArray[np.uint64]:
    """The orders of documents.

    Args:
        quality: NaN where there is none.
    """
    match selection:
        case "first":
            upper = np.ones(len(numbers), np.uint64)
        case "longest":
            upper = (_LAST - np.minimum(text_bytes, _LAST - 1)).astype(np.uint64)
        case "quality":
            bits = (quality + np.float32(0)).view(np.int32).astype(np.int64)  # -0.0 is 0.0
            ascending = np.where(bits < 0, -(2**31) - bits, bits)  # as floats ascend
            upper = np.where(np.isnan(quality), _LAST, (2**31 - 2) - ascending).astype(np.uint64)
    return upper << _32 | numbers


def is_from_seen_corpus(orders: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which documents were seen before."""
    return orders <= _NUMBER


def document_numbers(orders: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers of documents."""
    return orders & _NUMBER


def empty_bitmap(documents: int) -> NDArray[np.uint8]:
    """The empty set of documents below a number: a bit for each."""
    return np.zeros((documents >> 3) + 1, np.uint8)


@compiled
def add_to_bitmap(members: NDArray[np.uint8], orders: NDArray[np.uint64]) -> None:
    """Puts documents into a set, by their orders or numbers."""
    for order in orders:
        number = order & _NUMBER
        members[number >> _3] |= _ONE << np.uint8(number & _7)


@inner
def is_member(members: NDArray[np.uint8], order: np.uint64) -> bool:
    """Whether a document is in the set."""
    number = order & _NUMBER
    return bool(members[number >> _3] >> np.uint8(number & _7) & _ONE)


def bitmap_contains(orders: NDArray[np.uint64], members: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which documents are in the set, by their orders or numbers."""
    documents = document_numbers(orders)
    found: NDArray[np.bool_] = np.asarray(members)[documents >> _3] >> (documents & _7).astype(np.uint8) & _ONE != 0
    return found


def save(members: NDArray[np.uint8], path: Path) -> Path:
    """The set in a file, from which `load` maps it."""
    with DurableFile(path) as file:
        file.write(members.tobytes())
    return path


def load(path: Path) -> NDArray[np.uint8]:
    """A set that `save` wrote: pages of the file, which processes share."""
    return np.memmap(path, np.uint8, "r")


_ROW_GROUP_ROWS = 1 << 13
_KEYS = 2**64
Runs = tuple[Path, ...]


def write_run(folder: StagingView, name: str, table: pa.Table) -> OutputFile:
    """A table whose first column, uint64, ascends."""
    with DurableFile(folder.path(name)) as file:
        pq.write_table(
            table,
            file,
            _ROW_GROUP_ROWS,
            compression="none",
            use_dictionary=False,
            write_statistics=[table.schema.names[0]],
            write_page_checksum=True,
        )
    return OutputFile.plain(name, table.num_rows, file)


@dataclass(frozen=True)
class KeyRange:
    """The rows of all runs with `low <= key < high`, as a shard of a stage; ranges are in the order of their names.

    Attributes:
        seen_from: of runs of a signature store, the number in the corpus of its first document: they are numbered from
            0 there. None where the runs are of the corpus itself.
    """

    low: int
    high: int
    runs: Runs
    seen_from: int | None = None

    @property
    def name(self) -> str:
        return f"{self.low:016x}-{self.high:017x}"

    @property
    def rows(self) -> int:
        """None of an input: these are runs of our own."""
        return 0

    def table(self) -> pa.Table:
        """The rows, run after run."""
        table = pa.concat_tables(map(self._range_rows, self.runs))
        if self.seen_from is None:
            return table
        orders = document_numbers(numbers(table["order"])) + np.uint64(self.seen_from)
        return table.set_column(table.schema.names.index("order"), "order", to_array(orders))

    def _range_rows(self, run: Path) -> pa.Table:
        with open_parquet(run) as file:
            row_groups = _row_group_keys(file.metadata)
            groups = [number for number, key in row_groups if key.max >= self.low and key.min < self.high]
            table = file.read_row_groups(groups, use_threads=False)
        keys = numbers(table.column(0))
        start, stop = (
            np.searchsorted(keys, np.uint64(bound)) if bound < _KEYS else len(keys) for bound in (self.low, self.high)
        )
        return table.slice(start, stop - start)


def _row_group_keys(run: pq.FileMetaData) -> Iterator[tuple[int, pq.Statistics]]:
    """The number of each row group that has rows, and statistics of its keys."""
    columns = (run.row_group(number).column(0) for number in range(run.num_row_groups))
    return ((number, column.statistics) for number, column in enumerate(columns) if column.num_values)


def total_rows(runs: Iterable[Path]) -> int:
    """How many rows runs have together."""
    return sum(pq.read_metadata(run).num_rows for run in runs)


def even_ranges(runs: Runs, rows: int, max_rows: int) -> list[KeyRange]:
    """Ranges of keys that are spread evenly, as hashes are, with about `max_rows` of `rows` in each."""
    parts = max(-(-rows // max_rows), 1)
    bounds = [part * _KEYS // parts for part in range(parts + 1)]
    return [KeyRange(low, high, runs) for low, high in itertools.pairwise(bounds)]


def ranges(runs: Runs, max_rows: int, seen_from: int | None = None) -> list[KeyRange]:
    """Ranges of keys with at most about `max_rows` in each, by the bounds of row groups; more only of one key."""
    keys = (key for run in runs for _, key in _row_group_keys(pq.read_metadata(run)))
    cuts, rows = [0], 0
    for least, group_rows in sorted((key.min, key.num_values) for key in keys):
        if rows + group_rows > max_rows and least > cuts[-1]:
            cuts.append(least)
            rows = 0
        rows += group_rows
    return [KeyRange(low, high, runs, seen_from) for low, high in itertools.pairwise([*cuts, _KEYS])]


def sorted_pairs(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Both columns by key, then by value. Most keys are there once: only values of the others are sorted, which takes
    much longer.
    """
    by = np.argsort(keys)
    keys, values = keys[by], values[by]
    is_same = ~is_first(keys)
    again = np.flatnonzero(is_same | np.append(is_same[1:], False))
    values[again] = values[again][np.lexsort((values[again], keys[again]))]
    return keys, values


def is_first(*columns: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which rows of sorted columns are no repetition of the one before. np.unique hashes first: eight times as long."""
    is_new = np.ones(len(columns[0]), bool)
    is_new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return is_new


def distinct_pairs(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each pair once, the later document and the earlier one, shape (2, pairs), in the order of both."""
    pairs = np.stack(sorted_pairs(*pairs))
    return pairs[:, is_first(*pairs)]


_PROCESS_BYTES = 200 << 20  # libraries, compiled code, tables
_LEAST_SHARE_BYTES = 64 << 20


def share_bytes(settings: RunSettings) -> int:
    """What one worker may hold of the corpus. Where the limit is below what libraries take alone, it is passed."""
    for_all = settings.memory_bytes - _PROCESS_BYTES
    return max(for_all // max(settings.workers, 1) - _PROCESS_BYTES, _LEAST_SHARE_BYTES)


def parts(settings: RunSettings) -> int:
    """Into how many parts work is cut at least, so that all workers have some."""
    return 4 * settings.workers if settings.workers > 1 else 1


SETS_SUFFIX, INDEX_SUFFIX = ".sets", ".index"


class SeenRuns(NamedTuple):
    """Runs of a signature store, whose documents have numbers from 0 there, and from `first_number` in a corpus."""

    paths: Runs
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
        hashes, bands, sketches: as `sketch_shard` writes them.
        sets: of all its documents.
        sources: (number of the first document, source), for each source that they are of.
    """

    name: str
    first_number: int
    documents: int
    listed: Path
    hashes: SeenRuns
    bands: SeenRuns
    sketches: SeenRuns
    sets: tuple[SetsFile, ...]
    sources: tuple[tuple[int, str], ...]


def with_seen(of: KeyRange, seen: Sequence[SeenRuns]) -> pa.Table:
    """A range of a corpus, and after it those rows of the same range of stores that have one of its keys.

    Args:
        of: its first column is the key, and one is the `order`, as those of the stores' runs.
    """
    own = of.table()
    if not own.num_rows:
        return own
    keys = np.sort(numbers(own.column(0)))
    tables = [own]
    for runs, first_number in seen:
        table = KeyRange(of.low, of.high, runs, first_number).table()
        values = numbers(table.column(0))
        is_own = keys[np.minimum(np.searchsorted(keys, values), len(keys) - 1)] == values
        tables.append(pa.table(table.filter(mask(is_own)).columns, schema=own.schema))
    return pa.concat_tables(tables)


def open_stores(orders: NDArray[np.uint64], seen: Sequence[SeenStore]) -> pa.StringArray:
    """The name of the store that each document stands in, or null."""
    bounds = np.array([store.first_number + store.documents for store in seen], np.uint64)
    places = np.searchsorted(bounds, document_numbers(orders), side="right")
    places_or_null = [mask(is_from_seen_corpus(orders)).buffers()[1], pa.py_buffer(places)]
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
        members = empty_bitmap(self.documents)
        for run in runs:
            for column in read_columns(run, list(columns)).columns:
                add_to_bitmap(members, numbers(column))
        return members
