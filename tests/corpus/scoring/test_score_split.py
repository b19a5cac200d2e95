"""The scores of a split as they are built: resumed after a crash, refused where most of them would mean nothing."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from forgery import flip
from forked_workers import forked_here
from launcher_jobs import score_first_rows_last
from refusals import refusal
from tiny_scoring import (
    SCORES,
    copy_of,
    half_written,
    rows_of,
    save_whole_model,
    score_here,
    scored_rows,
    scoring_recipe,
    spoiled,
    text_of,
    write_pool,
)
from tiny_tokenizer import save_tokenizer

from pipeline_assets.build.checks import run_checks
from pipeline_assets.corpus.scoring import score_split
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.staging import StagingView
from pipeline_assets.spine.start_method import StartMethod
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS

SHARDS = {"shard_rows": 10, "rescored": 4}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_whole_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 rows of many lengths: four score shards. Tests only read it."""
    rows = rows_of(40)
    for number, row in enumerate(rows):
        row["text"] = text_of(number, answer="sure " * (number % 9 + 1))
    return write_pool(tmp_path_factory.mktemp("pool"), rows)


@pytest.fixture(scope="module")
def recipe(pool: Path, model: Path) -> dict[str, Any]:
    """The recipe of its scores."""
    return scoring_recipe(pool, model, **SHARDS)


@pytest.fixture(scope="module")
def sealed(recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with its scores."""
    root = tmp_path_factory.mktemp("sealed")
    score_here(root, recipe)
    return root


@pytest.fixture(scope="module")
def undisturbed(sealed: Path) -> str:
    """The digest of its scores."""
    [folder] = sealed.glob("nemotron/*/nll_scores/*/train")
    return open_artifact(folder).manifest.digest


def test_scores_with_nll_of_each_token_equal_others(pool: Path, model: Path, sealed: Path, tmp_path: Path) -> None:
    score_here(tmp_path, scoring_recipe(pool, model, **SHARDS, token_nll=True))

    rows = scored_rows(tmp_path)

    assert [{name: row[name] for name in row if name != "token_nll"} for row in rows] == scored_rows(sealed)
    assert [sum(row["token_nll"]) for row in rows] == pytest.approx([row["nll_sum"] for row in rows], rel=1e-6)


def test_rows_have_scores_in_the_order_of_the_pool(sealed: Path) -> None:
    rows = scored_rows(sealed)

    assert [row["id"] for row in rows] == [f"row-{number}" for number in range(40)]
    assert all(row["nll_mean"] > 0 for row in rows)
    [folder] = sealed.glob("nemotron/*/nll_scores/*/train")
    assert open_artifact(folder).manifest.identity.decisions["how_sure"]["rescored"] == 4


@pytest.mark.parametrize(
    ("workers", "start_method"),
    [(2, "forkserver"), *(pytest.param(number, "spawn", marks=pytest.mark.slow) for number in (1, 2))],
)
def test_neither_the_number_of_workers_nor_how_they_start_changes_a_byte(
    workers: int, start_method: StartMethod, recipe: dict[str, Any], undisturbed: str, tmp_path: Path
) -> None:
    assert score_here(tmp_path, recipe, RunSettings(workers, start_method)).digest == undisturbed


def test_the_order_in_which_shards_finish_changes_no_byte(
    recipe: dict[str, Any], undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_split, "score_shard", partial(score_first_rows_last, marker=tmp_path / "last is done"))

    with forked_here():
        found = score_here(tmp_path, recipe, RunSettings(2))

    assert found.digest == undisturbed


def test_what_came_of_every_row_is_in_the_ledger(model: Path, tmp_path: Path) -> None:
    """Two pools overlap: an id is scored once, in the first."""
    pool = write_pool(tmp_path / "pool", rows_of(6), "candidates_a/train-00000-of-00001.parquet")
    write_pool(pool, rows_of(8), "candidates_b/train-00000-of-00001.parquet")

    manifest = score_here(tmp_path, scoring_recipe(pool, model, max_rows=7))

    counts = manifest.identity.counts
    assert counts["ledger"] == {
        "in": 14,
        "out": 7,
        "dropped": {"not_sampled": 1, "repeated_id": 6},
        "rejected": {},
    }
    found = scored_rows(tmp_path)
    assert len({row["id"] for row in found}) == counts["documents"] == 7
    assert {row["pool_file"].partition("/")[0] for row in found if row["id"] < "row-6"} == {"candidates_a"}


def test_text_that_the_models_own_tokenizer_loses_fails_above_the_limit(model: Path, tmp_path: Path) -> None:
    lossy = save_tokenizer(copy_of(model, tmp_path / "model"), has_ascii_only=True)
    rows = [
        {"id": str(number), "text": text_of(number, answer="abc的一是"), "loss_mode": "assistant_all"}
        for number in range(4)
    ]
    pool = write_pool(tmp_path / "pool", rows)

    manifest = score_here(tmp_path, scoring_recipe(pool, lossy, tokenizer="model"))

    lost = (read_losses(manifest) or {})["rows"]
    assert (lost.unknown_tokens, lost.lost_characters) == (0, 4 * 3)
    for limit, blocks in (("0.05", True), ("1", False)):
        recipe = NemotronRecipe.from_mapping(
            scoring_recipe(pool, lossy, tokenizer="model", max_unknown_fraction=limit), "the test"
        )
        target = recipe.target(SCORES, "mine/train")
        [check] = [one for one in run_checks(target, tmp_path) if one.name == "unknown_tokens_within_limit"]
        assert (check.passed, check.is_blocking_failure) == (False, blocks)


# Shards of a build that was cut off


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def cut_off(root: Path, recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The building folder of a build that ended when all shards were scored, and nothing was made of them yet."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(score_split, "_choose_sample", end)
        score_here(root, recipe)
    [building] = root.glob("nemotron/*/nll_scores/mine/.train.building.*")
    return building


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink], ids=["truncated", "flipped", "gone"])
@pytest.mark.parametrize("what", [".work/scored/00000-000000010.parquet", ".receipts/score/00000-000000010.json"])
def test_a_torn_score_shard_is_scored_again(
    recipe: dict[str, Any],
    undisturbed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    what: str,
) -> None:
    building = cut_off(tmp_path, recipe, monkeypatch)

    damage(building / what)
    manifest = score_here(tmp_path, recipe)

    assert manifest.digest == undisturbed
    assert manifest.provenance["adopted_shards"] == 3
    assert half_written(tmp_path) == []


def test_shards_that_were_scored_by_other_means_are_not_put_together(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is where torch was upgraded between a build that was cut off and the next."""
    folder = StagingView(cut_off(tmp_path, recipe, monkeypatch))
    receipt = folder.read_receipt("score", "00000-000000010")
    assert receipt is not None
    notes = {**receipt.notes, "made_by": {**receipt.notes["made_by"], "torch": "1.0"}}
    folder.commit("score", "00000-000000010", replace(receipt, notes=notes))

    line = refusal(lambda: score_here(tmp_path, recipe))

    [building] = tmp_path.glob("nemotron/*/nll_scores/mine/.train.building.*")
    assert line.startswith(f"{building}: shards were scored in different environments: ")
    assert '"torch": "1.0"' in line
    assert line.endswith("remove this folder, and score all shards on equal machines with equal library versions")


# Logits that are no numbers


def rows_with_tildes(rows: int, tildes: int) -> list[dict[str, Any]]:
    made = rows_of(rows)
    for number in range(tildes):
        made[3 * number]["text"] = text_of(number, question="~ + 2?")
    return made


def test_a_row_in_a_hundred_may_have_no_finite_score(model: Path, tmp_path: Path) -> None:
    pool = write_pool(tmp_path / "pool", rows_with_tildes(100, 1))

    manifest = score_here(tmp_path, scoring_recipe(pool, spoiled(model, tmp_path / "model")))

    assert manifest.identity.counts["unscored"] == {"not_finite": 1}
    found = scored_rows(tmp_path)
    assert [row["id"] for row in found if row["nll_mean"] is None] == ["row-0"]
    assert (found[0]["reason"], found[0]["ppl"], found[0]["completion_token_count"]) == ("not_finite", None, 19)
    assert sorted(row["percentile_within_split"] for row in found[1:])[0] > 0


def test_more_rows_without_a_finite_score_stop_the_build_and_nothing_is_sealed(model: Path, tmp_path: Path) -> None:
    pool = write_pool(tmp_path / "pool", rows_with_tildes(100, 2))
    folder = spoiled(model, tmp_path / "model")

    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, folder)))

    assert line == (
        f"{folder}: the logits of 2 of 100 rows, more than 1 %, are not finite; "
        "check the model's weights, or use bfloat16 instead of float16"
    )
    assert not [*tmp_path.glob("nemotron/*/nll_scores/*/*/manifest.json")]


# What is asked of scores


def test_pools_of_which_no_row_can_be_scored_are_held_back(model: Path, tmp_path: Path) -> None:
    rows = [
        *[row | {"loss_mode": "some"} for row in rows_of(2)],
        {"id": "x", "text": "x", "loss_mode": "assistant_all"},
    ]
    recipe = scoring_recipe(write_pool(tmp_path / "pool", rows), model)
    assert score_here(tmp_path, recipe).identity.counts["batches"] == 0
    [folder] = tmp_path.glob("nemotron/*/nll_scores/*/train")

    [asked] = [one for one in SYSTEMS.kinds[SCORES].checks if one.name == "rows_have_scores"]

    verdict = asked.evaluate(open_artifact(folder), None, tmp_path)
    assert asked.is_blocking
    assert not verdict.passed
    assert verdict.because == (
        "0 of 3 rows have a score; without one: 1 text_outside_messages, 2 unknown_loss_mode "
        "(known loss modes: assistant_all, assistant_last)"
    )


# Models and pools that are not as they were


@pytest.mark.parametrize(
    ("gone", "kind", "said"),
    [
        ("tokenizer.json", InputError, "the model has no tokenizer.json; choose a model that has one"),
        ("config.json", InputError, "config.json not found; use a model in the format of transformers"),
        ("*", UsageError, "the folder is empty; use a folder that contains a model"),
    ],
)
def test_a_model_that_is_refused_is_named_as_the_user_knows_it(
    pool: Path, model: Path, tmp_path: Path, gone: str, kind: type[InputError], said: str
) -> None:
    folder = copy_of(model, tmp_path / "model")
    for path in [*folder.glob(gone)]:
        path.unlink()

    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, folder)), kind)

    assert line.startswith(f"{folder}: {said}")
    assert half_written(tmp_path) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_missed_before_any_shard_is_begun(pool: Path, model: Path, tmp_path: Path) -> None:
    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, model, device="cuda")), UsageError)

    fix = "set `scoring.device` to cpu, or install a CUDA build"
    assert line == f"scoring.device: no GPU found that PyTorch can use; {fix}"
    assert half_written(tmp_path) == []


def test_a_pool_that_changes_while_it_is_scored_stops_the_build(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = write_pool(tmp_path / "pool", rows_of(20))
    sample = score_split._choose_sample

    def changed_then(*arguments: Any) -> object:
        write_pool(pool, rows_of(20, first=1))
        return sample(*arguments)

    monkeypatch.setattr(score_split, "_choose_sample", changed_then)

    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, model, rescored=0)), InputError)

    assert "data/train.parquet" in line
    assert line.endswith("stop writing to the folder, and run the recipe again")
    assert not [*tmp_path.glob("nemotron/*/nll_scores/*/*/manifest.json")]


def test_a_byte_that_changed_with_time_and_size_as_they_were_stops_the_build(model: Path, tmp_path: Path) -> None:
    """What nobody sees by looking at the folder."""
    copied = write_pool(tmp_path / "pool", rows_of(9), compression="none")
    recipe, path = scoring_recipe(copied, model, rescored=0), copied / "data" / "train.parquet"
    score_here(tmp_path, recipe)
    [scores] = tmp_path.glob("nemotron/*/nll_scores/*/train")
    for file in scores.iterdir():
        file.unlink()
    scores.rmdir()
    before, data = path.stat(), bytearray(path.read_bytes())
    data[data.index(b"row-7") : data.index(b"row-7") + 5] = b"row_7"
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    line = refusal(lambda: score_here(tmp_path, recipe), InputError)

    assert line.startswith(f"{path}: sha256 is ")
    assert pq.ParquetFile(path).read()["id"].to_pylist()[7] == "row_7"
    assert not (scores / "manifest.json").exists()
