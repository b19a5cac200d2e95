"""Runs of a stage on an engine, with equal receipts for any workers."""

import logging
import os
import re
import signal
from pathlib import Path

import pytest
from word_artifact import (
    ENGLISH,
    Words,
    die_always,
    fill_the_disk,
    raise_unpicklable,
    raise_unsendable,
    refuse_five,
    stumble_over_five,
    write_words,
)
from word_stage import INLINE, MANY, ONE, SPAWNED, TWO, children, every_way, read_parts, run

from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage, stage_runner
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.stage import Work
from pipeline_assets.spine.staging import StagingDir


@every_way
def test_receipts_and_files_are_equal_in_the_order_of_the_shards(building: StagingDir, settings: RunSettings) -> None:
    receipts = run(write_words, building, settings)

    assert [receipt.files[0].path for receipt in receipts] == ["parts/a.txt", "parts/b.txt", "parts/c.txt"]
    assert [receipt.counts for receipt in receipts] == [{"documents": 2}, {"documents": 3}, {"documents": 1}]
    assert read_parts(building) == {"a.txt": "ONE\nTWO\n", "b.txt": "THREE\nFOUR\nFIVE\n", "c.txt": "SIX\n"}
    assert [building.read_receipt("write", shard.name) for shard in ENGLISH] == receipts
    assert children() == []


@pytest.mark.parametrize("settings", [ONE, TWO, SPAWNED], ids=["one forked", "two forked", "two spawned"])
def test_next_run_reuses_workers_which_end_with_the_runner(building: StagingDir, settings: RunSettings) -> None:
    runner = stage_runner(write_words, settings)
    list(runner("write", ENGLISH, building))
    first = children()
    list(runner("write", MANY, building))
    second = children()
    del runner

    assert sorted(first) == sorted(second) and len(first) == settings.workers
    assert children() == []


def test_run_that_ends_early_leaves_no_worker(building: StagingDir) -> None:
    runner = stage_runner(write_words, TWO)
    receipts = runner("write", MANY, building)
    next(receipts)
    receipts.close()

    assert children() == []
    assert len(list(runner("write", MANY, building))) == len(MANY)


@pytest.mark.parametrize("settings", [INLINE, TWO], ids=["inline", "two workers"])
def test_shards_with_equal_names_are_refused(settings: RunSettings, building: StagingDir) -> None:
    with pytest.raises(ValueError, match=r"^write: shards must have unique names, got"):
        list(run_stage("write", write_words, [*ENGLISH, ENGLISH[0]], building, settings))


def test_killed_idle_worker_is_replaced(building: StagingDir) -> None:
    runner = stage_runner(write_words, ONE)
    list(runner("write", ENGLISH, building))
    os.kill(children()[0], signal.SIGKILL)

    assert [receipt.counts for receipt in runner("write", MANY, building)] == [{"documents": 1}] * len(MANY)


def test_no_more_workers_than_shards_are_started(building: StagingDir) -> None:
    shards = ENGLISH[:1]

    receipts = run_stage("write", write_words, shards, building, RunSettings(8))
    next(receipts)

    assert len(children()) == 1
    receipts.close()


@pytest.mark.parametrize(("first", "second"), [(INLINE, TWO), (TWO, ONE), (ONE, INLINE)])
def test_finished_shards_are_adopted_with_any_workers_and_not_rewritten(
    building: StagingDir, first: RunSettings, second: RunSettings
) -> None:
    receipts = run(write_words, building, first)
    before = {path: path.stat() for path in building.folder.rglob("*")}

    readopted = run(die_always, building, second)

    assert readopted == receipts
    after = {path: path.stat() for path in building.folder.rglob("*")}
    assert {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in after.items()} == {
        path: (stat.st_ino, stat.st_mtime_ns) for path, stat in before.items()
    }


def test_only_missing_shards_are_run(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    run(write_words, building, INLINE, ENGLISH[:1])
    run(write_words, building, INLINE, ENGLISH[2:])
    kept = (building.folder / "parts/a.txt").stat().st_ino

    with caplog.at_level(logging.INFO, "corpusmill"):
        receipts = run(write_words, building, TWO)

    assert [receipt.counts["documents"] for receipt in receipts] == [2, 3, 1]
    assert (building.folder / "parts/a.txt").stat().st_ino == kept
    assert caplog.messages[-2] == "write: 2 of 3 shards were finished earlier"
    assert re.fullmatch(r"write: 3/3 shards; 6 documents, [\d,]+/s", caplog.messages[-1])


def test_receipts_of_one_stage_do_not_count_for_another(building: StagingDir) -> None:
    run(write_words, building, INLINE)

    with pytest.raises(InputError, match="five is not a word"):
        list(run_stage("refuse", refuse_five, ENGLISH, building, INLINE))


@pytest.mark.parametrize(
    ("sizes", "workers"),
    [
        ([40, 59, 100], [0, 2]),
        ([40, 60, 100], [2, 2]),  # 100 bytes in addition to the largest shard
        ([60, 40], [0, 2]),
        ([1599], [0, 2]),
        ([1600], [2, 2]),
        ([], [0, 2]),
    ],
)
def test_small_builds_have_workers_only_after_a_crash(sizes: list[int], workers: list[int], tmp_path: Path) -> None:
    worker_counts = []
    for _ in workers:
        with open_staging_dir(tmp_path / "words", {}) as building:
            worker_counts.append(limit_workers(building, RunSettings(2, min_parallel_bytes=100), sizes).workers)

    assert worker_counts == workers


@every_way
def test_input_error_of_a_stage_arrives_unchanged(building: StagingDir, settings: RunSettings) -> None:
    with pytest.raises(InputError) as refused:
        run(refuse_five, building, settings)

    assert str(refused.value) == "b row 2: five is not a word; take four"
    assert not hasattr(refused.value, "__notes__")
    assert children() == []


# Errors of a stage


@pytest.mark.parametrize("settings", [ONE, SPAWNED], ids=["forked", "spawned"])
def test_other_errors_in_a_worker_carry_shard_and_traceback(building: StagingDir, settings: RunSettings) -> None:
    with pytest.raises(KeyError, match="five") as failed:
        run(stumble_over_five, building, settings)

    [note] = failed.value.__notes__
    assert note.startswith("in shard b, in a worker:\nTraceback (most recent call last):\n")
    assert 'word_artifact.py", line' in note
    assert "in stumble_over_five" in note
    assert children() == []


def test_full_disk_in_a_worker_is_one_line_that_names_the_staging_folder(building: StagingDir) -> None:
    with pytest.raises(RetryableError, match="no space is left on the disk") as failed:
        run(fill_the_disk, building, ONE)

    assert failed.value.where == str(building.folder)
    assert not hasattr(failed.value, "__notes__")


@pytest.mark.parametrize(
    ("work", "words"),
    [(raise_unsendable, "Unsendable: one in row 0"), (raise_unpicklable, "ValueError: holds a function")],
)
def test_unpicklable_error_arrives_as_text(building: StagingDir, work: Work[Words], words: str) -> None:
    with pytest.raises(RuntimeError) as failed:
        run(work, building, ONE)

    assert str(failed.value) == words
    assert "in shard a, in a worker:" in failed.value.__notes__[0]
