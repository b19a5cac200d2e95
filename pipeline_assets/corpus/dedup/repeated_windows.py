"""Search for documents that repeat byte windows of earlier documents.

Documents are visited in order. A document is dropped if more than `max_share` of its distinct selected windows (see
`window_hashes`) are seen. A window is seen if an earlier kept document has it. Windows of dropped documents do not
count: if all earlier copies of a passage were dropped, the next copy is not a repetition.

Step 1 sorts the windows of each shard. Step 2 finds, in each range of hashes, the windows that at least two documents
have. Step 3 reads these windows once, in the order of documents, and decides which documents to drop. The numbers of
shards, workers and ranges do not change the result. Step 2 loads all rows of one range of hashes at a time; step 3,
all rows of one range of documents. Step 3 also needs a bit for each repeated window. Files take 16 bytes per selected
window.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner
from pipeline_assets.corpus.dedup.dedup_run import files_in, min_tasks, worker_bytes
from pipeline_assets.corpus.dedup.recipe import MAX_DOCUMENTS
from pipeline_assets.corpus.dedup.sorted_runs import (
    KeyRange,
    Runs,
    divide_keys,
    is_first_in_group,
    ranges_between,
    sorted_pairs,
    write_run,
)
from pipeline_assets.corpus.dedup.window_hashes import select_windows
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.filters.recipe import WindowRecipe
from pipeline_assets.corpus.formats.arrow_columns import to_numpy, to_table
from pipeline_assets.corpus.partial_documents import LicensedText
from pipeline_assets.spine.engine import RunSettings, StageRunner
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView
from pipeline_assets.spine.task import Task

_WINDOWS_FOLDER, _REPEATED_FOLDER, _DROPPED_FOLDER = (
    f"{WORK_FOLDER}/{name}" for name in ("windows", "repeated_windows", "repeating")
)
_POISON_ROWS_NOTE = "fatal"
_RUN_ROWS = 1 << 20  # 16 MiB, and several times as much while they are sorted
_decoder = msgspec.json.Decoder(LicensedText)


def select_in_shard(
    shard: DocumentShard,
    first_number: int,
    recipe: WindowRecipe,
    refused_licences: frozenset[str],
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Write the selected windows of one shard as sorted runs.

    Documents with a license tag in `refused_licences` are skipped. The files are runs, sorted by `hash`, with a row for
    each distinct selected window of each document: the window's `hash`, the document's `number`, and the document's
    count of distinct selected `windows`. The note `fatal` lists the rows that crash a worker.
    """
    files: list[OutputFile] = []
    crashing_rows: list[int] = []

    def blocks() -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        for documents, poison_rows in read_documents(shard, window, _decoder):
            crashing_rows.extend(poison_rows)
            texts = [(row, entry.text) for row, entry in documents if entry.license_tag not in refused_licences]
            utf8 = [text.encode() for _, text in texts]
            hashes, window_counts = select_windows(utf8, recipe.window_bytes, recipe.every)
            yield hashes, np.repeat(np.fromiter((row for row, _ in texts), np.int64, len(texts)), window_counts)

    for group in group_by_size(blocks(), lambda block: len(block[0]), _RUN_ROWS):
        name = f"{_WINDOWS_FOLDER}/{shard.name}.{len(files):05d}.run"
        files.append(_write_run(folder, name, group, first_number))
    return Receipt(files, {}, {_POISON_ROWS_NOTE: crashing_rows})


def _write_run(
    folder: StagingView, name: str, blocks: Sequence[tuple[NDArray[np.uint64], NDArray[np.int64]]], first_number: int
) -> OutputFile:
    # A function of its own, so that the arrays of a run are freed before the next run is read.
    hashes, rows = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    hashes, documents = sorted_pairs(hashes, rows.astype(np.uint64))
    is_distinct = is_first_in_group(hashes, documents)
    hashes, rows = hashes[is_distinct], documents[is_distinct].astype(np.int64)
    windows = np.bincount(rows)[rows].astype(np.uint32)  # rows of each document, repeated at each of its rows
    columns = {"hash": hashes, "number": (rows + first_number).astype(np.uint32), "windows": windows}
    return write_run(folder, name, to_table(columns))


_ROW_BYTES = 120  # memory per row, with its sorted and its written copy
_32, _3, _7, _ONE = np.uint64(32), np.uint64(3), np.uint64(7), np.uint8(1)
_LOWER_MASK = np.uint64(2**32 - 1)  # the lower 32 bits


@dataclass(frozen=True)
class ShardRepeats:
    """Documents to drop from a shard, and its poison rows.

    Attributes:
        dropped_range: Range of this shard's documents in the runs of `_decide_drops`; None if there are no runs.
    """

    dropped_range: KeyRange | None
    poison_rows: frozenset[int]

    def shares_by_row(self) -> dict[int, float]:
        """Map the row of each dropped document to its share of repeated windows."""
        if self.dropped_range is None:
            return {}
        table = self.dropped_range.table()
        rows = to_numpy(table["number"]) - np.uint64(self.dropped_range.low)
        return dict(zip(rows.tolist(), to_numpy(table["share"]).tolist(), strict=True))


def find_repeating_documents(
    run_stage: StageRunner[Task],
    staging: StagingView,
    shards: Sequence[DocumentShard],
    recipe: WindowRecipe,
    refused_licences: frozenset[str],
    settings: RunSettings,
) -> list[ShardRepeats]:
    """Find, in each shard, the documents that repeat earlier documents of the source.

    Documents with a license tag in `refused_licences` are skipped, because the filters drop them anyway. The results
    are in the order of `shards`.

    Raises:
        InputError: A line is not a Document, or the source has more than 2**32 documents.
    """
    first_numbers = [0, *np.cumsum([shard.rows for shard in shards], dtype=np.int64).tolist()]
    if first_numbers[-1] > MAX_DOCUMENTS:
        what = f"repetition is limited to {MAX_DOCUMENTS:,} documents, got {first_numbers[-1]:,}"
        raise InputError(what, "the source", "split it into several sources")
    numbered_shards = list(zip(shards, first_numbers, strict=False))
    tasks = [Task.bind(select_in_shard, shard, first, recipe, refused_licences) for shard, first in numbered_shards]
    window_receipts = list(run_stage("selected_windows", tasks, staging))
    dropped = _find_dropped_documents(run_stage, staging, files_in(window_receipts), recipe, settings)
    poison_rows = (frozenset(receipt.notes[_POISON_ROWS_NOTE]) for receipt in window_receipts)
    return list(map(ShardRepeats, ranges_between(staging, dropped, first_numbers), poison_rows))


def load_kernels() -> None:
    """Load the compiled code of all steps into this process."""
    select_windows([b"some text"], 4, 2)
    empty = np.empty(0, np.uint64)
    _fill_dropped(empty, empty, np.empty(0, np.uint32), empty, 1, 2, np.zeros(1, np.uint8), empty, np.empty(0))


def _find_dropped_documents(
    run_stage: StageRunner[Task], staging: StagingView, window_runs: Runs, recipe: WindowRecipe, settings: RunSettings
) -> Runs:
    if not window_runs:
        return []
    rows, max_rows = sum(file.rows for file in window_runs), worker_bytes(settings) // _ROW_BYTES
    ranges = divide_keys(staging, window_runs, max(min(max_rows, -(-rows // min_tasks(settings))), 1), rows)
    tasks = [Task.bind(_find_repeated_windows, key_range, number) for number, key_range in enumerate(ranges)]
    repeated_receipts = list(run_stage("repeated_windows", tasks, staging))
    counts = [receipt.counts["repeated_windows"] for receipt in repeated_receipts]
    window_offsets = np.cumsum([0, *counts]).astype(np.uint64)
    by_document = divide_keys(staging, files_in(repeated_receipts), max_rows)
    decide = functools.partial(_decide_drops, by_document, window_offsets, Fraction(recipe.max_share))
    return files_in(run_stage("repeating_documents", [Task("all", 0, decide)], staging))


def _find_repeated_windows(key_range: KeyRange, range_number: int, window: Window, folder: StagingView) -> Receipt:
    """Find, in a range of hashes, the windows that at least two documents have.

    The file is a run with a row for each repeated `window` of each document, sorted by the document's `number`. Rows
    also have the count of the document's distinct `windows`. The upper 32 bits of a `window` are `range_number`; the
    lower 32 bits are its index among the distinct repeated windows of the range. The receipt counts these distinct
    windows as `repeated_windows`.
    """
    table = key_range.table()
    hashes = to_numpy(table["hash"])
    order = np.argsort(hashes)
    is_new = is_first_in_group(hashes[order])
    # A hash occurs once if its row and the next row both begin a group of equal hashes. The roll puts the first row,
    # which begins a group, after the last.
    is_repeated = ~(is_new & np.roll(is_new, -1))
    order, is_new = order[is_repeated], is_new[is_repeated]
    # Number the remaining hashes from 0: each new one adds 1 to the running sum.
    windows = np.cumsum(is_new) - 1 + (range_number << 32)
    documents = to_numpy(table["number"])[order]
    by_document = np.argsort(documents)
    columns = {
        "number": documents[by_document].astype(np.uint64),
        "window": windows[by_document].astype(np.uint64),
        "windows": to_numpy(table["windows"])[order[by_document]],
    }
    files = [write_run(folder, f"{_REPEATED_FOLDER}/{key_range.name}.run", to_table(columns))]
    return Receipt(files, {"repeated_windows": int(is_new.sum())})


def _decide_drops(
    ranges: Sequence[KeyRange],
    window_offsets: NDArray[np.uint64],
    max_share: Fraction,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Decide which documents to drop, in the order of the documents.

    `window_offsets` has, for each range of hashes, the number of repeated windows in the ranges before it. Its last
    entry is the number of all repeated windows. Only one of `ranges` is in memory at a time.

    The files are runs with the `number` of each dropped document, and the `share` of its windows that are seen.
    """
    numerator, denominator = max_share.as_integer_ratio()
    seen_bitmap = np.zeros((int(window_offsets[-1]) >> 3) + 1, np.uint8)
    files: list[OutputFile] = []
    for key_range in ranges:
        table = key_range.table()
        order = np.argsort(to_numpy(table["number"]))
        documents, windows, window_counts = (to_numpy(table[name])[order] for name in ("number", "window", "windows"))
        dropped, shares = np.empty(len(order), np.uint64), np.empty(len(order))
        count = _fill_dropped(
            documents, windows, window_counts, window_offsets, numerator, denominator, seen_bitmap, dropped, shares
        )
        columns = {"number": dropped[:count], "share": shares[:count]}
        files.append(write_run(folder, f"{_DROPPED_FOLDER}/{len(files):05d}.run", to_table(columns)))
    return Receipt(files, {})


@compiled_inner
def _window_number(window: np.uint64, window_offsets: NDArray[np.uint64]) -> np.uint64:
    """Return a repeated window's number among the repeated windows of all ranges."""
    # The range, in the upper half, has `window_offsets` windows before it; the lower half counts within the range.
    return window_offsets[window >> _32] + (window & _LOWER_MASK)  # type: ignore[no-any-return]


@compiled
def _fill_dropped(
    documents: NDArray[np.uint64],
    windows: NDArray[np.uint64],
    window_counts: NDArray[np.uint32],
    window_offsets: NDArray[np.uint64],
    numerator: int,
    denominator: int,
    seen_bitmap: NDArray[np.uint8],
    dropped: NDArray[np.uint64],
    shares: NDArray[np.float64],
) -> int:
    """Fill `dropped` and `shares`, and return how many documents are dropped.

    `dropped` gets the numbers of dropped documents; `shares` gets each dropped document's share of seen windows.

    The rows of `documents`, `windows` and `window_counts` ascend by document. `window_counts` has the number of windows
    of each row's document, including windows that no other document has. `numerator` / `denominator` is the maximum
    share. `seen_bitmap` has a bit for each repeated window; the bit is set once a kept document has the window.
    """
    count = start = 0
    while start < len(documents):
        stop, seen_windows = start, 0
        # Count the seen windows of one document: test bit number % 8 of byte number // 8.
        while stop < len(documents) and documents[stop] == documents[start]:
            window = _window_number(windows[stop], window_offsets)
            seen_windows += bool(seen_bitmap[window >> _3] >> np.uint8(window & _7) & _ONE)
            stop += 1
        # seen / total > numerator / denominator, in integers; the recipe's limit of nine decimals prevents an overflow.
        if seen_windows * denominator > numerator * window_counts[start]:
            dropped[count], shares[count] = documents[start], seen_windows / window_counts[start]
            count += 1
        else:
            for row in range(start, stop):
                window = _window_number(windows[row], window_offsets)
                seen_bitmap[window >> _3] |= _ONE << np.uint8(window & _7)
        start = stop
    return count
