"""The engine runs shards of a stage, with equal receipts for any workers.

Errors arrive unchanged, poison rows are rejected, and no process outlives a build.
"""

import contextlib
import logging
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import word_artifact
from refusals import refusal
from word_artifact import (
    ENGLISH,
    Words,
    die_always,
    die_of_two_rows,
    die_of_words,
    die_once,
    exit_on_five,
    fill_the_disk,
    raise_unpicklable,
    raise_unsendable,
    refuse_five,
    stumble_over_five,
    write_words,
)
from word_stage import INLINE, MANY, ONE, SPAWNED, TWO, children, every_way, in_workers, read_parts, run

from pipeline_assets.spine import pool
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage, stage_runner
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.stage import WHOLE_SHARD, Window, Work
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView
from pipeline_assets.spine.worker import ShardJob, serve


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


# Errors of a stage


@every_way
def test_input_error_of_a_stage_arrives_unchanged(building: StagingDir, settings: RunSettings) -> None:
    with pytest.raises(InputError) as refused:
        run(refuse_five, building, settings)

    assert str(refused.value) == "b row 2: five is not a word; take four"
    assert not hasattr(refused.value, "__notes__")
    assert children() == []


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


@pytest.mark.parametrize(
    ("sizes", "workers"),
    [
        *(
            ([40, 59, 100], [0, 2]),
            ([40, 60, 100], [2, 2]),
            ([60, 40], [0, 2]),
        ),  # bytes in addition to the largest shard
        *(([1599], [0, 2]), ([1600], [2, 2]), ([], [0, 2])),
    ],
)
def test_small_builds_have_workers_only_after_a_crash(sizes: list[int], workers: list[int], tmp_path: Path) -> None:
    worker_counts = []
    for _ in workers:
        with open_staging_dir(tmp_path / "words", {}) as building:
            worker_counts.append(limit_workers(building, RunSettings(2, min_parallel_bytes=100), sizes).workers)

    assert worker_counts == workers


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
        "w: the worker crashes on any rows; read its last lines in the log, or give the machine more memory"
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


@in_workers
def test_caller_that_stops_early_wastes_little_and_leaves_no_process(
    building: StagingDir, settings: RunSettings
) -> None:
    with contextlib.closing(run_stage("write", write_words, MANY, building, settings)) as receipts:
        next(receipts)
        next(receipts)

    assert children() == []
    assert building.read_receipt("write", "001") is not None
    assert building.read_receipt("write", "020") is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_failure_of_the_caller_leaves_no_process(building: StagingDir, kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        for _ in run_stage("write", write_words, MANY, building, TWO):
            raise kind

    assert children() == []


def test_workers_ignore_ctrl_c(building: StagingDir, caplog: pytest.LogCaptureFixture) -> None:
    receipts = run_stage("write", write_words, MANY, building, TWO)
    next(receipts)

    for worker in children():
        os.kill(worker, signal.SIGINT)

    assert len(list(receipts)) == 99
    assert caplog.messages == []


def test_orphaned_worker_commits_its_shard_and_ends(building: StagingDir, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = multiprocessing.Pipe()

    def write_after_parent_death(shard: Words, window: Window, folder: StagingView) -> Receipt:
        ours.close()
        return write_words(shard, window, folder)

    ours.send(ShardJob(ENGLISH[0], WHOLE_SHARD, StagingView(building.folder), "write"))
    worker = multiprocessing.get_context("fork").Process(target=serve, args=(theirs, write_after_parent_death))
    worker.start()
    ours.close()
    worker.join()

    assert (worker.exitcode, capfd.readouterr().err) == (0, "")
    assert building.read_receipt("write", "a") is not None


@pytest.mark.parametrize(
    ("end", "start_method"),
    [
        (signal.SIGKILL, "spawn"),
        (signal.SIGKILL, "forkserver"),
        (signal.SIGTERM, "forkserver"),
        (signal.SIGINT, "forkserver"),
    ],
)
def test_workers_end_with_their_parent_after_any_signal(tmp_path: Path, end: signal.Signals, start_method: str) -> None:
    fifo = tmp_path / "held open by workers"
    os.mkfifo(fifo)
    script = (
        "from functools import partial; from pathlib import Path; import sys\n"
        "from word_artifact import ENGLISH, open_and_wait\n"
        "from pipeline_assets.spine.opening import open_staging_dir\n"
        "from pipeline_assets.spine.engine import RunSettings, run_stage\n"
        "fifo, start_method = Path(sys.argv[1]), sys.argv[2]\n"
        "with open_staging_dir(fifo.with_name('words'), {}) as building:\n"
        "    work = partial(open_and_wait, fifo=fifo)\n"
        "    list(run_stage('write', work, ENGLISH, building, RunSettings(2, start_method)))\n"
    )
    path = os.pathsep.join([str(Path(word_artifact.__file__).parent), *filter(None, sys.path)])

    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(fifo), start_method],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    with open(fifo, "rb", buffering=0) as pipe:  # ends when the last process with the other end has exited
        assert [pipe.read(1), pipe.read(1)] == [b".", b"."]
        parent.send_signal(end)
        parent.wait()
        has_ended, _, _ = select.select([pipe], [], [], 20)

        assert has_ended
        assert pipe.read() == b""
