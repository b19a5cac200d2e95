"""Scores of a split: resumed after a crash, refused if mostly meaningless."""

import os
import shutil
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
    build_rows,
    copy_model,
    half_written,
    render_text,
    save_whole_model,
    score_here,
    scored_rows,
    scoring_recipe,
    spoiled,
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
    rows = build_rows(40)
    for number, row in enumerate(rows):
        row["text"] = render_text(number, answer="sure " * (number % 9 + 1))
    return write_pool(tmp_path_factory.mktemp("pool"), rows)


@pytest.fixture(scope="module")
def recipe(pool: Path, model: Path) -> dict[str, Any]:
    """Build the scoring recipe of the pool."""
    return scoring_recipe(pool, model, **SHARDS)


@pytest.fixture(scope="module")
def sealed(recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a data root with the scores of the pool."""
    root = tmp_path_factory.mktemp("sealed")
    score_here(root, recipe)
    return root


@pytest.fixture(scope="module")
def undisturbed(sealed: Path) -> str:
    """Return the digest of undisturbed scores."""
    [folder] = sealed.glob("nemotron/*/nll_scores/*/train")
    return open_artifact(folder).manifest.digest


def test_scores_with_token_nll_equal_plain_scores(pool: Path, model: Path, sealed: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_and_start_method_change_no_byte(
    start_method: StartMethod, recipe: dict[str, Any], undisturbed: str, tmp_path: Path
) -> None:
    assert score_here(tmp_path, recipe, RunSettings(2, start_method)).digest == undisturbed


def test_completion_order_of_shards_changes_no_byte(
    recipe: dict[str, Any], undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_split, "score_shard", partial(score_first_rows_last, marker=tmp_path / "last is done"))

    with forked_here():
        manifest = score_here(tmp_path, recipe, RunSettings(2))

    assert manifest.digest == undisturbed


def test_ledger_has_the_fate_of_every_row(model: Path, tmp_path: Path) -> None:
    """Two pools overlap: an id is scored once, in the first."""
    pool = write_pool(tmp_path / "pool", build_rows(6), "candidates_a/train-00000-of-00001.parquet")
    write_pool(pool, build_rows(8), "candidates_b/train-00000-of-00001.parquet")

    manifest = score_here(tmp_path, scoring_recipe(pool, model, max_rows=7))

    counts = manifest.identity.counts
    dropped = {"not_sampled": 1, "repeated_id": 6}
    assert counts["ledger"] == {"in": 14, "out": 7, "dropped": dropped, "rejected": {}}
    results = scored_rows(tmp_path)
    assert len({row["id"] for row in results}) == counts["documents"] == 7
    assert {row["pool_file"].partition("/")[0] for row in results if row["id"] < "row-6"} == {"candidates_a"}


def test_text_lost_by_the_models_own_tokenizer_fails_above_the_limit(model: Path, tmp_path: Path) -> None:
    lossy = save_tokenizer(copy_model(model, tmp_path / "model"), has_ascii_only=True)
    rows = [row | {"text": render_text(number, answer="abc的一是")} for number, row in enumerate(build_rows(4))]
    pool = write_pool(tmp_path / "pool", rows)

    manifest = score_here(tmp_path, scoring_recipe(pool, lossy, tokenizer="model"))

    lost = (read_losses(manifest) or {})["rows"]
    assert (lost.unknown_tokens, lost.lost_characters) == (0, 4 * 3)
    for limit, blocks in (("0.05", True), ("1", False)):
        content = scoring_recipe(pool, lossy, tokenizer="model", max_unknown_fraction=limit)
        target = NemotronRecipe.from_mapping(content, "the test").target(SCORES, "mine/train")
        [check] = [check for check in run_checks(target, tmp_path) if check.name == "unknown_tokens_within_limit"]
        assert (check.passed, check.is_blocking_failure) == (False, blocks)


# Shards of an interrupted build


Damage = Callable[[Path], None]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def interrupt_build(root: Path, recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Interrupt a build after all its shards are scored; return its staging folder."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(score_split, "_choose_sample", interrupt)
        score_here(root, recipe)
    [staging] = root.glob("nemotron/*/nll_scores/mine/.train.building.*")
    return staging


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink], ids=["truncated", "flipped", "gone"])
@pytest.mark.parametrize("file", [".work/scored/00000-000000010.parquet", ".receipts/score/00000-000000010.json"])
def test_a_torn_score_shard_is_scored_again(
    recipe: dict[str, Any], undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Damage, file: str
) -> None:
    staging = interrupt_build(tmp_path, recipe, monkeypatch)

    damage(staging / file)
    manifest = score_here(tmp_path, recipe)

    assert manifest.digest == undisturbed
    assert manifest.provenance["adopted_shards"] == 3
    assert half_written(tmp_path) == []


def test_shards_scored_in_different_environments_are_not_combined(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build is interrupted before an upgrade of torch, and resumed after it."""
    folder = StagingView(interrupt_build(tmp_path, recipe, monkeypatch))
    receipt = folder.read_receipt("score", "00000-000000010")
    assert receipt is not None
    notes = {**receipt.notes, "made_by": {**receipt.notes["made_by"], "torch": "1.0"}}
    folder.commit("score", "00000-000000010", replace(receipt, notes=notes))

    line = refusal(lambda: score_here(tmp_path, recipe))

    [staging] = tmp_path.glob("nemotron/*/nll_scores/mine/.train.building.*")
    assert line.startswith(f"{staging}: shards were scored in different environments: ")
    assert '"torch": "1.0"' in line
    assert line.endswith("remove this folder, and score all shards on equal machines with equal library versions")


# Logits that are no numbers


def build_rows_with_tildes(rows: int, tildes: int) -> list[dict[str, Any]]:
    pool_rows = build_rows(rows)
    for number in range(tildes):
        pool_rows[3 * number]["text"] = render_text(number, question="~ + 2?")
    return pool_rows


def test_a_row_in_a_hundred_may_have_no_finite_score(model: Path, tmp_path: Path) -> None:
    pool = write_pool(tmp_path / "pool", build_rows_with_tildes(100, 1))

    manifest = score_here(tmp_path, scoring_recipe(pool, spoiled(model, tmp_path / "model")))

    assert manifest.identity.counts["unscored"] == {"not_finite": 1}
    results = scored_rows(tmp_path)
    assert [row["id"] for row in results if row["nll_mean"] is None] == ["row-0"]
    assert (results[0]["reason"], results[0]["ppl"], results[0]["completion_token_count"]) == ("not_finite", None, 19)
    assert sorted(row["percentile_within_split"] for row in results[1:])[0] > 0


def test_more_rows_without_a_finite_score_stop_the_build_before_the_seal(model: Path, tmp_path: Path) -> None:
    pool = write_pool(tmp_path / "pool", build_rows_with_tildes(100, 2))
    folder = spoiled(model, tmp_path / "model")

    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, folder)))

    assert line == (
        f"{folder}: the logits of 2 of 100 rows, more than 1 %, are not finite; "
        "check the model's weights, or use bfloat16 instead of float16"
    )
    assert not [*tmp_path.glob("nemotron/*/nll_scores/*/*/manifest.json")]


# Checks of scores


def test_pools_without_a_scorable_row_fail_a_blocking_check(model: Path, tmp_path: Path) -> None:
    rows = [row | {"loss_mode": "some"} for row in build_rows(2)]
    rows.append({"id": "x", "text": "x", "loss_mode": "assistant_all"})
    recipe = scoring_recipe(write_pool(tmp_path / "pool", rows), model)
    assert score_here(tmp_path, recipe).identity.counts["batches"] == 0
    [folder] = tmp_path.glob("nemotron/*/nll_scores/*/train")

    [check] = [registered for registered in SYSTEMS.kinds[SCORES].checks if registered.name == "rows_have_scores"]

    verdict = check.evaluate(open_artifact(folder), None, tmp_path)
    assert check.is_blocking
    assert not verdict.passed
    assert verdict.because == (
        "0 of 3 rows have a score; without one: 1 text_outside_messages, 2 unknown_loss_mode "
        "(known loss modes: assistant_all, assistant_last)"
    )


# Changed models and pools


@pytest.mark.parametrize(
    ("missing", "kind", "message"),
    [
        ("tokenizer.json", InputError, "the model has no tokenizer.json; choose a model that has one"),
        ("config.json", InputError, "config.json not found; use a model in the format of transformers"),
        ("*", UsageError, "the folder is empty; use a folder that contains a model"),
    ],
)
def test_a_refused_model_is_named_by_its_folder(
    pool: Path, model: Path, tmp_path: Path, missing: str, kind: type[InputError], message: str
) -> None:
    folder = copy_model(model, tmp_path / "model")
    for path in [*folder.glob(missing)]:
        path.unlink()

    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, folder)), kind)

    assert line.startswith(f"{folder}: {message}")
    assert half_written(tmp_path) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_reported_before_any_shard_starts(pool: Path, model: Path, tmp_path: Path) -> None:
    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, model, device="cuda")), UsageError)

    fix = "set `scoring.device` to cpu, or install a CUDA build"
    assert line == f"scoring.device: no GPU found that PyTorch can use; {fix}"
    assert half_written(tmp_path) == []


def test_a_pool_that_changes_during_scoring_stops_the_build(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = write_pool(tmp_path / "pool", build_rows(20))
    sample = score_split._choose_sample

    def change_pool_and_sample(*arguments: Any) -> object:
        write_pool(pool, build_rows(20, first=1))
        return sample(*arguments)

    monkeypatch.setattr(score_split, "_choose_sample", change_pool_and_sample)

    line = refusal(lambda: score_here(tmp_path, scoring_recipe(pool, model, rescored=0)), InputError)

    assert "data/train.parquet" in line
    assert line.endswith("restore the files, or stop writing to the folder and run the recipe again")
    assert not [*tmp_path.glob("nemotron/*/nll_scores/*/*/manifest.json")]


def test_a_changed_byte_stops_the_build_despite_equal_time_and_size(model: Path, tmp_path: Path) -> None:
    """Time and size in the folder do not reveal this change."""
    copied = write_pool(tmp_path / "pool", build_rows(9), compression="none")
    recipe, path = scoring_recipe(copied, model, rescored=0), copied / "data" / "train.parquet"
    score_here(tmp_path, recipe)
    [scores] = tmp_path.glob("nemotron/*/nll_scores/*/train")
    shutil.rmtree(scores)
    before, data = path.stat(), bytearray(path.read_bytes())
    data[data.index(b"row-7") : data.index(b"row-7") + 5] = b"row_7"
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    line = refusal(lambda: score_here(tmp_path, recipe), InputError)

    assert line.startswith(f"{path}: sha256 is ")
    assert pq.ParquetFile(path).read()["id"].to_pylist()[7] == "row_7"
    assert not (scores / "manifest.json").exists()
