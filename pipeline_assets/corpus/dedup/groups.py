"""The largest groups of duplicates, for the report."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_assets.corpus.dedup.dedup_run import DedupRun
from pipeline_assets.spine.staged_input import StagedInput
from pipeline_assets.spine.staging import Receipt

_MAX_GROUPS, _MAX_MEMBERS = 10, 3  # groups in the report, and dropped documents shown for each group
_BLOCK_DOCUMENTS = 1 << 24


@dataclass(frozen=True)
class LargeGroup:
    """Group of duplicates, with document numbers.

    Attributes:
        dropped_count: Number of documents that were dropped as duplicates of the kept one.
        dropped_numbers: Document numbers of the first dropped documents, at most three.
    """

    kept_number: int
    dropped_count: int
    dropped_numbers: Sequence[int]


def largest_groups(dedup: DedupRun, decision_receipts: Sequence[Receipt]) -> list[LargeGroup]:
    """Find the ten largest groups, the largest first.

    Groups of equal size are in the order of their kept documents. Memory: less than 16 bytes for each of the 2**24
    documents in a block, plus the dropped rows of one shard.
    """
    row_files = [StagedInput.from_output(dedup.staging, receipt.files[1]) for receipt in decision_receipts]
    kept_files = [StagedInput.from_output(dedup.staging, receipt.files[2]) for receipt in decision_receipts]
    largest: list[tuple[int, int]] = []  # negated number of dropped documents, and number of the kept one
    for start in range(0, dedup.document_count, _BLOCK_DOCUMENTS):
        counts = np.zeros(min(_BLOCK_DOCUMENTS, dedup.document_count - start), np.uint32)
        for file in kept_files:
            # Count one for the kept document of each dropped row, if it is in this block.
            positions = np.frombuffer(file.read(), np.int64) - start
            np.add.at(counts, positions[(positions >= 0) & (positions < len(counts))], np.uint32(1))
        # Groups below the tenth largest count of their block cannot be among the ten largest of all. Of the groups with
        # this count, which can be millions, only the first ten can.
        lowest = max(int(np.partition(counts, -_MAX_GROUPS)[-_MAX_GROUPS]), 1) if len(counts) > _MAX_GROUPS else 1
        ties = np.flatnonzero(counts == lowest)[:_MAX_GROUPS]
        large = np.append(np.flatnonzero(counts > lowest), ties)
        candidates = zip((-counts[large].astype(np.int64)).tolist(), (large + start).tolist(), strict=True)
        largest = heapq.nsmallest(_MAX_GROUPS, [*largest, *candidates])
    dropped_numbers: dict[int, list[int]] = {number: [] for _, number in largest}
    for shard, row_file, kept_file in zip(dedup.shards, row_files, kept_files, strict=True):
        rows, numbers = (np.frombuffer(file.read(), np.int64) for file in (row_file, kept_file))
        is_shown = np.isin(numbers, np.array([*dropped_numbers], np.int64))
        for row, kept in zip(rows[is_shown].tolist(), numbers[is_shown].tolist(), strict=True):
            if len(dropped_numbers[kept]) < _MAX_MEMBERS:
                dropped_numbers[kept].append(shard.first_number + row)
    return [LargeGroup(number, -negated, dropped_numbers[number]) for negated, number in largest]
