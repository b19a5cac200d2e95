"""Limits of estimated cost and time, checked before a call to Modal."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from modal_launching import open_launcher
from modal_loopback import ModalOnLoopback
from refusals import refusal

from pipeline_assets.corpus.scoring.launcher import ScoreWork
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.staging import StagingView
from resources.modal_launcher import ModalLauncherFactory


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
        "on Modal: mine/train: about 122,400,000 tokens in 1 shard, 2.00 hours of CPUs, cost about 8.00"
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


def test_rows_of_more_than_five_minutes_need_a_faster_container(work: ScoreWork) -> None:
    long = replace(work, text_bytes=4 * 17_000 * 4_800)

    line = refusal(lambda: list(ModalLauncherFactory(ModalSettings(gpu="none")).describe_costs([long])), UsageError)

    assert line.endswith("; set CORPUSMILL_MODAL_TOKENS_PER_S to the speed of a faster container")
