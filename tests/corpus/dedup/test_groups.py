"""Largest groups of duplicates."""

import tracemalloc
from pathlib import Path

import numpy as np
from dedup_build import INLINE, recipe

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.dedup_run import DedupRun
from pipeline_assets.corpus.dedup.groups import LargeGroup, largest_groups
from pipeline_assets.spine.engine import stage_runner
from pipeline_assets.spine.staging import Receipt, StagingView
from pipeline_assets.spine.task import run_task

PAIRS = 1 << 18


def test_first_of_many_equal_groups_are_found_in_bounded_memory(tmp_path: Path) -> None:
    folder = StagingView(tmp_path)
    kept = np.append(
        np.arange(PAIRS), [7, 7]
    )  # each document of the first half has a duplicate, and document 7 has three
    rows = np.arange(PAIRS, PAIRS + len(kept))
    files = [
        folder.write(name, data) for name, data in (("lines", b""), ("rows", rows.tobytes()), ("kept", kept.tobytes()))
    ]
    shard = CorpusShard(
        "00000", "shards/00000.jsonl.zst", tmp_path / "unread", PAIRS + len(kept), source="notes", first_number=0
    )
    dedup = DedupRun(folder, [shard], recipe(), INLINE, stage_runner(run_task, INLINE, lambda: None))

    tracemalloc.start()
    groups = largest_groups(dedup, [Receipt(files, {})])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert groups[0] == LargeGroup(7, 3, [PAIRS + 7, 2 * PAIRS, 2 * PAIRS + 1])
    assert groups[1:] == [LargeGroup(number, 1, [PAIRS + number]) for number in (0, 1, 2, 3, 4, 5, 6, 8, 9)]
    assert peak < 64 * PAIRS
