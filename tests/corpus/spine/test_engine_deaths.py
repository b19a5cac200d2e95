"""Workers that die: the row that kills is found and rejected, and no other shard suffers from it."""

from functools import partial
from pathlib import Path

import pytest
from word_artifact import ENGLISH, Words, die_always, die_of_two_rows, die_of_words, die_once, exit_on_five
from word_stage import ONE, SERVED, SPAWNED, TWO, children, parts_of, run

from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.staging import StagingDir, open_building


@pytest.mark.parametrize("settings", [ONE, TWO, SPAWNED, SERVED], ids=["one", "two", "spawn", "forkserver"])
def test_a_shard_whose_worker_was_killed_once_is_run_again(
    building: StagingDir, settings: EngineSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker = tmp_path / "killed once"

    receipts = run(partial(die_once, marker=marker), building, settings)

    assert marker.exists()
    assert [receipt.counts for receipt in receipts] == [{"documents": 2}, {"documents": 3}, {"documents": 1}]
    assert caplog.messages == ["a worker died on shard b (killed by SIGKILL, out of memory perhaps)"]
    assert children() == []


@pytest.mark.parametrize("deadly", ["three", "four", "five"])
def test_a_row_that_kills_its_worker_is_found_and_rejected_and_all_else_is_done(
    building: StagingDir, deadly: str, caplog: pytest.LogCaptureFixture
) -> None:
    receipts = run(partial(die_of_words, deadly=(deadly,)), building, TWO)

    row = ENGLISH[1].words.index(deadly)
    kept = [word.upper() for word in ENGLISH[1].words if word != deadly]
    assert parts_of(building)["b.txt"].split() == kept
    assert receipts[1].counts == {"documents": 2, "killed_worker": 1}
    assert [receipts[0].counts, receipts[2].counts] == [{"documents": 2}, {"documents": 1}]
    assert f"row {row} of shard b kills its worker: it goes to the rejects" in caplog.messages


def test_what_is_left_after_a_killed_worker_is_what_a_build_without_the_row_leaves(building: StagingDir) -> None:
    run(partial(die_of_words, deadly=("four",)), building, TWO)

    names = sorted(path.relative_to(building.folder).as_posix() for path in building.folder.rglob("*"))
    assert "parts/b.txt.tmp" not in [name for name in names if name.startswith("parts/")]
    assert not [name for name in names if name.startswith(".work/probe")]
    assert building.receipt("write", "b") is not None


def test_several_rows_that_kill_are_found_one_by_one(building: StagingDir) -> None:
    shard = Words("w", tuple(f"word{row}" for row in range(37)))
    deadly = ("word0", "word17", "word18", "word36")

    [receipt] = run(partial(die_of_words, deadly=deadly), building, ONE, [shard])

    assert receipt.counts == {"documents": 33, "killed_worker": 4}


def test_a_shard_of_one_row_that_kills_is_rejected_whole(building: StagingDir) -> None:
    receipts = run(partial(die_of_words, deadly=("six",)), building, ONE)

    assert receipts[2].counts == {"documents": 0, "killed_worker": 1}


def test_a_worker_that_ends_itself_is_narrowed_down_like_one_that_is_killed(
    building: StagingDir, caplog: pytest.LogCaptureFixture
) -> None:
    receipts = run(exit_on_five, building, ONE)

    assert receipts[1].counts == {"documents": 2, "killed_worker": 1}
    assert caplog.messages[0] == "a worker died on shard b (exit status 7)"


def test_the_result_is_the_same_for_any_workers_when_rows_kill(tmp_path: Path) -> None:
    results = []

    for settings in (ONE, TWO):
        with open_building(tmp_path / f"{settings.workers}", {}) as building:
            results.append((run(partial(die_of_words, deadly=("one", "four")), building, settings), parts_of(building)))

    assert results[0] == results[1]


@pytest.mark.parametrize("shard", [Words("w", ()), Words("w", ("one",)), Words("w", ("one", "two", "three"))])
def test_a_worker_that_dies_whatever_rows_it_is_given_stops_the_build(building: StagingDir, shard: Words) -> None:
    with pytest.raises(InputError) as stop:
        run(die_always, building, ONE, [shard])

    assert stop.value.what == "its worker dies whatever rows it is given"
    assert stop.value.where == "w"
    assert stop.value.fix == "look at its last words in the log, or give the machine more memory"
    assert children() == []


def test_a_worker_that_dies_on_rows_together_and_on_neither_half_stops_the_build(building: StagingDir) -> None:
    shard = Words("w", ("one", "two"))

    with pytest.raises(InputError) as stop:
        run(die_of_two_rows, building, ONE, [shard])

    assert stop.value.what == "its worker dies on rows 0 to 2 together, on neither half alone"
    assert stop.value.where == "w"
    assert stop.value.fix == "run again with fewer workers or more memory"


def test_more_rows_that_kill_than_bad_luck_explains_stop_the_build(building: StagingDir) -> None:
    shard = Words("w", tuple(f"word{row}" for row in range(20)))

    with pytest.raises(InputError) as stop:
        run(partial(die_of_words, deadly=shard.words[:17]), building, ONE, [shard])

    assert stop.value.what == "more than 16 rows kill their worker"
    assert stop.value.fix == "look at the rows named in the log, or give the machine more memory"
