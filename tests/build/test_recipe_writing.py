"""Recipes that commands write: none for artifacts that another recipe built."""

import shutil
from pathlib import Path

import pytest
from refusals import refusal
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content

from pipeline_assets.build.recipe_writing import copy_recipe, write_new_recipe
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.stage_a import StageARecipe


def test_recipe_that_would_replace_artifacts_of_another_recipe_is_not_written(tmp_path: Path) -> None:
    source = local_source(tmp_path, "notes", [{"text": "five words are in here", "key": "note-0"}])
    content = recipe_content(NO_COMMIT) | {"sources": [source], "outputs": {"up_to": "normalized"}}
    build(StageARecipe.model_validate(content), tmp_path / "data")
    other, root = content | {"shard_text_bytes": 1000}, tmp_path / "data"

    line = refusal(lambda: write_new_recipe(StageARecipe, other, root, "stage-a normalize", False), UsageError)

    assert "--replace" in line
    assert not (root / "recipes").exists()
    _, path = write_new_recipe(StageARecipe, other, root, "stage-a normalize", True)
    assert path == root / "recipes" / f"{content['name']}.yaml" and path.exists()


def test_an_artifact_whose_inputs_are_missing_is_no_obstacle(tmp_path: Path) -> None:
    source, root = (
        local_source(tmp_path, "notes", [{"text": "five words are in here", "key": "note-0"}]),
        tmp_path / "data",
    )
    content = recipe_content(NO_COMMIT) | {"sources": [source], "outputs": {"up_to": "normalized"}}
    recipe, _ = write_new_recipe(StageARecipe, content, root, "stage-a normalize", False)
    before = build(recipe, root)["stage_a/normalized/notes"].manifest
    shutil.rmtree(root / "stage_a/mixed/raw")

    again, _ = write_new_recipe(StageARecipe, content, root, "stage-a normalize", False)

    assert build(again, root)["stage_a/normalized/notes"].manifest == before


def test_a_recipe_with_an_unusable_file_is_not_written(tmp_path: Path) -> None:
    source = local_source(tmp_path, "notes", [{"text": "five words are in here", "key": "note-0"}])
    pack = {"seq_len": 8, "strategy": "sequential", "tokenizer_path": "none.tiktoken"}
    content = recipe_content(NO_COMMIT) | {"sources": [source], "pack": pack}

    line = refusal(lambda: write_new_recipe(StageARecipe, content, tmp_path / "data", "stage-a pack", False))

    assert "none.tiktoken" in line
    assert not (tmp_path / "data").exists()


def test_recipe_that_another_command_writes_meanwhile_is_not_overwritten_by_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, kept = tmp_path / "mine.yaml", tmp_path / "data/recipes/mine.yaml"
    original.write_text("system: stage_a")

    def write_before(operation: durable.Operation, path: Path) -> None:
        if (operation, path) == ("mkdir", kept.parent):
            path.mkdir()
            kept.write_text("system: healing")

    monkeypatch.setattr(durable, "failpoint", write_before)
    line = refusal(lambda: copy_recipe(original, "mine", tmp_path / "data", replace=False), UsageError)

    assert line.startswith(f"{kept}: another recipe exists; ")
    assert kept.read_text() == "system: healing"


def test_recipe_that_another_command_writes_meanwhile_is_not_overwritten_by_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = local_source(tmp_path, "notes", [{"text": "five words are in here", "key": "note-0"}])
    content = recipe_content(NO_COMMIT) | {"sources": [source]}
    kept = tmp_path / "data/recipes" / f"{content['name']}.yaml"

    def write_before(operation: durable.Operation, path: Path) -> None:
        if (operation, path) == ("mkdir", kept.parent):
            path.mkdir()
            kept.write_text("system: healing")

    monkeypatch.setattr(durable, "failpoint", write_before)
    line = refusal(lambda: write_new_recipe(StageARecipe, content, tmp_path / "data", "stage-a filter", False))

    assert line == f"{kept}: another process has just written this recipe; run the same command again"
    assert kept.read_text() == "system: healing"


def test_a_linked_recipe_with_equal_text_remains_a_link(tmp_path: Path) -> None:
    original, kept = tmp_path / "mine.yaml", tmp_path / "data/recipes/mine.yaml"
    original.write_text("system: stage_a")
    kept.parent.mkdir(parents=True)
    kept.symlink_to(original)

    copy_recipe(original, "mine", tmp_path / "data", replace=False)

    assert kept.readlink() == original
