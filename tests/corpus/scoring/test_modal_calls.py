"""Score shards as calls on Modal: none is lost or run twice, in order."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launcher_jobs import build_job, build_jobs, calls_written, instruct, read_pids
from modal_loopback import SOON_S, ModalOnLoopback, wait_for
from refusals import refusal

from pipeline_assets.corpus.scoring.launcher import Launcher
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import Receipt, StagingView

DIED = "Modal preempted the machine (killed by 9)"


def read_scores(folder: StagingView, receipts: list[Receipt]) -> list[str]:
    return [folder.path(file.path).read_text() for receipt in receipts for file in receipt.files]


@contextlib.contextmanager
def run_in_thread(act: Callable[[], None]) -> Iterator[None]:
    """Run an action in another thread during the block."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(SOON_S)


def test_receipts_are_in_the_order_of_the_jobs_whatever_finishes_first(
    launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    jobs = build_jobs(tmp_path, a=None, b="write", c=None)

    def instruct_others() -> None:
        wait_for(lambda: folder.read_receipt("score", "b"))
        instruct(jobs[2], "write")
        wait_for(lambda: folder.read_receipt("score", "c"))
        instruct(jobs[0], "write")

    with run_in_thread(instruct_others):
        receipts = list(launcher.run("score", jobs, folder))

    assert read_scores(folder, receipts) == ["(0,)"] * 3
    assert [folder.read_receipt("score", job.name) for job in jobs] == receipts
    committed = {path.stem: path.stat().st_mtime_ns for path in folder.folder.rglob("score/*.json")}
    assert committed["b"] <= committed["c"] <= committed["a"]  # equal within a tick of the file system's clock
    assert calls_written(folder) == []
    assert list(launcher.run("rescore", [], folder)) == []


def test_a_job_whose_worker_dies_three_times_is_named(launcher: Launcher, folder: StagingView, tmp_path: Path) -> None:
    jobs = build_jobs(tmp_path, a="write", b="die 9")

    message = refusal(lambda: list(launcher.run("score", jobs, folder)), RetryableError)

    assert message.startswith(f"{jobs[1].pool_path}: {DIED}, 3 times on shard b; ")
    assert len(read_pids(jobs[1])) == 3
    assert folder.read_receipt("score", "a") is not None
    assert calls_written(folder) == []


def test_a_refused_job_cancels_the_others_and_the_next_build_succeeds(
    launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    jobs = build_jobs(tmp_path, a=None, b="refuse")

    message = refusal(lambda: list(launcher.run("score", jobs, folder)))

    assert message == "b: it was told to; tell it something else"
    assert calls_written(folder) == []
    for job in jobs:
        instruct(job, "write")
    assert len(list(launcher.run("score", jobs, folder))) == 2


def test_an_early_stop_cancels_running_calls(launcher: Launcher, folder: StagingView, tmp_path: Path) -> None:
    jobs = build_jobs(tmp_path, a="write", b=None, c=None)
    receipts = launcher.run("score", jobs, folder)
    next(receipts)
    wait_for(lambda: read_pids(jobs[1]))

    receipts.close()

    with pytest.raises(ProcessLookupError):
        os.kill(read_pids(jobs[1])[0], 0)
    assert calls_written(folder) == []
    assert folder.read_receipt("score", "b") is None


def test_a_call_of_an_earlier_build_is_awaited_and_other_rows_get_a_call(
    loopback: ModalOnLoopback, launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    [job] = build_jobs(tmp_path, a="write")
    other = build_job("a", tmp_path, 7)
    [receipt] = launcher.run("score", [job], folder)
    [call] = [call for call in loopback.calls() if str(tmp_path) in call["asked"]]
    with pytest.raises(InterruptedError), pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(launcher), "_wait", _interrupt)
        list(launcher.run("score", [job], folder))
    recorded_calls = calls_written(folder)

    [again] = launcher.run("score", [job], folder)
    calls_before = len(loopback.calls())
    [other_receipt] = launcher.run("score", [other], folder)

    assert recorded_calls == ["a"]
    assert (again.files, call["asked"]) == (receipt.files, loopback.calls()[calls_before - 1]["asked"])
    assert len(loopback.calls()) == calls_before + 1
    assert read_scores(folder, [other_receipt]) == ["(7,)"]


def _interrupt(*_: object) -> None:
    raise InterruptedError
