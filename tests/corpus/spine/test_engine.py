"""The engine: the same receipts in the same order for any workers, and errors as they were raised."""

import logging
import re
from pathlib import Path

import pytest
from word_artifact import (
    ENGLISH,
    die_always,
    fill_the_disk,
    raise_unpicklable,
    raise_unsendable,
    refuse_five,
    stumble_over_five,
    write_words,
)
from word_stage import INLINE, MANY, ONE, SERVED, SPAWNED, TWO, children, every_way, in_workers, parts_of, run

from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.staging import StagingDir, open_building

# The same, however it is run


@every_way
def test_receipts_come_in_the_order_of_the_shards_and_the_files_are_the_same(
    building: StagingDir, settings: EngineSettings
) -> None:
    receipts = run(write_words, building, settings)

    assert [receipt.files[0].path for receipt in receipts] == ["parts/a.txt", "parts/b.txt", "parts/c.txt"]
    assert [receipt.counts for receipt in receipts] == [{"documents": 2}, {"documents": 3}, {"documents": 1}]
    assert parts_of(building) == {"a.txt": "ONE\nTWO\n", "b.txt": "THREE\nFOUR\nFIVE\n", "c.txt": "SIX\n"}
    assert [building.receipt("write", shard.name) for shard in ENGLISH] == receipts
    assert children() == []


@in_workers
def test_many_shards_come_in_order_however_the_workers_overtake_each_other(
    building: StagingDir, settings: EngineSettings
) -> None:
    receipts = run(write_words, building, settings, MANY)

    assert [receipt.files[0].path for receipt in receipts] == [f"parts/{shard.name}.txt" for shard in MANY]


@pytest.mark.parametrize("settings", [INLINE, TWO], ids=["here", "two workers"])
def test_no_shards_give_no_receipts(building: StagingDir, settings: EngineSettings) -> None:
    assert run(write_words, building, settings, []) == []


def test_more_workers_than_shards_are_not_started(building: StagingDir) -> None:
    shards = ENGLISH[:1]

    run_of = run_stage("write", write_words, shards, building, EngineSettings(8, "fork"))
    next(run_of)

    assert len(children()) == 1
    run_of.close()


@pytest.mark.parametrize(("first", "second"), [(INLINE, TWO), (TWO, ONE), (ONE, INLINE)])
def test_finished_shards_are_adopted_whatever_the_workers_and_nothing_is_rewritten(
    building: StagingDir, first: EngineSettings, second: EngineSettings
) -> None:
    receipts = run(write_words, building, first)
    before = {path: path.stat() for path in building.folder.rglob("*")}

    again = run(die_always, building, second)

    assert again == receipts
    after = {path: path.stat() for path in building.folder.rglob("*")}
    assert {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in after.items()} == {
        path: (stat.st_ino, stat.st_mtime_ns) for path, stat in before.items()
    }


def test_only_the_shards_that_are_missing_are_run(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    run(write_words, building, INLINE, ENGLISH[:1])
    run(write_words, building, INLINE, ENGLISH[2:])
    kept = (building.folder / "parts/a.txt").stat().st_ino

    with caplog.at_level(logging.INFO, "corpusmill"):
        receipts = run(write_words, building, TWO)

    assert [receipt.counts["documents"] for receipt in receipts] == [2, 3, 1]
    assert (building.folder / "parts/a.txt").stat().st_ino == kept
    assert caplog.messages[-2] == "write: 2 of 3 shards were finished before"
    assert re.fullmatch(r"write: 3/3 shards; 6 documents, [\d,]+/s", caplog.messages[-1])


def test_receipts_of_one_stage_do_not_count_for_another(building: StagingDir) -> None:
    run(write_words, building, INLINE)

    with pytest.raises(InputError, match="five is not a word"):
        list(run_stage("refuse", refuse_five, ENGLISH, building, INLINE))


# Errors of a stage


@every_way
def test_bad_input_met_by_a_stage_arrives_as_it_was_raised(building: StagingDir, settings: EngineSettings) -> None:
    with pytest.raises(InputError) as refused:
        run(refuse_five, building, settings)

    assert (refused.value.what, refused.value.where, refused.value.fix) == (
        "five is not a word",
        "b row 2",
        "take four",
    )
    assert not hasattr(refused.value, "__notes__")
    assert children() == []


@pytest.mark.parametrize("settings", [ONE, SPAWNED, SERVED], ids=["fork", "spawn", "forkserver"])
def test_any_other_error_in_a_worker_carries_its_shard_and_where_it_happened(
    building: StagingDir, settings: EngineSettings
) -> None:
    with pytest.raises(KeyError, match="five") as failed:
        run(stumble_over_five, building, settings)

    [note] = failed.value.__notes__
    assert note.startswith("in shard b, in a worker:\nTraceback (most recent call last):\n")
    assert 'word_artifact.py", line' in note
    assert "in stumble_over_five" in note
    assert children() == []


@pytest.mark.parametrize("settings", [ONE, SERVED], ids=["fork", "forkserver"])
def test_a_full_disk_in_a_worker_is_one_line_that_names_the_building_folder(
    building: StagingDir, settings: EngineSettings
) -> None:
    with pytest.raises(RetryableError, match="no space is left on the disk") as failed:
        run(fill_the_disk, building, settings)

    assert failed.value.where == str(building.folder)
    assert not hasattr(failed.value, "__notes__")


def test_an_error_that_cannot_be_sent_arrives_in_words(building: StagingDir) -> None:
    with pytest.raises(RuntimeError) as failed:
        run(raise_unsendable, building, ONE)

    assert str(failed.value) == "Unsendable: one in row 0"
    assert "in shard a, in a worker:" in failed.value.__notes__[0]


def test_an_error_that_holds_what_cannot_be_sent_is_no_dead_worker(building: StagingDir) -> None:
    with pytest.raises(RuntimeError, match="ValueError: holds a function"):
        run(raise_unpicklable, building, ONE)


def test_shards_that_were_finished_before_an_error_stay_finished(building: StagingDir) -> None:
    with pytest.raises(InputError):
        run(refuse_five, building, ONE)

    assert building.receipt("write", "a") is not None
    assert building.receipt("write", "b") is None


@pytest.mark.parametrize(("input_bytes", "workers"), [(99, [0, 2]), (100, [2, 2])])
def test_a_small_input_has_workers_only_where_a_build_has_died_or_failed(
    input_bytes: int, workers: list[int], tmp_path: Path
) -> None:
    found = []
    for _ in workers:
        with open_building(tmp_path / "words", {}) as building:
            found.append(settings_for(building, EngineSettings(2, inline_bytes=100), input_bytes).workers)

    assert found == workers
