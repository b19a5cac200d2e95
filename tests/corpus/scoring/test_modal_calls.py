"""Score shards as calls on Modal: no shard is lost, none runs twice, and receipts come in order."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launcher_jobs import calls_written, job_of, jobs_of, pids_of, tell
from modal_loopback import SOON_S, ModalOnLoopback, wait_for
from refusals import refusal

from pipeline_assets.corpus.scoring.launcher import Launcher
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import Receipt, StagingView

DIED = "Modal preempted the machine (killed by 9)"


def made(folder: StagingView, receipts: list[Receipt]) -> list[str]:
    return [folder.path(file.path).read_text() for receipt in receipts for file in receipt.files]


@contextlib.contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """Something is done in another thread while the block runs."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(SOON_S)


def test_receipts_are_committed_and_come_in_the_order_of_the_jobs_whatever_finishes_first(
    launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    jobs = jobs_of(tmp_path, a=None, b="write", c=None)

    def tell_the_others() -> None:
        wait_for(lambda: folder.read_receipt("score", "b"))
        tell(jobs[2], "write")
        wait_for(lambda: folder.read_receipt("score", "c"))
        tell(jobs[0], "write")

    with beside(tell_the_others):
        receipts = list(launcher.run("score", jobs, folder))

    assert made(folder, receipts) == ["(0,)"] * 3
    assert [folder.read_receipt("score", job.name) for job in jobs] == receipts
    committed = {path.stem: path.stat().st_mtime_ns for path in folder.folder.rglob("score/*.json")}
    assert committed["b"] <= committed["c"] <= committed["a"]  # equal within a tick of the file system's clock
    assert calls_written(folder) == []
    assert list(launcher.run("rescore", [], folder)) == []


def test_a_job_whose_worker_dies_three_times_is_named(launcher: Launcher, folder: StagingView, tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, a="write", b="die 9")

    line = refusal(lambda: list(launcher.run("score", jobs, folder)), RetryableError)

    assert line.startswith(f"{jobs[1].pool_path}: {DIED}, 3 times on shard b; ")
    assert len(pids_of(jobs[1])) == 3
    assert folder.read_receipt("score", "a") is not None
    assert calls_written(folder) == []


def test_a_job_that_refuses_its_input_ends_the_others_and_is_no_part_of_the_next_build(
    launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    jobs = jobs_of(tmp_path, a=None, b="refuse")

    line = refusal(lambda: list(launcher.run("score", jobs, folder)))

    assert line == "b: it was told to; tell it something else"
    assert calls_written(folder) == []
    for job in jobs:
        tell(job, "write")
    assert len(list(launcher.run("score", jobs, folder))) == 2


def test_who_stops_early_cancels_what_runs(launcher: Launcher, folder: StagingView, tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, a="write", b=None, c=None)
    receipts = launcher.run("score", jobs, folder)
    next(receipts)
    wait_for(lambda: pids_of(jobs[1]))

    receipts.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pids_of(jobs[1])[0], 0)
    assert calls_written(folder) == []
    assert folder.read_receipt("score", "b") is None


def test_a_call_of_an_earlier_build_is_waited_for_and_one_for_other_rows_is_made(
    loopback: ModalOnLoopback, launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    [job] = jobs_of(tmp_path, a="write")
    other = job_of("a", tmp_path, 7)
    [receipt] = launcher.run("score", [job], folder)
    [call] = [call for call in loopback.calls() if str(tmp_path) in call["asked"]]
    with pytest.raises(InterruptedError), pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(launcher), "_wait", _interrupted)
        list(launcher.run("score", [job], folder))
    written_down = calls_written(folder)

    [again] = launcher.run("score", [job], folder)
    made_before = len(loopback.calls())
    [of_others] = launcher.run("score", [other], folder)

    assert written_down == ["a"]
    assert (again.files, call["asked"]) == (receipt.files, loopback.calls()[made_before - 1]["asked"])
    assert len(loopback.calls()) == made_before + 1
    assert made(folder, [of_others]) == ["(7,)"]


def _interrupted(*_: object) -> None:
    raise InterruptedError
