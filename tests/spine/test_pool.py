"""Pool of workers that isolates rows which crash them."""

from functools import partial
from pathlib import Path

import pytest
from refusals import refusal
from word_artifact import ENGLISH, Words, die_always, die_of_two_rows, die_of_words, die_once, exit_on_five
from word_stage import ONE, SPAWNED, TWO, children, read_parts, run

from pipeline_assets.spine import pool
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import StagingDir


@pytest.mark.parametrize("settings", [ONE, TWO, SPAWNED], ids=["one", "two", "spawned"])
def test_shard_of_a_worker_killed_once_is_run_again(
    building: StagingDir, settings: RunSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker = tmp_path / "killed once"

    receipts = run(partial(die_once, marker=marker), building, settings)

    assert marker.exists()
    assert [receipt.counts for receipt in receipts] == [{"documents": 2}, {"documents": 3}, {"documents": 1}]
    assert caplog.messages == ["shard b: a worker died (killed by SIGKILL, out of memory perhaps)"]
    assert children() == []


@pytest.mark.parametrize("settings", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize(("deadly", "shard", "row"), [("three", 1, 0), ("four", 1, 1), ("five", 1, 2), ("six", 2, 0)])
def test_poison_row_is_rejected_and_all_other_rows_are_processed(
    building: StagingDir, deadly: str, shard: int, row: int, settings: RunSettings, caplog: pytest.LogCaptureFixture
) -> None:
    receipts = run(partial(die_of_words, deadly=(deadly,)), building, settings)

    kept = [[word.upper() for word in source.words if word != deadly] for source in ENGLISH]
    assert [text.split() for text in read_parts(building).values()] == kept
    for number, receipt in enumerate(receipts):
        killed = {"killed_worker": 1} if number == shard else {}
        assert receipt.counts == {"documents": len(kept[number])} | killed
    assert f"shard {ENGLISH[shard].name}: row {row} crashes its worker; retrying without it" in caplog.messages
    assert not (building.folder / ".work/probe").exists()
    assert building.read_receipt("write", ENGLISH[shard].name) is not None


def test_row_that_ends_its_worker_by_exit_is_rejected(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    receipts = run(exit_on_five, building, ONE)

    assert receipts[1].counts == {"documents": 2, "killed_worker": 1}
    assert caplog.messages[0] == "shard b: a worker died (exit status 7)"


@pytest.mark.parametrize("shard", [Words("w", ()), Words("w", ("one",)), Words("w", ("one", "two", "three"))])
def test_worker_that_dies_on_any_rows_stops_the_build(building: StagingDir, shard: Words) -> None:
    assert refusal(lambda: run(die_always, building, ONE, [shard])) == (
        "w: the worker crashes whatever rows it gets; read the worker's last lines in the log, "
        "or give the machine more memory"
    )
    assert children() == []


def test_worker_that_dies_only_on_rows_together_stops_the_build(building: StagingDir) -> None:
    shard = Words("w", ("one", "two"))

    assert refusal(lambda: run(die_of_two_rows, building, ONE, [shard])) == (
        "w: the worker crashes on rows 0 to 2 together, but on neither half alone; "
        "run again with fewer workers or more memory"
    )


def test_too_many_poison_rows_stop_the_build(building: StagingDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_MAX_POISON_ROWS", 3)
    words = tuple(f"word{row}" for row in range(5))

    [receipt] = run(partial(die_of_words, deadly=words[:3]), building, ONE, [Words("three", words)])
    message = refusal(lambda: run(partial(die_of_words, deadly=words[:4]), building, ONE, [Words("one more", words)]))

    assert receipt.counts == {"documents": 2, "killed_worker": 3}
    assert message == (
        "one more: more than 3 rows crash their worker; "
        "look at the rows named in the log, or give the machine more memory"
    )
