"""Faults between a launcher and Modal, and the calls that run meanwhile."""

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


def open_launcher(
    work: ScoreWork, folder: StagingView, factory: ModalLauncherFactory | None = None, **settings: object
) -> None:
    with (factory or ModalLauncherFactory(ModalSettings.model_validate({"gpu": "none", **settings}))).open_launcher(
        work, folder
    ):
        pass


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


@pytest.mark.parametrize(
    ("missing", "settings", "text"),
    [
        (
            {"pool_files": None},
            {},
            "mine/train: pools are in a local folder, and Modal reads pools of a hub; publish them",
        ),
        ({"model_files": None}, {}, "scoring.model: the model is in a local folder"),
        (
            {},
            {"gpu": "H100!"},
            "scoring.device: cpu does not match CORPUSMILL_MODAL_GPU, which is H100!; use cpu with 'none'",
        ),
        ({}, {"gpus": 2}, "CORPUSMILL_MODAL_GPUS: must be 1 unless the model is spread over GPUs, got 2; set it to 1"),
    ],
)
def test_work_that_containers_cannot_do_is_refused(
    work: ScoreWork, folder: StagingView, missing: dict[str, None], settings: dict[str, object], text: str
) -> None:
    changed = replace(work, **missing)

    assert refusal(lambda: open_launcher(changed, folder, **settings), UsageError).startswith(text)


def test_work_above_the_cost_limit_is_refused_before_the_first_call(
    loopback: ModalOnLoopback, work: ScoreWork, folder: StagingView, caplog: pytest.LogCaptureFixture
) -> None:
    expensive, before = replace(work, text_bytes=4 * 17_000 * 7200), len(loopback.calls("fetch"))

    with caplog.at_level(logging.INFO, "corpusmill"):
        line = refusal(
            lambda: open_launcher(expensive, folder, cpu=1, cpu_price=4, cost_limit=7.99, timeout_s=80_000), UsageError
        )

    assert line.startswith("mine/train: this split would cost about 8.00, and --cost-limit is 7.99; score fewer rows")
    assert caplog.messages[0] == (
        "on Modal: mine/train: about 122,400,000 tokens in 1 shards, 2.00 hours of CPUs, cost about 8.00"
    )
    assert caplog.messages[1].startswith(
        "on Modal: at 17,000 tokens/s per container, 16 containers at a time; settings: gpu none, "
    )
    assert len(loopback.calls("fetch")) == before


PRICED = {"gpu": "none", "cpu": 1, "cpu_price": 4, "timeout_s": 80_000}


def work_at_cost(work: ScoreWork, cost: int, split: str) -> ScoreWork:
    """Return the work of a split of this cost at the prices of PRICED."""
    return replace(work, split=split, rows=20 * work.recipe.shard_rows, text_bytes=cost * 17_000 * 3600)


def test_a_cost_limit_covers_all_splits_of_a_command(work: ScoreWork) -> None:
    splits = [work_at_cost(work, 3, "mine/a"), work_at_cost(work, 3, "mine/b"), work_at_cost(work, 3, "mine/c")]

    def plan(**limits: float) -> list[str]:
        return list(ModalLauncherFactory(ModalSettings.model_validate({**PRICED, **limits})).describe_costs(splits))

    assert len(plan(cost_limit=9.01, split_cost_limit=3.01)) == 5
    line = refusal(lambda: plan(cost_limit=8.99), UsageError)
    before = "this split and the splits before it"
    assert line.startswith(f"mine/c: {before} would cost about 9.00, and --cost-limit is 8.99; ")
    line = refusal(lambda: plan(cost_limit=9.01, split_cost_limit=2.99), UsageError)
    assert line.startswith("mine/a: this split would cost about 3.00, and --split-cost-limit is 2.99; ")
    assert line.endswith("or raise --split-cost-limit (CORPUSMILL_MODAL_SPLIT_COST_LIMIT)")


def test_a_running_split_counts_by_its_estimate_and_then_by_its_cost(
    loopback: ModalOnLoopback, work: ScoreWork, tmp_path: Path
) -> None:
    modal_place = ModalLauncherFactory(ModalSettings.model_validate({**PRICED, "cost_limit": 5}))
    first, second = work_at_cost(work, 3, "mine/a"), work_at_cost(work, 3, "mine/b")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()

    with pytest.raises(InterruptedError), modal_place.open_launcher(first, StagingView(folders[0])):
        line = refusal(lambda: open_launcher(second, StagingView(folders[1]), modal_place), UsageError)
        raise InterruptedError

    before = "this split and the splits before it"
    assert line.startswith(f"mine/b: {before} would cost about 6.00, and --cost-limit is 5.00")
    for split, folder in ((first, folders[0]), (second, folders[1])):  # no shard of the first was paid for
        open_launcher(split, StagingView(folder), modal_place)


def test_a_limit_without_a_price_is_refused(work: ScoreWork) -> None:
    on_gpu = replace(work, recipe=work.recipe.model_copy(update={"device": "cuda", "dtype": "bfloat16"}))

    line = refusal(lambda: list(ModalLauncherFactory(ModalSettings(cost_limit=5)).describe_costs([on_gpu])), UsageError)

    assert line == "mine/train: the cost is unknown, and --cost-limit is 5.00; set CORPUSMILL_MODAL_GPU_PRICE"


@pytest.mark.parametrize(
    ("timeout_s", "limit"),
    [
        (3600, "300 s because an interrupted call loses its work; set `scoring.shard_rows` to 6 or less"),
        (750, "250 s because CORPUSMILL_MODAL_TIMEOUT_S ends it; set `scoring.shard_rows` to 5 or less"),
    ],
)
def test_a_shard_of_more_than_five_minutes_is_refused(work: ScoreWork, timeout_s: int, limit: str) -> None:
    factory = ModalLauncherFactory(ModalSettings(gpu="none", timeout_s=timeout_s))
    long = replace(work, text_bytes=4 * 17_000 * 480)

    line = refusal(lambda: list(factory.describe_costs([long])), UsageError)

    assert line == f"mine/train: a shard would take about 480 s, and may take {limit}"
    fewer = replace(long, recipe=long.recipe.model_copy(update={"shard_rows": int(line.split()[-3])}))
    assert len(list(factory.describe_costs([fewer]))) == 2


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
    loopback: ModalOnLoopback,
    work: ScoreWork,
    folder: StagingView,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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


# Settings


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PLACES", "many", "invalid value 'many'"),
        ("GPU_PRICE", "-1", "invalid value '-1'"),
        ("TOKENS_PER_S", "inf", "invalid value 'inf'"),  # every estimate would be within every limit
        ("PRICES_READ", "yesterday", "invalid value 'yesterday'"),
        ("APP", "My App", "invalid value 'My App'"),
        ("PLACE", "4", "unknown setting; did you mean CORPUSMILL_MODAL_PLACES?"),
        (
            "KERNELS",
            "",
            "kernels are no longer fetched from a hub; unset it, and for quantised weights set `scoring.dequantise`",
        ),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: str, text: str) -> None:
    variable = f"CORPUSMILL_MODAL_{name}"

    line = refusal(lambda: ModalSettings.from_mapping({variable: value}), UsageError)

    assert line.startswith(f"{variable}: {text}")


def test_options_override_variables() -> None:
    variables = {"CORPUSMILL_MODAL_GPU": "H200", "CORPUSMILL_MODAL_COST_LIMIT": "5", "CORPUSMILL_MODAL_GPUS": ""}

    settings = ModalSettings.from_mapping(variables, cost_limit=7.5, gpu_price=None)

    assert (settings.gpu, settings.gpus, settings.cost_limit) == ("H200", 1, 7.5)


def test_the_cost_covers_all_resources_of_a_container() -> None:
    settings = ModalSettings(
        gpus=2, gpu_price=4, cpu=8, cpu_price=0.05, memory_gib=100, memory_price=0.01, region_factor=1.5
    )

    assert settings.cost(7200) == pytest.approx(2 * (8 + 0.4 + 1) * 1.5)
    assert ModalSettings().cost(7200) is None
    assert ModalSettings(gpu="none", gpu_price=4).cost(7200) is None
    assert ModalSettings(gpu="none", gpu_price=4, cpu=2, cpu_price=0.05).cost(7200) == pytest.approx(0.2)
