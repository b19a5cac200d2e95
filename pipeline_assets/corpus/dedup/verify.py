"""Pairs → edges, the pairs whose sets of shingles are as alike as the threshold asks.

Sets of those documents that are compared are written once, in the order of the corpus, and read one by one. A file
holds uint64: of each document its id (UTF-8, filled up with zeros), then the hashes of its shingles, each once,
ascending. An index beside it says where each begins. Two different shingles of two documents have one hash with a
probability of 2**-64, so the size of a union or intersection of hashes is that of the sets of shingles.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, OfShard, line_blocks, read_documents
from pipeline_assets.corpus.dedup.order import (
    KeyRange,
    distinct_pairs,
    document_numbers,
    load,
    members_between,
    sorted_pairs,
    write_run,
)
from pipeline_assets.corpus.dedup.sketches import shingle_sets
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.formats.arrow import column_of, no_rows, numbers, strings
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window

SETS = f"{WORK}/sets"
SETS_SUFFIX, INDEX_SUFFIX = ".sets", ".index"
_INDEX = np.dtype([("number", "<u8"), ("offset", "<u8"), ("id_bytes", "<u4"), ("shingles", "<u4")])


@dataclass(frozen=True)
class ComparedShard(OfShard):
    """The documents of one shard that are compared: those in the set `members`; their sets are written to `area`."""

    members: Path
    shingle_words: int
    area: str = SETS


def write_sets(shard: ComparedShard, window: Window, folder: BuildFolder) -> Receipt:
    """The sets of one shard: their file, and its index; no files where no document is compared.

    Counts: `compared` documents.
    """
    corpus_shard = shard.shard
    wanted = members_between(load(shard.members), corpus_shard.first_number, corpus_shard.first_number + shard.rows)
    if not wanted.any():
        return Receipt([], {"compared": 0})
    sets_name, index_name = f"{shard.area}/{shard.name}{SETS_SUFFIX}", f"{shard.area}/{shard.name}{INDEX_SUFFIX}"
    entries: list[tuple[int, int, int, int]] = []
    with DurableFile(folder.path(sets_name)) as file:
        for records in _records(corpus_shard, window, wanted, shard.shingle_words):
            data = []
            offset = file.bytes_written
            for number, doc_id, shingles in records:
                padded = doc_id + bytes(-len(doc_id) % 8)
                entries.append((number, offset, len(doc_id), len(shingles)))
                data += [padded, shingles.tobytes()]
                offset += len(padded) + shingles.nbytes
            file.write(b"".join(data))
    sets = OutputFile.plain(sets_name, len(entries), file)
    with DurableFile(folder.path(index_name)) as file:
        file.write(np.array(entries, _INDEX).tobytes())
    index = OutputFile.plain(index_name, len(entries), file)
    return Receipt([sets, index], {"compared": len(entries)})


_Record = tuple[int, bytes, NDArray[np.uint64]]


def _records(
    shard: CorpusShard, window: Window, wanted: NDArray[np.bool_], shingle_words: int
) -> Iterator[list[_Record]]:
    for lines in line_blocks(shard, window):
        read = read_documents([one for one in lines if one.line is not None and wanted[one.row]], shard)
        batch = normalize([document.text.encode() for _, document in read])
        hashes, offsets = shingle_sets(batch.word_hashes, batch.first_words, shingle_words)
        yield [
            (shard.first_number + row, document.doc_id.encode(), hashes[start:stop])
            for (row, document), (start, stop) in zip(read, itertools.pairwise(offsets.tolist()), strict=True)
        ]


class Fetched(NamedTuple):
    """Sets of some documents.

    Attributes:
        doc_ids: of each.
        hashes: all their shingles, uint64.
        offsets: of each in `hashes`, and after the last the number of hashes; int64.
    """

    doc_ids: list[str]
    hashes: NDArray[np.uint64]
    offsets: NDArray[np.int64]


class SetsFile(NamedTuple):
    """Sets of one shard, and the entries of their index; `offset` is added to the numbers there."""

    offset: int
    sets: Path
    entries: Path


class ShingleSets:
    """Sets of a whole corpus, by the numbers of documents. Holds no more of them in memory than are asked for."""

    def __init__(self, files: Sequence[SetsFile]) -> None:
        """
        Args:
            files: in the order of their documents.
        """
        self._offsets = [np.uint64(file.offset) for file in files]
        self._descriptors = [os.open(file.sets, os.O_RDONLY) for file in files]
        self._indices = [np.memmap(file.entries, _INDEX, "r") for file in files]
        firsts = [index["number"][0] + offset for index, offset in zip(self._indices, self._offsets, strict=True)]
        self._firsts = np.array(firsts, np.uint64)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def sizes(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """How many shingles each document has; numbers ascend."""
        return np.concatenate([np.empty(0, np.int64), *(found["shingles"] for _, found in self._entries(numbers))])

    def fetch(self, numbers: NDArray[np.uint64]) -> Fetched:
        """The sets of documents, whose numbers ascend."""
        doc_ids, parts = [], []
        for shard, found in self._entries(numbers):
            for _, offset, id_bytes, shingles in found.tolist():
                skipped = -(-id_bytes // 8) * 8
                record = os.pread(self._descriptors[shard], skipped + 8 * shingles, offset)
                doc_ids.append(record[:id_bytes].decode())
                parts.append(np.frombuffer(record, np.uint64, shingles, skipped))
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
        return Fetched(doc_ids, np.concatenate([np.empty(0, np.uint64), *parts]), offsets)

    def _entries(self, numbers: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.void]]]:
        """(shard, its entries in the index) of documents."""
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1
        for shard in np.unique(owners).tolist():
            index, own = self._indices[shard], numbers[owners == shard] - self._offsets[shard]
            yield shard, index[np.searchsorted(index["number"], own)]


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
class PairRange(KeyRange):
    """A range of pairs by their later document, of all runs of pairs.

    Attributes:
        sets: as `ShingleSets` takes them.
        threshold: of Jaccard similarity, as a decimal.
        fetched_shingles: how many are held in memory at a time, about.
        max_compared: each later document is compared to so many others, the first; None for all.
    """

    sets: tuple[SetsFile, ...]
    threshold: str
    fetched_shingles: int
    max_compared: int | None


def verify_pairs(shard: PairRange, window: Window, folder: BuildFolder) -> Receipt:
    """The range's edges.

    Files: a run of edges, see `EDGE_SCHEMA`: orders and ids of the later document and of the other, how many shingles
    they share and how many each has; by `later`, then `earlier`. Counts: `pairs` compared, `edges`; `capped_documents`,
    which had more pairs than are compared.
    """
    table = shard.table()
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
