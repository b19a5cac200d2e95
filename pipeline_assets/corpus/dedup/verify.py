"""Pairs → edges, the pairs whose sets of shingles are as alike as the threshold asks.

Sets of those documents that are compared are written once, in the order of the corpus, and read one by one. A file
holds uint64: of each document its id (UTF-8, filled up with zeros), then the hashes of its shingles, each once,
ascending. An index beside it says where each begins. Two different shingles of two documents have one hash with a
probability of 2**-64, so the size of a union or intersection of hashes is that of the sets of shingles.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup import steps
from pipeline_assets.corpus.dedup.recipe import NearRecipe
from pipeline_assets.corpus.dedup.sketches import shingle_sets
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.document import RAW_DOCUMENTS
from pipeline_assets.corpus.document_shards import decode, read_lines
from pipeline_assets.corpus.formats.arrow_columns import numbers, strings, to_array, to_table
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.stage import Task, Window
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

_SETS, _EDGES, _COMPARED = f"{WORK}/sets", f"{WORK}/edges", f"{WORK}/compared.set"
_PAIR_BYTES = 250  # of memory for a row: as read, as sorted, as written
_SHINGLE_BYTES = 24  # in a set as it is read, and with others in one array
_SETS_SHARE = 2  # sets may have half of a worker's memory
_INDEX = np.dtype([("number", "<u8"), ("offset", "<u8"), ("id_bytes", "<u4"), ("shingles", "<u4")])


def find_edges(
    dedup: steps.DedupRun, proposed: Sequence[Receipt], recipe: NearRecipe
) -> tuple[list[Receipt], list[Receipt]]:
    """Receipts of `write_sets`, one a shard, and of `verify_pairs`, in the order of their ranges."""
    pairs = dedup.runs(proposed)
    compared = steps.save(dedup.documents_in(pairs, "later", "earlier"), dedup.building.path(_COMPARED))
    words = recipe.proposer.shingle_words
    written = dedup.run(
        "shingle", (Task.for_kernel(write_sets, shard, compared, words, _SETS) for shard in dedup.shards)
    )
    own = [steps.SetsFile(0, *dedup.runs([receipt])) for receipt in written if receipt.files]
    sets = (*(file for store in dedup.seen for file in store.sets), *own)
    for_sets = dedup.share_bytes // _SETS_SHARE
    rules = (sets, recipe.threshold, for_sets // _SHINGLE_BYTES, recipe.max_compared if recipe.faiss else None)
    by_later = steps.ranges(
        pairs, min(for_sets // _PAIR_BYTES, -(-steps.total_rows(pairs) // steps.parts(dedup.settings)))
    )
    return written, dedup.run("verify", (Task.for_kernel(verify_pairs, one, *rules) for one in by_later))


def write_sets(
    shard: CorpusShard, members: Path, shingle_words: int, area: str, window: Window, folder: StagingView
) -> Receipt:
    """The sets of those documents of a shard that are in the set `members`: their file, and its index, both in `area`;
    no files where there is no such document.

    Counts: `compared` documents.
    """
    own = np.arange(shard.first_number, shard.first_number + shard.rows, dtype=np.uint64)
    wanted = steps.bitmap_contains(own, steps.load(members))
    if not wanted.any():
        return Receipt([], {"compared": 0})
    sets_name, index_name = f"{area}/{shard.name}{steps.SETS_SUFFIX}", f"{area}/{shard.name}{steps.INDEX_SUFFIX}"
    entries: list[tuple[int, int, int, int]] = []
    with DurableFile(folder.path(sets_name)) as file:
        for block in read_lines(shard, window):
            lines = [one for one in block.lines if wanted[one.row]]
            documents = decode(lines, shard, RAW_DOCUMENTS)
            batch = normalize([document.text.encode() for document in documents])
            hashes, offsets = shingle_sets(batch, shingle_words)
            data: list[bytes] = []
            offset = file.bytes_written
            spans = itertools.pairwise(offsets.tolist())
            for (row, _), document, (start, stop) in zip(lines, documents, spans, strict=True):
                doc_id = document.doc_id.encode()
                entries.append((shard.first_number + row, offset, len(doc_id), stop - start))
                data += [doc_id + bytes(-len(doc_id) % 8), hashes[start:stop].tobytes()]
                offset += len(data[-2]) + len(data[-1])
            file.write(b"".join(data))
    sets = OutputFile.plain(sets_name, len(entries), file)
    with DurableFile(folder.path(index_name)) as file:
        file.write(np.array(entries, _INDEX).tobytes())
    index = OutputFile.plain(index_name, len(entries), file)
    return Receipt([sets, index], {"compared": len(entries)})


class ShingleSets:
    """Sets of a whole corpus, by the numbers of documents, of files in this order. Holds no more of them in memory than
    are asked for.
    """

    def __init__(self, files: Sequence[steps.SetsFile]) -> None:
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

    def fetch(self, numbers: NDArray[np.uint64]) -> tuple[list[str], NDArray[np.uint64], NDArray[np.int64]]:
        """Ids of documents, whose numbers ascend, and the hashes of all their shingles; where those of each document
        begin, and after the last how many there are.
        """
        doc_ids, parts = [], []
        for shard, found in self._entries(numbers):
            for _, offset, id_bytes, shingles in found.tolist():
                skipped = -(-id_bytes // 8) * 8
                record = os.pread(self._descriptors[shard], skipped + 8 * shingles, offset)
                doc_ids.append(record[:id_bytes].decode())
                parts.append(np.frombuffer(record, np.uint64, shingles, skipped))
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
        return doc_ids, np.concatenate([np.empty(0, np.uint64), *parts]), offsets

    def _entries(self, numbers: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.void]]]:
        """(shard, its entries in the index) of documents."""
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1
        for shard in np.unique(owners).tolist():
            index, own = self._indices[shard], numbers[owners == shard] - self._offsets[shard]
            yield shard, index[np.searchsorted(index["number"], own)]


def verify_pairs(
    pairs: steps.KeyRange,
    sets: Sequence[steps.SetsFile],
    threshold: str,
    fetched_shingles: int,
    max_compared: int | None,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """The edges among pairs, a range of them by their later document.

    Files: a run of edges by `later`, then `earlier`, orders of two documents: `doc_id` and `other_doc_id`, `shared`,
    how many shingles they share, `shingles` and `other_shingles`, how many each has. Counts: `pairs` compared, `edges`;
    `capped_documents`, which had more pairs than are compared.

    Args:
        threshold: of Jaccard similarity, as a decimal.
        fetched_shingles: how many are held in memory at a time, about.
        max_compared: each later document is compared to so many others, the first; None for all.
    """
    table = pairs.table()
    compared = steps.distinct_pairs(np.stack([numbers(table["later"]), numbers(table["earlier"])]))
    del table
    capped = 0
    if max_compared is not None:
        ranks = np.arange(compared.shape[1]) - np.searchsorted(compared[0], compared[0])
        capped = int((ranks == max_compared).sum())
        compared = compared[:, ranks < max_compared]
    with contextlib.closing(ShingleSets(sets)) as opened:
        edges = pa.concat_tables(
            _edges(block, opened, Fraction(threshold)) for block in _blocks(compared, opened, fetched_shingles)
        ).combine_chunks()
    counts = {"pairs": compared.shape[1], "edges": edges.num_rows, "capped_documents": capped}
    return Receipt([steps.write_run(folder, f"{_EDGES}/{pairs.name}.parquet", edges)], counts)


def load_kernels() -> None:
    """Loads the compiled code that `verify_pairs` needs."""
    pair = np.zeros(1, np.int64)
    _count_shared(np.ones(1, np.uint64), np.array([0, 1]), pair, pair, np.empty(1, np.int64))


def _blocks(pairs: NDArray[np.uint64], sets: ShingleSets, most: int) -> Iterator[NDArray[np.uint64]]:
    """Pairs, as many as have sets that fit into memory together; one pair, if that doesn't; an empty block of none."""
    start = 0
    while start < pairs.shape[1] or not start:
        block = pairs[:, start : start + (1 << 16)]
        while block.shape[1] > 1 and int(sets.sizes(_read_documents(block)).sum()) > most:
            block = block[:, : block.shape[1] // 2]
        yield block
        start += max(block.shape[1], 1)


def _read_documents(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.unique(steps.document_numbers(pairs))


def _edges(pairs: NDArray[np.uint64], sets: ShingleSets, threshold: Fraction) -> pa.Table:
    documents = _read_documents(pairs)
    ids, hashes, offsets = sets.fetch(documents)
    left, right = np.searchsorted(documents, steps.document_numbers(pairs))
    shared = np.empty(len(left), np.int64)
    sizes = np.diff(offsets)
    _count_shared(hashes, offsets, left, right, shared)
    union = sizes[left] + sizes[right] - shared
    is_edge = shared * threshold.denominator >= union * threshold.numerator
    (later, earlier), left, right, doc_ids = pairs[:, is_edge], left[is_edge], right[is_edge], strings(ids)
    return to_table(
        {
            "later": later,
            "earlier": earlier,
            "doc_id": doc_ids.take(to_array(left)),
            "other_doc_id": doc_ids.take(to_array(right)),
            "shared": shared[is_edge],
            "shingles": sizes[left],
            "other_shingles": sizes[right],
        }
    )


@compiled
def _count_shared(
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    shared: NDArray[np.int64],
) -> None:
    """How many hashes each pair of sets shares. Both ascend; no step has a branch that a processor would guess."""
    for pair in range(len(left)):
        at, end = offsets[left[pair]], offsets[left[pair] + 1]
        other, other_end = offsets[right[pair]], offsets[right[pair] + 1]
        common = 0
        while at < end and other < other_end:
            own, its = hashes[at], hashes[other]
            common += own == its
            at += own <= its
            other += its <= own
        shared[pair] = common
