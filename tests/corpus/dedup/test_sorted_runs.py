"""Sorted runs: ranges cover every row once, and tasks do not grow with the runs."""

import pickle
import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dedup_build import by_faiss, deduplicate, recipe, write_corpus
from document_corpus import numbered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_dedup import PlainDocument

from pipeline_assets.corpus.dedup import candidates, dedup_corpus
from pipeline_assets.corpus.dedup.bitmap import empty_bitmap, save_bitmap
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.sorted_runs import KEYS_STOP, KeyRange, divide_keys, read_run, write_run
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_numpy, to_table
from pipeline_assets.spine.engine import stage_runner
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView

KEYS = st.sampled_from([0, 1, 7, 2**32, 2**63, KEYS_STOP - 2, KEYS_STOP - 1]) | st.integers(0, KEYS_STOP - 1)


def write_runs(folder: Path, runs: Sequence[Sequence[int]]) -> list[OutputFile]:
    """Write sorted runs of numbered rows in two folders with equal file names."""
    files, first = [], 0
    for number, keys in enumerate(runs):
        orders = np.arange(first, first + len(keys), dtype=np.uint64) + np.uint64(1 << 32)
        columns = {"key": np.array(sorted(keys), np.uint64), "order": orders}
        table = to_table({**columns, "text": string_column([f"é{order}" for order in orders.tolist()])})
        files.append(write_run(StagingView(folder), f"{WORK_FOLDER}/made/{number % 2}/{number // 2:05d}.run", table))
        first += len(keys)
    return files


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(KEYS, max_size=20), min_size=1, max_size=4), st.integers(1, 30), st.booleans())
def test_ranges_follow_each_other_and_have_every_row_once(
    tmp_path: Path, runs: list[list[int]], max_rows: int, are_hashes: bool
) -> None:
    files = write_runs(tmp_path, runs)

    ranges = divide_keys(StagingView(tmp_path), files, max_rows, sum(map(len, runs)) if are_hashes else 0)

    assert [ranges[0].low, *(key_range.high for key_range in ranges)] == [
        *(key_range.low for key_range in ranges),
        KEYS_STOP,
    ]
    rows = []
    for key_range in ranges:
        table = pickle.loads(pickle.dumps(key_range)).table()
        keys = to_numpy(table["key"])
        assert all(key_range.low <= key < key_range.high for key in keys.tolist())
        rows += list(zip(keys.tolist(), to_numpy(table["order"]).tolist(), table["text"].to_pylist(), strict=True))
    whole = [read_run(tmp_path / file.path) for file in files]
    assert sorted(rows) == sorted(
        (row["key"], row["order"], row["text"]) for table in whole for row in table.to_pylist()
    )


def test_a_frequent_key_gets_a_range_of_its_own_and_the_others_keep_the_limit(tmp_path: Path) -> None:
    keys = np.random.default_rng(1).integers(0, KEYS_STOP, 4000, np.uint64).tolist()
    files = write_runs(tmp_path, [[*keys[:2000], *[12345] * 600], [*keys[2000:], *[12345] * 600]])

    ranges = divide_keys(StagingView(tmp_path), files, 500, 5200)

    sizes = {(key_range.low, key_range.high): key_range.table().num_rows for key_range in ranges}
    assert sizes.pop((12345, 12346)) == 1200
    assert max(sizes.values()) <= 700
    assert len(sizes) < 20


@pytest.mark.parametrize("rules", [recipe(), by_faiss(scope="per-source")])
def test_size_of_a_task_does_not_grow_with_the_number_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: DedupRecipe
) -> None:
    def largest_tasks(shard_documents: int) -> dict[str, int]:
        sizes: dict[str, int] = defaultdict(int)

        def measuring(*arguments: Any) -> Any:
            run = stage_runner(*arguments)

            def measure(stage: str, tasks: Sequence[Any], folder: StagingView) -> Any:
                sizes[stage] = max([sizes[stage], *(len(pickle.dumps(task)) for task in tasks)])
                return run(stage, tasks, folder)

            return measure

        monkeypatch.setattr(dedup_corpus, "stage_runner", measuring)
        documents = [PlainDocument(f"d{number}", numbered(number % 40 * 9, 30)) for number in range(80)]
        folder = tmp_path / f"by{shard_documents:02d}"
        deduplicate(folder, write_corpus(folder / "corpus", documents, shard_documents), rules)
        return sizes

    few, many = largest_tasks(40), largest_tasks(2)

    assert few.keys() == many.keys() == {"sketches", "copies", "pairs", "shingle", "edges", "decide", "keep"}
    assert all(many[stage] <= few[stage] + 16 for stage in few), (few, many)


def propose(folder: Path, key_range: KeyRange, max_compared: int) -> tuple[Receipt, list[tuple[int, int]]]:
    copies = save_bitmap(empty_bitmap(100), folder / "copies")
    receipt = candidates.propose_band_pairs(key_range, (), copies, max_compared, WHOLE_SHARD, StagingView(folder))
    tables = [read_run(folder / file.path) for file in receipt.files]
    return receipt, sorted((row["later"], row["earlier"]) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("max_compared", [1, 3, 100])
def test_bucket_alone_has_the_pairs_that_it_has_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_compared: int
) -> None:
    files = write_runs(tmp_path, [[7] * 20, [7] * 30, [7]])
    [alone] = divide_keys(StagingView(tmp_path), files, 1000)
    monkeypatch.setattr(candidates, "RUN_PAIRS", 50)

    among_others = propose(tmp_path, alone, max_compared)
    [_, bucket, _] = divide_keys(StagingView(tmp_path), files, 10)
    by_itself = propose(tmp_path, bucket, max_compared)

    assert (bucket.low, bucket.high) == (7, 8)
    assert by_itself[1] == among_others[1]
    assert by_itself[0].counts == among_others[0].counts
    assert len(by_itself[1]) == sum(min(rank, max_compared) for rank in range(51))
    documents = [len(read_run(tmp_path / file.path)["later"].unique()) for file in by_itself[0].files]
    assert max(documents) <= max(50 // max_compared, 1), "a run has at most 50 pairs, or those of one document"


@pytest.mark.slow
def test_memory_of_a_bucket_does_not_grow_with_its_documents(tmp_path: Path) -> None:
    peaks = {}
    for runs in (10, 100):
        folder = tmp_path / f"{runs}"
        folder.mkdir()
        files = write_runs(folder, [[7] * 10_000] * runs)
        bucket = next(key_range for key_range in divide_keys(StagingView(folder), files, 1000) if key_range.low == 7)
        copies = save_bitmap(empty_bitmap(10_000 * runs), folder / "copies")
        tracemalloc.start()
        receipt = candidates.propose_band_pairs(bucket, (), copies, 5, WHOLE_SHARD, StagingView(folder))
        peaks[runs] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        assert receipt.counts["capped_buckets"] == 1
        assert receipt.counts["proposed"] == sum(min(rank, 5) for rank in range(runs * 10_000))

    assert peaks[100] < 1.2 * peaks[10]
