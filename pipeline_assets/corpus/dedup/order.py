"""The total order of documents, in which the first of several duplicates stays; sets of documents; sorted runs.

A document has a number, its place in the corpus: sources in the order of the recipe, their shards, their rows. Its
order is a uint64: what it is selected by in the upper 32 bits, smaller for better, its number in the lower ones. There
0 is kept for documents that were seen before: they come first. A set of documents has a bit for each.

A run is a table in the order of its first column, an uncompressed Parquet file of small row groups, whose bounds say
which of them a range needs. So what has to be sorted may be larger than memory by far: of all runs together a range is
read at a time, and what it holds is sorted there.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.dedup.recipe import Selection
from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.staging import OutputFile

MAX_DOCUMENTS = 2**32
_LAST = 2**32 - 1
_NUMBER = np.uint64(_LAST)
_32, _3, _7 = np.uint64(32), np.uint64(3), np.uint64(7)
_ONE = np.uint8(1)


class Selected(NamedTuple):
    """What documents are selected by; one of the two, or none.

    Attributes:
        text_bytes: int64.
        quality: float32, NaN where there is none.
    """

    text_bytes: NDArray[np.int64]
    quality: NDArray[np.float32]


def orders(numbers: NDArray[np.uint64], selection: Selection, selected: Selected) -> NDArray[np.uint64]:
    """The orders of documents of these numbers."""
    return _upper(selection, selected) << _32 | numbers


def _upper(selection: Selection, selected: Selected) -> NDArray[np.uint64]:
    match selection:
        case "first":
            return np.ones(len(selected.text_bytes), np.uint64)
        case "longest":
            return (_LAST - np.minimum(selected.text_bytes, _LAST - 1)).astype(np.uint64)
        case "quality":
            bits = (selected.quality + np.float32(0)).view(np.int32).astype(np.int64)  # -0.0 is 0.0
            ascending = np.where(bits < 0, -(2**31) - bits, bits)  # as floats ascend
            return np.where(np.isnan(selected.quality), _LAST, (2**31 - 2) - ascending).astype(np.uint64)


def is_seen(orders: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which documents were seen before."""
    return orders <= _NUMBER


@inner
def number_of(order: np.uint64) -> np.uint64:
    """The document's number."""
    return order & _NUMBER


def document_numbers(orders: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers of documents."""
    return orders & _NUMBER


def no_documents(documents: int) -> NDArray[np.uint8]:
    """The empty set of documents below a number: a bit for each."""
    return np.zeros((documents >> 3) + 1, np.uint8)


@compiled
def include(members: NDArray[np.uint8], orders: NDArray[np.uint64]) -> None:
    """Puts documents into a set, by their orders or numbers."""
    for order in orders:
        number = number_of(order)
        members[number >> _3] |= _ONE << np.uint8(number & _7)


@inner
def is_member(members: NDArray[np.uint8], order: np.uint64) -> bool:
    """Whether a document is in the set."""
    number = number_of(order)
    return bool(members[number >> _3] >> np.uint8(number & _7) & _ONE)


@compiled
def are_members(orders: NDArray[np.uint64], members: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which documents are in the set, by their orders or numbers."""
    answer = np.empty(len(orders), np.bool_)
    for place in range(len(orders)):
        answer[place] = is_member(members, orders[place])
    return answer


def members_between(members: NDArray[np.uint8], first: int, stop: int) -> NDArray[np.bool_]:
    """Which of the documents from number `first` to before `stop` are in the set."""
    bits = np.unpackbits(members[first >> 3 : (stop >> 3) + 1], bitorder="little")
    return bits[first & 7 : (first & 7) + stop - first].astype(bool)


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


def write_run(path: Path, name: str, table: pa.Table) -> OutputFile:
    """A table whose first column, uint64, ascends."""
    key = table.schema.names[0]
    with DurableFile(path) as file:
        pq.write_table(
            table,
            file,
            _ROW_GROUP_ROWS,
            compression="none",
            use_dictionary=False,
            write_statistics=[key],
            write_page_checksum=True,
        )
    return OutputFile.plain(name, table.num_rows, file)


def read_range(runs: Sequence[Path], low: int, high: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of all runs with `low <= key < high`, run after run; the key is in `columns`, or they are None."""
    parts: list[pa.Table] = []
    for run in runs:
        with open_parquet(run) as file:
            groups = _groups_of(file.metadata, low, high)
            part = file.read_row_groups(groups, columns=None if columns is None else list(columns), use_threads=False)
        keys = numbers(part.column(0))
        bounds = [np.searchsorted(keys, np.uint64(bound)) if bound < _KEYS else len(keys) for bound in (low, high)]
        parts.append(part.slice(bounds[0], bounds[1] - bounds[0]))
    return pa.concat_tables(parts)


@dataclass(frozen=True)
class KeyRange:
    """The rows of all runs with `low <= key < high`, as a shard of a stage."""

    low: int
    high: int
    runs: tuple[Path, ...]

    @property
    def name(self) -> str:
        return range_name(self.low, self.high)

    @property
    def rows(self) -> int:
        """None of an input: these are runs of our own."""
        return 0

    def table(self) -> pa.Table:
        """The rows, run after run."""
        return read_range(self.runs, self.low, self.high)


def range_name(low: int, high: int) -> str:
    """Names a range, and what is made of it: ranges are in the order of their names."""
    return f"{low:016x}-{high:017x}"


def rows_of(runs: Sequence[Path]) -> int:
    """How many rows runs have together."""
    return sum(pq.read_metadata(run).num_rows for run in runs)


def even_ranges(rows: int, max_rows: int) -> list[tuple[int, int]]:
    """Ranges of keys that are spread evenly, as hashes are, with about `max_rows` of `rows` in each."""
    parts = max(-(-rows // max_rows), 1)
    bounds = [part * _KEYS // parts for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def ranges(runs: Sequence[Path], max_rows: int) -> list[tuple[int, int]]:
    """Ranges of keys with at most about `max_rows` in each, by the bounds of row groups; more only of one key."""
    groups = sorted(group for run in runs for group in _group_bounds(run))
    cuts, rows = [0], 0
    for least, group_rows in groups:
        if rows + group_rows > max_rows and least > cuts[-1]:
            cuts.append(least)
            rows = 0
        rows += group_rows
    return list(zip(cuts, [*cuts[1:], _KEYS], strict=True))


def _group_bounds(run: Path) -> Iterator[tuple[int, int]]:
    metadata = pq.read_metadata(run)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows:
            yield group.column(0).statistics.min, group.num_rows


def _groups_of(metadata: pq.FileMetaData, low: int, high: int) -> list[int]:
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows and group.column(0).statistics.max >= low and group.column(0).statistics.min < high:
            found.append(number)
    return found


_FEW = 24


def sorted_pairs(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Both columns by key, then by value."""
    by = np.argsort(keys)
    keys, values = keys[by], values[by]
    _sort_values(keys, values)
    return keys, values


@compiled
def _sort_values(keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
    """Sorts the values of each run of equal keys."""
    start = 0
    while start < len(keys):
        stop = start + 1
        while stop < len(keys) and keys[stop] == keys[start]:
            stop += 1
        if stop - start > _FEW:
            values[start:stop] = np.sort(values[start:stop])
        else:
            for place in range(start + 1, stop):
                value = values[place]
                while place > start and values[place - 1] > value:
                    values[place] = values[place - 1]
                    place -= 1
                values[place] = value
        start = stop


def distinct_pairs(
    later: NDArray[np.uint64], earlier: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Each pair once, in the order of both."""
    later, earlier = sorted_pairs(later, earlier)
    is_new = np.ones(len(later), bool)
    is_new[1:] = (later[1:] != later[:-1]) | (earlier[1:] != earlier[:-1])
    return later[is_new], earlier[is_new]
