"""Faults between a launcher and Modal, before and during its calls."""

import contextlib
import json
import logging
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launcher_jobs import build_jobs, calls_written, instruct, read_pids
from modal_launching import open_launcher
from modal_loopback import ModalOnLoopback, wait_for
from refusals import refusal

from pipeline_assets.corpus.scoring.launcher import Launcher, ScoreWork
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.errors import InputError, TransientError, UsageError
from pipeline_assets.spine.staging import Receipt, StagingView
from resources import modal_calls
from resources.modal_launcher import ModalLauncherFactory


def list_called_jobs(loopback: ModalOnLoopback, folder: Path) -> list[str]:
    """List the called jobs of a test in order; the loopback has those of all tests."""
    return [Path(call["asked"]).name for call in loopback.calls() if str(folder) in call["asked"]]


# Before a call runs


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("no_token", UsageError, "run `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"),
        ("not_deployed", UsageError, "deploy the app from this version: modal deploy modal_jobs/nll_scoring.py"),
        ("quota", TransientError, "Modal's quota is used up (workspace limit of GPUs)"),
    ],
)
def test_a_fault_that_prevents_a_call_is_reported_with_advice(
    loopback: ModalOnLoopback, work: ScoreWork, folder: StagingView, fault: str, error: type[InputError], text: str
) -> None:
    loopback.fault(fault, 9)

    line = refusal(lambda: open_launcher(work, folder), error)

    assert text in line


LOCAL_POOLS = "mine/train: pools are in a local folder, and Modal reads pools of a hub"
OTHER_GPU = "scoring.device: cpu does not match CORPUSMILL_MODAL_GPU, which is H100!"


@pytest.mark.parametrize(
    ("missing", "settings", "text"),
    [
        ({"pool_files": None}, {}, f"{LOCAL_POOLS}; publish them"),
        ({"model_files": None}, {}, "scoring.model: the model is in a local folder"),
        ({}, {"gpu": "H100!"}, f"{OTHER_GPU}; use cpu with 'none'"),
        ({}, {"gpus": 2}, "CORPUSMILL_MODAL_GPUS: must be 1 unless the model is spread over GPUs, got 2; set it to 1"),
    ],
)
def test_work_that_containers_cannot_do_is_refused(
    work: ScoreWork, folder: StagingView, missing: dict[str, None], settings: dict[str, object], text: str
) -> None:
    changed = replace(work, **missing)

    assert refusal(lambda: open_launcher(changed, folder, **settings), UsageError).startswith(text)


# While calls run


SCORES = {"path": f"mine/train/{'0' * 64}.parquet", "rows": 1, "bytes": 1, "sha256": "0", "content_sha256": "0"}

DAMAGED: list[dict[str, Any]] = [
    {"files": []},
    {"files": [SCORES, SCORES]},
    {"files": [{**SCORES, "path": "../../etc/passwd"}]},
    {"files": [{**SCORES, "path": 7}]},
    {"files": [{"path": SCORES["path"]}]},
    {"files": "mine/train"},
    {"notes": {}},
    {"notes": {"name": "../../../outside", "gpu_seconds": 1.5}},
    {"notes": {"name": "a", "gpu_seconds": -1e9}},
    {"notes": {"name": "a", "gpu_seconds": float("nan")}},
    {"notes": {"name": "a", "gpu_seconds": "free"}},
]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("timed_out", "the call exceeded its time limit"),
        ("lost", "Modal preempted the machine (preempted)"),
        ("wrong_bytes", "downloaded scores do not have the sha256 in their receipt"),
        *((answer, "answer of the call is damaged") for answer in DAMAGED),
        ({"bytes": 2}, "file of scores has more than 2 bytes"),
    ],
    ids=str,
)
def test_a_failed_call_or_damaged_receipt_is_retried(
    loopback: ModalOnLoopback,
    launcher: Launcher,
    folder: StagingView,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: str | dict[str, Any],
    reason: str,
) -> None:
    if isinstance(fault, str):
        loopback.fault(fault)
    else:
        (tmp_path / "a.answer").write_text(json.dumps(fault))

    with caplog.at_level(logging.WARNING, "corpusmill"):
        [receipt] = launcher.run("score", build_jobs(tmp_path, a="write"), folder)

    assert caplog.messages == [f"shard a of pool.parquet: {reason}; retrying"]
    assert folder.path(receipt.files[0].path).read_text() == "(0,)"
    assert len(list_called_jobs(loopback, tmp_path)) == 2
    assert launcher.provenance()["modal"]["container_seconds"] == 1.5


def test_a_preempted_container_restarts(
    loopback: ModalOnLoopback, launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    loopback.fault("restarts")
    [job] = build_jobs(tmp_path, a=None)

    def preempt() -> None:
        wait_for(lambda: read_pids(job))
        os.kill(read_pids(job)[0], signal.SIGKILL)
        wait_for(lambda: len(read_pids(job)) == 2)
        instruct(job, "write")

    threading.Thread(target=preempt).start()
    [receipt] = launcher.run("score", [job], folder)

    assert receipt.counts == {"documents": 1}
    assert len(list_called_jobs(loopback, tmp_path)) == 1


def test_an_expired_result_is_requested_again(
    loopback: ModalOnLoopback, launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    [job] = build_jobs(tmp_path, a=None)

    def lose() -> None:
        wait_for(lambda: read_pids(job))
        [call] = [call["id"] for call in loopback.calls() if str(tmp_path) in call["asked"]]
        loopback.fault("expired", call)
        instruct(job, "write")

    threading.Thread(target=lose).start()
    [receipt] = launcher.run("score", [job], folder)

    assert receipt.counts == {"documents": 1}
    assert len(list_called_jobs(loopback, tmp_path)) == 2


def test_unanswered_polls_lose_nothing(
    loopback: ModalOnLoopback, launcher: Launcher, folder: StagingView, tmp_path: Path
) -> None:
    loopback.fault("silent", 12)

    assert len(list(launcher.run("score", build_jobs(tmp_path, a="write", b="write", c="write"), folder))) == 3
    assert len(list_called_jobs(loopback, tmp_path)) == 3


def test_after_a_long_silence_the_build_stops_and_its_calls_continue(
    loopback: ModalOnLoopback, work: ScoreWork, folder: StagingView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = build_jobs(tmp_path, a=None, b=None)
    monkeypatch.setattr(modal_calls, "_MAX_SILENCE_S", -1.0)
    with ModalLauncherFactory(ModalSettings(gpu="none", places=2)).open_launcher(work, folder) as launcher:
        loopback.fault("silent", 10_000)
        line = refusal(lambda: list(launcher.run("score", both, folder)), TransientError)
    (loopback.folder / "faults" / "silent").unlink()
    for job in both:
        instruct(job, "write")

    assert "Modal has not answered" in line
    assert calls_written(folder) == ["a", "b"]
    with ModalLauncherFactory(ModalSettings(gpu="none", places=2)).open_launcher(work, folder) as launcher:
        assert len(list(launcher.run("score", both, folder))) == 2
    assert len(list_called_jobs(loopback, tmp_path)) == 2


def test_a_crash_before_a_call_is_recorded_repeats_the_call(
    loopback: ModalOnLoopback, launcher: Launcher, folder: StagingView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = build_jobs(tmp_path, a="write")

    def crash(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched, contextlib.suppress(MemoryError):
        patched.setattr(StagingView, "commit", crash)
        list(launcher.run("score", [job], folder))
    first: Receipt
    [first] = launcher.run("score", [job], folder)

    assert len(list_called_jobs(loopback, tmp_path)) == 2
    assert folder.path(first.files[0].path).read_text() == "(0,)"


def test_files_are_fetched_by_one_call_for_all_builds(
    loopback: ModalOnLoopback, work: ScoreWork, folder: StagingView
) -> None:
    before = len(loopback.calls("fetch"))
    for _ in range(2):
        open_launcher(work, folder)

    assert len(loopback.calls("fetch")) == before + 1
