"""Exact copies: documents with the normalized text of an earlier document."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_assets.corpus.dedup.bitmap import save_bitmap
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in, worker_bytes
from pipeline_assets.corpus.dedup.document_order import document_numbers, is_from_seen_corpus
from pipeline_assets.corpus.dedup.signature_store import SeenRuns, read_with_seen_rows
from pipeline_assets.corpus.dedup.sketches import HASHES_WORK_FOLDER
from pipeline_assets.corpus.dedup.sorted_runs import KeyRange, Runs, divide_keys, is_first_in_group, write_run
from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy, to_table
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView
from pipeline_assets.spine.task import Task

_EXACT_FOLDER, _COPIES_FILE = f"{WORK_FOLDER}/exact", f"{WORK_FOLDER}/copies.set"
_HASH_ROW_BYTES = 250  # memory per row, with its sorted and its written copy
_SEEN_ROWS_PER_ROW = 4  # rows of stores are only read: four take the memory of one that is sorted and paired


@dataclass(frozen=True)
class ExactCopies:
    """Exact copies, as sorted runs and as a bitmap file; none in the mode `near`."""

    runs: Runs
    bitmap_file: Path


def find_exact_copies(dedup: DedupRun, sketch_receipts: Sequence[Receipt]) -> ExactCopies:
    """Find the exact copies in the corpus, using the sketches of its documents."""
    runs: Runs = []
    if dedup.recipe.mode != "near":
        seen_runs = tuple(store.hashes for store in dedup.seen_stores)
        hashes = divide_keys_by_memory(dedup, files_in(sketch_receipts, HASHES_WORK_FOLDER), seen_runs, _HASH_ROW_BYTES)
        tasks = (Task.bind(find_copies_in_range, key_range, seen_runs) for key_range in hashes)
        runs = files_in(dedup.run_tasks("copies", tasks))
    return ExactCopies(runs, save_bitmap(dedup.document_bitmap(runs, "number"), dedup.staging.path(_COPIES_FILE)))


def divide_keys_by_memory(dedup: DedupRun, runs: Runs, seen_runs: Sequence[SeenRuns], row_bytes: int) -> list[KeyRange]:
    """Divide keys into ranges whose rows fit into the memory of a worker.

    A row of `runs` takes `row_bytes` of memory, and a row of `seen_runs` a quarter of that.
    """
    rows = sum(run.rows for run in runs) + sum(runs.row_count for runs in seen_runs) // _SEEN_ROWS_PER_ROW
    return divide_keys(dedup.staging, runs, worker_bytes(dedup.settings) // row_bytes, rows)


def find_copies_in_range(key_range: KeyRange, seen: Sequence[SeenRuns], window: Window, folder: StagingView) -> Receipt:
    """Find the exact copies of earlier documents, for one range of text hashes.

    The original has the lowest priority among the documents with its hash. It may be in a signature store.

    The file is a run with a row for each copy, sorted by the copy's document `number`; `first` and `first_id` are the
    priority and the id of the original. The receipt counts the copies as `copies`.
    """
    table = read_with_seen_rows(key_range, seen)
    high, low, priorities = (to_numpy(table[name]) for name in ("high", "low", "order"))
    # Sort equal 128-bit hashes together (the last key is the primary one), the lowest priority first.
    sorted_rows = np.lexsort((priorities, low, high))
    is_original = is_first_in_group(high[sorted_rows], low[sorted_rows])
    # First position of each position's group: the running maximum is the latest position of an original.
    firsts = np.maximum.accumulate(np.where(is_original, np.arange(len(sorted_rows)), 0))
    copies = np.flatnonzero(~is_original & ~is_from_seen_corpus(priorities[sorted_rows]))
    first_rows, copy_numbers = sorted_rows[firsts[copies]], document_numbers(priorities[sorted_rows[copies]])
    by_number = np.argsort(copy_numbers)
    first_rows = first_rows[by_number]
    first_ids = table["doc_id"].take(to_arrow(first_rows))
    run = to_table({"number": copy_numbers[by_number], "first": priorities[first_rows], "first_id": first_ids})
    return Receipt([write_run(folder, f"{_EXACT_FOLDER}/{key_range.name}.run", run)], {"copies": len(copies)})
