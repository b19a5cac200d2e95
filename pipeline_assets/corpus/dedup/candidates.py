"""Proposal of document pairs to compare, by bands or by binary sketches."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.bitmap import bitmap_contains, load_bitmap
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in
from pipeline_assets.corpus.dedup.document_order import is_from_seen_corpus
from pipeline_assets.corpus.dedup.exact_copies import ExactCopies, divide_keys_by_memory
from pipeline_assets.corpus.dedup.neighbours import neighbour_tasks
from pipeline_assets.corpus.dedup.recipe import NearRecipe
from pipeline_assets.corpus.dedup.signature_store import SeenRuns, read_with_seen_rows
from pipeline_assets.corpus.dedup.sketches import BANDS_WORK_FOLDER, BITS_WORK_FOLDER
from pipeline_assets.corpus.dedup.sorted_runs import RUN_PAIRS, KeyRange, is_first_in_group, sorted_pairs, write_pairs
from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView
from pipeline_assets.spine.task import Task

_BAND_ROW_BYTES = 120  # memory per row, with its sorted and its written copy


def propose_corpus_pairs(
    dedup: DedupRun, sketch_receipts: Sequence[Receipt], recipe: NearRecipe, exact_copies: ExactCopies
) -> list[Receipt]:
    """Write the proposed pairs as sorted runs, and return the receipts of the tasks."""
    if recipe.faiss is not None:
        sketch_runs = files_in(sketch_receipts, BITS_WORK_FOLDER)
        tasks = neighbour_tasks(dedup, sketch_runs, recipe.faiss, recipe.max_compared, exact_copies)
    else:
        seen_runs = tuple(store.bands for store in dedup.seen_stores)
        bands = divide_keys_by_memory(dedup, files_in(sketch_receipts, BANDS_WORK_FOLDER), seen_runs, _BAND_ROW_BYTES)
        common = (seen_runs, exact_copies.bitmap_file, recipe.max_compared)
        tasks = [Task.bind(propose_band_pairs, key_range, *common) for key_range in bands]
    return dedup.run_tasks("pairs", tasks)


def propose_band_pairs(
    key_range: KeyRange,
    seen_runs: Sequence[SeenRuns],
    copies_file: Path,
    max_compared: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Pair the documents that share a band key of the range.

    A bucket has all documents with the same key, in the order of their priorities. The first `max_compared` documents
    of a bucket are paired with each later document of the bucket. Documents in the bitmap file `copies_file` are
    skipped. Documents of signature stores are not paired with each other.

    The files are runs of pairs, sorted by `later` and `earlier`, the priorities of both documents; several runs may
    have the same pair. The receipt counts pairs as `proposed`, once per common key. It counts buckets of at least two
    documents as `buckets`, and those of more than `max_compared` + 1 documents as `capped_buckets`.
    """
    if key_range.high - key_range.low == 1:  # a single key, whose rows may exceed the memory
        return _propose_in_bucket(key_range, seen_runs, copies_file, max_compared, folder)
    table = read_with_seen_rows(key_range, seen_runs)
    keys, priorities = to_numpy(table["key"]), to_numpy(table["order"])
    is_kept = ~bitmap_contains(priorities, load_bitmap(copies_file))
    keys, priorities = sorted_pairs(keys[is_kept], priorities[is_kept])
    is_new = is_first_in_group(keys)
    rows = np.arange(len(keys))
    # First row of each row's bucket: rows ascend, so the running maximum is the latest row with a new key.
    starts = np.maximum.accumulate(np.where(is_new, rows, 0))
    # Number of rows to pair each row with: the rows of its bucket before it, up to the cap.
    compared = np.where(is_from_seen_corpus(priorities), 0, np.minimum(rows - starts, max_compared))
    files: list[OutputFile] = []
    for first, stop in _pair_spans(compared):
        later, pair_counts = priorities[first:stop], compared[first:stop]
        # Number the pairs row after row: the pairs of a row begin at number b = cumsum - count. Pair p is with the row
        # `start + (p - b)`, so `start - b` is repeated for each pair and p is added.
        bucket_offsets = np.repeat(starts[first:stop] - np.cumsum(pair_counts) + pair_counts, pair_counts)
        pairs = np.stack((np.repeat(later, pair_counts), priorities[bucket_offsets + np.arange(len(bucket_offsets))]))
        files.append(write_pairs(folder, f"{key_range.name}-{len(files):05d}", pairs))
    sizes = np.diff(np.append(np.flatnonzero(is_new), len(keys)))  # documents of each bucket
    capped = int((sizes > max_compared + 1).sum())
    counts = {"buckets": int((sizes > 1).sum()), "capped_buckets": capped, "proposed": int(compared.sum())}
    return Receipt(files, counts)


def _propose_in_bucket(
    key_range: KeyRange, seen_runs: Sequence[SeenRuns], copies_file: Path, max_compared: int, folder: StagingView
) -> Receipt:
    """Pair documents like `propose_band_pairs`, with only one run in memory at a time."""

    def blocks() -> Iterator[NDArray[np.uint64]]:
        seen_tables = (table for runs in seen_runs for table in runs.tables(key_range.low, key_range.high))
        for table in itertools.chain(key_range.tables(), seen_tables):
            priorities = to_numpy(table["order"])
            yield priorities[~bitmap_contains(priorities, load_bitmap(copies_file))]

    size, first_priorities = 0, np.empty(0, np.uint64)
    for priorities in blocks():
        size += len(priorities)
        first_priorities = np.sort(np.append(first_priorities, priorities))[:max_compared]
    run_documents = max(RUN_PAIRS // max_compared, 1)  # later documents in a run of pairs
    files, proposed = list[OutputFile](), 0
    for priorities in blocks():
        later = np.sort(priorities[~is_from_seen_corpus(priorities)])
        for part in np.split(later, range(run_documents, len(later), run_documents)):
            pairs = np.stack((np.repeat(part, len(first_priorities)), np.tile(first_priorities, len(part))))
            pairs = pairs[:, pairs[1] < pairs[0]]
            proposed += pairs.shape[1]
            files.append(write_pairs(folder, f"{key_range.name}-{len(files):05d}", pairs))
    counts = {"buckets": int(size > 1), "capped_buckets": int(size > max_compared + 1), "proposed": proposed}
    return Receipt(files, counts)


def _pair_spans(pair_counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Divide rows into spans [first, stop) of about `RUN_PAIRS` pairs each."""
    total = np.cumsum(pair_counts)
    # A span ends after the row that reaches a multiple of the limit. The sum of `total[-1:]` is 0 without rows.
    bounds = np.searchsorted(total, np.arange(RUN_PAIRS, total[-1:].sum(), RUN_PAIRS)) + 1
    return list(itertools.pairwise([0, *np.unique(np.append(bounds, len(pair_counts))).tolist()]))
