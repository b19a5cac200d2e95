"""Verification of proposed pairs by the Jaccard similarity of their shingles.

An edge is a pair whose similarity reaches the threshold. A file of shingle sets has a record for each compared
document, in the order of the corpus: the id in UTF-8, padded with zeros to a multiple of 8 bytes, then the distinct
hashes of the shingles as ascending uint64. An index file has each document's number, the offset of its record, the size
of its id in bytes, and the number of its shingles. `join_indices` joins the indices of all shards, so that a task opens
few files. Hashes are compared instead of shingles: two different shingles have equal hashes with a probability of
2**-64.
"""

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.bitmap import bitmap_contains
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in, min_tasks, worker_bytes
from pipeline_assets.corpus.dedup.document_order import document_numbers
from pipeline_assets.corpus.dedup.minhash import shingle_sets
from pipeline_assets.corpus.dedup.recipe import NearRecipe
from pipeline_assets.corpus.dedup.signature_store import INDEX_SUFFIX, SETS_SUFFIX, ShingleSetFiles
from pipeline_assets.corpus.dedup.sorted_runs import KeyRange, distinct_pairs, divide_keys, write_run
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.document_lines import decode_lines, read_lines
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_arrow, to_numpy, to_table
from pipeline_assets.corpus.partial_documents import RAW_DECODER
from pipeline_assets.spine.damage import damaged_file_error, errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView
from pipeline_assets.spine.task import Task

_SETS_FOLDER, _EDGES_FOLDER = f"{WORK_FOLDER}/sets", f"{WORK_FOLDER}/edges"
_JOINT_INDEX_FILE = f"{WORK_FOLDER}/sets.index"
_PAIR_ROW_BYTES = 250  # memory per row, with its sorted and its written copy
_SHINGLE_BYTES = 24  # memory per shingle, with its copy in the array of all sets
_INDEX_DTYPE = np.dtype([("number", "<u8"), ("offset", "<u8"), ("id_bytes", "<u4"), ("shingles", "<u4")])


def find_edges(dedup: DedupRun, receipts: Sequence[Receipt], recipe: NearRecipe) -> tuple[list[Receipt], list[Receipt]]:
    """Verify proposed pairs; return the receipts of `write_sets` and `verify_pairs`.

    `receipts` list the files with the proposed pairs.
    """
    pair_runs = files_in(receipts)
    compared = dedup.document_bitmap(pair_runs, "later", "earlier")
    to_write = []
    for shard in dedup.shards:
        numbers = np.arange(shard.first_number, shard.first_number + shard.rows, dtype=np.uint64)
        bits = np.packbits(bitmap_contains(numbers, compared)).tobytes()
        to_write.append(Task.bind(write_sets, shard.unnumbered, bits, recipe.proposer.shingle_words, _SETS_FOLDER))
    set_receipts = dedup.run_tasks("shingle", to_write)
    corpus_files = [
        ShingleSetFiles(shard.first_number, *(dedup.staging.path(file.path) for file in receipt.files))
        for shard, receipt in zip(dedup.shards, set_receipts, strict=True)
        if receipt.files
    ]
    seen = (files for store in dedup.seen_stores for files in store.set_files)
    sets_index = join_indices([*seen, *corpus_files], dedup.staging.path(_JOINT_INDEX_FILE))
    sets_bytes = worker_bytes(dedup.settings) // 2  # the other half is for pairs and their results
    common = (sets_index, recipe.threshold, sets_bytes // _SHINGLE_BYTES, recipe.max_compared if recipe.faiss else None)
    task_rows = -(-sum(run.rows for run in pair_runs) // min_tasks(dedup.settings))
    by_later = divide_keys(dedup.staging, pair_runs, max(min(sets_bytes // _PAIR_ROW_BYTES, task_rows), 1))
    to_verify = (Task.bind(verify_pairs, key_range, *common) for key_range in by_later)
    return set_receipts, dedup.run_tasks("edges", to_verify)


def write_sets(
    shard: CorpusShard, member_bits: bytes, shingle_words: int, sets_folder: str, window: Window, folder: StagingView
) -> Receipt:
    """Write the shingle sets of the documents whose bits are set in `member_bits`.

    The first document has the highest bit of the first byte. The sets and their index are written to `sets_folder` if
    any bit is set. The receipt counts the written documents as `compared`.
    """
    is_compared = np.unpackbits(np.frombuffer(member_bits, np.uint8), count=shard.rows).astype(np.bool_)
    if not is_compared.any():
        return Receipt([], {"compared": 0})
    stem = f"{sets_folder}/{shard.name}"
    sets_name, index_name = f"{stem}{SETS_SUFFIX}", f"{stem}{INDEX_SUFFIX}"
    entries: list[tuple[int, int, int, int]] = []
    with DurableFile(folder.path(sets_name)) as file:
        for block in read_lines(shard, window):
            lines = [line for line in block.lines if is_compared[line.row]]
            documents = decode_lines(lines, shard, RAW_DECODER)
            batch = normalize([document.text.encode() for document in documents])
            hashes, offsets = shingle_sets(batch, shingle_words)
            data: list[bytes] = []
            offset = file.bytes_written
            spans = itertools.pairwise(offsets.tolist())
            for (row, _), document, (start, stop) in zip(lines, documents, spans, strict=True):
                doc_id = document.doc_id.encode()
                entries.append((shard.first_number + row, offset, len(doc_id), stop - start))
                data += [doc_id + bytes(-len(doc_id) % 8), hashes[start:stop].tobytes()]  # pad to a multiple of 8
                offset += len(data[-2]) + len(data[-1])
            file.write(b"".join(data))
    sets = OutputFile.uncompressed(sets_name, len(entries), file)
    index = folder.write(index_name, np.array(entries, _INDEX_DTYPE).tobytes(), len(entries))
    return Receipt([sets, index], {"compared": len(entries)})


def join_indices(files: Sequence[ShingleSetFiles], path: Path) -> Path:
    """Join the indices of shingle sets into one index at `path`, and return `path`.

    `files` must be in the order of their documents. The first line of the joint index lists each file of sets with the
    number of its first document; the entries of all shards follow. Raise InputError if the index of a shard is damaged.
    """
    firsts = [int(_read_index(shard.index_file, 1)["number"][0]) + shard.first_number for shard in files]
    header = json.dumps([(str(shard.sets_file), first) for shard, first in zip(files, firsts, strict=True)]).encode()
    with DurableFile(path) as file:
        file.write(header + b" " * (-(len(header) + 1) % 8) + b"\n")  # aligns the entries, to search them in place
        for shard in files:
            entries = _read_index(shard.index_file)
            entries["number"] += np.uint64(shard.first_number)
            file.write(entries.view(np.uint8).data)
    return path


def _read_index(path: Path, count: int = -1) -> NDArray[np.void]:
    """Read the first `count` entries of a shard's index, or all if `count` is -1.

    Raise InputError if the file has no entry or ends within one.
    """
    entries = np.fromfile(path, _INDEX_DTYPE, count)
    if not len(entries) or path.stat().st_size % _INDEX_DTYPE.itemsize:
        raise damaged_file_error("not a valid index of shingle sets: it ends early", path)
    return entries


class ShingleSets:
    """Reader of all shingle sets that an index of `join_indices` lists.

    The constructor and `fetch` raise InputError if a file is damaged.
    """

    def __init__(self, index: Path) -> None:
        with open(index, "rb") as file, errors_as_damage(index, "index of shingle sets"):
            files = json.loads(file.readline())
            self._index = np.memmap(file, _INDEX_DTYPE, "r", file.tell()) if files else np.empty(0, _INDEX_DTYPE)
        self._paths = [path for path, _ in files]
        self._firsts = np.array([first for _, first in files], np.uint64)

    def sizes(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the number of distinct shingles of each document in `numbers`."""
        return self._find_entries(numbers)["shingles"].astype(np.int64)

    def fetch(self, numbers: NDArray[np.uint64]) -> tuple[list[str], NDArray[np.uint64], NDArray[np.int64]]:
        """Read the shingle sets of documents; `numbers` must ascend.

        Returns:
            Ids of the documents; hashes of their shingles, set after set; offsets of the sets in the hashes, shape
            (documents + 1,).
        """
        doc_ids, parts = [], []
        entries = self._find_entries(numbers)
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1  # the last file that begins at or before it
        for owner in np.unique(owners).tolist():
            with open(self._paths[owner], "rb", buffering=0) as file:
                for _, offset, id_bytes, shingles in entries[owners == owner].tolist():
                    padded_id_bytes = -(-id_bytes // 8) * 8  # rounded up to a multiple of 8
                    size = padded_id_bytes + 8 * shingles
                    with errors_as_damage(Path(self._paths[owner]), "file of shingle sets"):
                        if offset + size > os.fstat(file.fileno()).st_size:
                            raise ValueError("the file ends early")
                        record = os.pread(file.fileno(), size, offset)
                        doc_ids.append(record[:id_bytes].decode())
                        parts.append(np.frombuffer(record, np.uint64, shingles, padded_id_bytes))
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
        return doc_ids, np.concatenate([np.empty(0, np.uint64), *parts]), offsets

    def _find_entries(self, numbers: NDArray[np.uint64]) -> NDArray[np.void]:
        return np.array(self._index[np.searchsorted(self._index["number"], numbers)])


def verify_pairs(
    key_range: KeyRange,
    sets_index: Path,
    threshold: str,
    max_shingles: int,
    max_compared: int | None,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Find the edges (similarity of at least `threshold`) in a range of pairs.

    A document may have pairs with many earlier documents. Only its first `max_compared` pairs, in the order of
    priorities, are compared; None sets no limit. About `max_shingles` shingles are in memory at a time.

    The file is a run of edges, sorted by the priorities `later` and `earlier` of the two documents. `doc_id` and
    `shingles` are the id and the set size of the later document; `other_doc_id` and `other_shingles` describe the
    earlier one. `shared` is the size of the intersection. The receipt counts compared pairs as `pairs`, edges as
    `edges`, and documents with more than `max_compared` pairs as `capped_documents`.
    """
    table = key_range.table()
    compared = distinct_pairs(np.stack([to_numpy(table["later"]), to_numpy(table["earlier"])]))
    del table
    capped = 0
    if max_compared is not None:
        # Rank of each pair among its later document's pairs: later documents ascend, so the search finds their start.
        ranks = np.arange(compared.shape[1]) - np.searchsorted(compared[0], compared[0])
        capped = int((ranks == max_compared).sum())
        compared = compared[:, ranks < max_compared]
    sets = ShingleSets(sets_index)
    edges = pa.concat_tables(
        _verify_block(block, sets, Fraction(threshold)) for block in _split_blocks(compared, sets, max_shingles)
    ).combine_chunks()
    counts = {"pairs": compared.shape[1], "edges": edges.num_rows, "capped_documents": capped}
    return Receipt([write_run(folder, f"{_EDGES_FOLDER}/{key_range.name}.run", edges)], counts)


def load_kernels() -> None:
    """Load the compiled code of `verify_pairs` into this process."""
    pair = np.zeros(1, np.int64)
    _fill_intersection_sizes(np.ones(1, np.uint64), np.array([0, 1]), pair, pair, np.empty(1, np.int64))


def _split_blocks(pairs: NDArray[np.uint64], sets: ShingleSets, max_shingles: int) -> Iterator[NDArray[np.uint64]]:
    """Yield blocks of pairs whose sets together have at most `max_shingles` shingles.

    A block has at most 65,536 pairs. A pair with more than `max_shingles` is a block of its own. Without pairs, yield
    one empty block.
    """
    start = 0
    while start < pairs.shape[1] or not start:
        block = pairs[:, start : start + (1 << 16)]
        while block.shape[1] > 1 and int(sets.sizes(np.unique(document_numbers(block))).sum()) > max_shingles:
            block = block[:, : block.shape[1] // 2]
        yield block
        start += max(block.shape[1], 1)


def _verify_block(pairs: NDArray[np.uint64], sets: ShingleSets, threshold: Fraction) -> pa.Table:
    documents = np.unique(document_numbers(pairs))
    ids, hashes, offsets = sets.fetch(documents)
    later_sets, earlier_sets = np.searchsorted(documents, document_numbers(pairs))
    shared = np.empty(len(later_sets), np.int64)
    sizes = np.diff(offsets)
    _fill_intersection_sizes(hashes, offsets, later_sets, earlier_sets, shared)
    union = sizes[later_sets] + sizes[earlier_sets] - shared
    is_edge = shared * threshold.denominator >= union * threshold.numerator  # shared / union >= threshold, in integers
    later, earlier = pairs[:, is_edge]
    later_sets, earlier_sets, doc_ids = later_sets[is_edge], earlier_sets[is_edge], string_column(ids)
    return to_table(
        {
            "later": later,
            "earlier": earlier,
            "doc_id": doc_ids.take(to_arrow(later_sets)),
            "other_doc_id": doc_ids.take(to_arrow(earlier_sets)),
            "shared": shared[is_edge],
            "shingles": sizes[later_sets],
            "other_shingles": sizes[earlier_sets],
        }
    )


@compiled
def _fill_intersection_sizes(
    hashes: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    first_sets: NDArray[np.int64],
    second_sets: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> None:
    """Fill `sizes` with the number of common hashes of each pair of ascending sets."""
    for pair in range(len(first_sets)):
        at, end = offsets[first_sets[pair]], offsets[first_sets[pair] + 1]
        other, other_end = offsets[second_sets[pair]], offsets[second_sets[pair] + 1]
        common = 0
        while at < end and other < other_end:
            first_hash, second_hash = hashes[at], hashes[other]
            common += first_hash == second_hash
            # Advance past the smaller hash, or past both if they are equal, without a branch to predict.
            at += first_hash <= second_hash
            other += second_hash <= first_hash
        sizes[pair] = common
