"""The stage `verify`: pairs → edges, the pairs whose sets of shingles are as alike as the threshold asks."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.dedup.candidates import distinct_pairs
from pipeline_assets.corpus.dedup.order import document_numbers
from pipeline_assets.corpus.dedup.pairs_of_keys import sorted_pairs
from pipeline_assets.corpus.dedup.shingle_sets import Fetched, SetsFile, ShingleSets
from pipeline_assets.corpus.dedup.sorted_runs import read_range, write_run
from pipeline_assets.corpus.formats.arrow import column_of, no_rows, numbers, strings
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window

EDGES = f"{WORK}/edges"
_EMPTY, _ONE = np.uint64(0), np.uint64(1)  # no hash is 0
EDGE_SCHEMA = pa.schema(
    [
        pa.field("later", pa.uint64(), nullable=False),
        pa.field("earlier", pa.uint64(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("other_doc_id", pa.string(), nullable=False),
        pa.field("shared", pa.int64(), nullable=False),
        pa.field("shingles", pa.int64(), nullable=False),
        pa.field("other_shingles", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class PairRange:
    """A range of pairs by their later document, of all runs of pairs.

    Attributes:
        sets: as `ShingleSets` takes them.
        threshold: of Jaccard similarity, as a decimal.
        fetched_shingles: how many are held in memory at a time, about.
        max_compared: each later document is compared to so many others, the first; None for all.
    """

    name: str
    low: int
    high: int
    runs: tuple[Path, ...]
    sets: tuple[SetsFile, ...]
    threshold: str
    fetched_shingles: int
    max_compared: int | None
    rows: int = 0


def verify_pairs(shard: PairRange, window: Window, folder: BuildFolder) -> Receipt:
    """The range's edges.

    Files: a run of edges, see `EDGE_SCHEMA`: orders and ids of the later document and of the other, how many shingles
    they share and how many each has; by `later`, then `earlier`. Counts: `pairs` compared, `edges`; `capped_documents`,
    which had more pairs than are compared.
    """
    table = read_range(shard.runs, shard.low, shard.high)
    later, earlier = distinct_pairs(numbers(table["later"]), numbers(table["earlier"]))
    del table
    ranks = np.arange(len(later)) - np.searchsorted(later, later)
    capped = 0
    if shard.max_compared is not None:
        capped = int((ranks == shard.max_compared).sum())
        later, earlier = later[ranks < shard.max_compared], earlier[ranks < shard.max_compared]
    threshold = Fraction(shard.threshold)
    parts = [no_rows(EDGE_SCHEMA)]
    sets = ShingleSets(shard.sets)
    try:
        for start, stop in _blocks(later, earlier, sets, shard.fetched_shingles):
            parts.append(_edges(later[start:stop], earlier[start:stop], sets, threshold))
    finally:
        sets.close()
    edges = pa.concat_tables(parts).combine_chunks()
    name = f"{EDGES}/{shard.name}.parquet"
    return Receipt(
        [write_run(folder.path(name), name, edges)],
        {"pairs": len(later), "edges": edges.num_rows, "capped_documents": capped},
    )


def load_kernels() -> None:
    """Loads the compiled code that `verify_pairs` needs."""
    hashes, offsets, pair = np.ones(1, np.uint64), np.array([0, 1]), np.zeros(1, np.int64)
    sorted_pairs(hashes, hashes.copy())
    _intersect(hashes, offsets, pair, pair, 1.0, np.empty(4, np.uint64), np.empty(1, np.int64))


def _blocks(
    later: NDArray[np.uint64], earlier: NDArray[np.uint64], sets: ShingleSets, most: int
) -> Iterator[tuple[int, int]]:
    """Spans of pairs whose sets fit into memory together; of one pair, if that doesn't."""
    step = 1 << 16
    start = 0
    while start < len(later):
        stop = min(start + step, len(later))
        while stop - start > 1 and int(sets.sizes(_both(later[start:stop], earlier[start:stop])).sum()) > most:
            stop = start + (stop - start) // 2
        yield start, stop
        start = stop


def _both(later: NDArray[np.uint64], earlier: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.unique(document_numbers(np.concatenate([later, earlier])))


def _edges(later: NDArray[np.uint64], earlier: NDArray[np.uint64], sets: ShingleSets, threshold: Fraction) -> pa.Table:
    documents = _both(later, earlier)
    fetched = sets.fetch(documents)
    left = np.searchsorted(documents, document_numbers(later))
    right = np.searchsorted(documents, document_numbers(earlier))
    shared = np.empty(len(later), np.int64)
    sizes = np.diff(fetched.offsets)
    table = np.empty(1 << (4 * int(sizes.max(initial=1))).bit_length(), np.uint64)
    _intersect(fetched.hashes, fetched.offsets, left, right, float(threshold), table, shared)
    union = sizes[left] + sizes[right] - shared
    is_edge = shared * threshold.denominator >= union * threshold.numerator
    return _table(later, earlier, shared, left, right, fetched, np.flatnonzero(is_edge))


def _table(
    later: NDArray[np.uint64],
    earlier: NDArray[np.uint64],
    shared: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    fetched: Fetched,
    rows: NDArray[np.int64],
) -> pa.Table:
    ids, sizes = strings(fetched.doc_ids), np.diff(fetched.offsets)
    columns = [
        column_of(later[rows]),
        column_of(earlier[rows]),
        ids.take(column_of(left[rows])),
        ids.take(column_of(right[rows])),
        column_of(shared[rows]),
        column_of(sizes[left[rows]]),
        column_of(sizes[right[rows]]),
    ]
    return pa.Table.from_arrays(columns, schema=EDGE_SCHEMA)


@compiled
def _intersect(
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    threshold: float,
    table: NDArray[np.uint64],
    shared: NDArray[np.int64],
) -> None:
    """How many hashes each pair of sets shares; less than that, where so many are known to be missing that the pair
    is below the threshold.

    The left set of several pairs in a row is put into a hash table once, and the right ones are looked up in it.

    Args:
        table: room for four times the largest set, a power of two.
    """
    last = -1
    mask = np.uint64(0)
    for pair in range(len(left)):
        own = hashes[offsets[left[pair]] : offsets[left[pair] + 1]]
        other = hashes[offsets[right[pair]] : offsets[right[pair] + 1]]
        if left[pair] != last:
            last = left[pair]
            mask = _tabulate(own, table)
        fewest = np.int64(threshold * (len(own) + len(other)) / (1 + threshold)) - 1  # rounding never costs an edge
        common = 0
        for start in range(0, len(other), 64):
            if common + min(len(own), len(other) - start) < fewest:
                break
            for place in range(start, min(start + 64, len(other))):
                key = other[place]
                slot = key & mask
                found = table[slot]
                while found != key and found != _EMPTY:
                    slot = (slot + _ONE) & mask
                    found = table[slot]
                common += found == key
        shared[pair] = common


@inner
def _tabulate(own: NDArray[np.uint64], table: NDArray[np.uint64]) -> np.uint64:
    """Puts a set into the table, which is emptied as far as it is needed; the mask of its slots."""
    size = 4
    while size < 4 * len(own):
        size <<= 1
    table[:size] = _EMPTY
    mask = np.uint64(size - 1)
    for key in own:
        slot = key & mask
        while table[slot] != _EMPTY:
            slot = (slot + _ONE) & mask
        table[slot] = key
    return mask
