"""Recipes that commands write: none for artifacts that another recipe built."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content

from pipeline_assets.build.recipe_writing import copy_recipe, write_new_recipe
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.stage_a import StageARecipe


def content_in(folder: Path, **sections: object) -> dict[str, Any]:
    source = local_source(folder, "notes", [{"text": "five words are in here", "key": "note-0"}])
    return recipe_content(NO_COMMIT) | {"sources": [source], **sections}


def test_recipe_that_would_replace_artifacts_of_another_recipe_is_not_written(tmp_path: Path) -> None:
    content = content_in(tmp_path, outputs={"up_to": "normalized"})
    build(StageARecipe.model_validate(content), tmp_path / "data")
    other, root = content | {"shard_text_bytes": 1000}, tmp_path / "data"

    line = refusal(lambda: write_new_recipe(StageARecipe, other, root, "stage-a normalize", False), UsageError)

    assert "--replace" in line
    assert not (root / "recipes").exists()
    _, path = write_new_recipe(StageARecipe, other, root, "stage-a normalize", True)
    assert path == root / "recipes" / f"{content['name']}.yaml" and path.exists()


def test_an_artifact_whose_inputs_are_missing_is_no_obstacle(tmp_path: Path) -> None:
    content, root = content_in(tmp_path, outputs={"up_to": "normalized"}), tmp_path / "data"
    recipe, _ = write_new_recipe(StageARecipe, content, root, "stage-a normalize", False)
    before = build(recipe, root)["stage_a/normalized/notes"].manifest
    shutil.rmtree(root / "stage_a/mixed/raw")

    again, _ = write_new_recipe(StageARecipe, content, root, "stage-a normalize", False)

    assert build(again, root)["stage_a/normalized/notes"].manifest == before


def test_a_recipe_with_an_unusable_file_is_not_written(tmp_path: Path) -> None:
    pack = {"seq_len": 8, "strategy": "sequential", "tokenizer_path": "none.tiktoken"}
    content = content_in(tmp_path, pack=pack)

    line = refusal(lambda: write_new_recipe(StageARecipe, content, tmp_path / "data", "stage-a pack", False))

    assert "none.tiktoken" in line
    assert not (tmp_path / "data").exists()


def test_recipe_that_another_command_writes_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, content = tmp_path / "mine.yaml", content_in(tmp_path) | {"name": "mine"}
    original.write_text("system: stage_a")

    def write_before(operation: durable.Operation, path: Path) -> None:
        if (operation, path.name) == ("mkdir", "recipes"):
            path.mkdir()
            (path / "mine.yaml").write_text("system: healing")

    monkeypatch.setattr(durable, "failpoint", write_before)
    lines = [
        refusal(lambda: copy_recipe(original, "mine", tmp_path / "copied", replace=False), UsageError),
        refusal(lambda: write_new_recipe(StageARecipe, content, tmp_path / "new", "stage-a filter", False)),
    ]

    first, second = (tmp_path / root / "recipes/mine.yaml" for root in ("copied", "new"))
    assert lines[0].startswith(f"{first}: another recipe exists; ")
    assert lines[1] == f"{second}: another process has just written this recipe; run the same command again"
    assert first.read_text() == second.read_text() == "system: healing"


def test_a_linked_recipe_with_equal_text_remains_a_link(tmp_path: Path) -> None:
    original, kept = tmp_path / "mine.yaml", tmp_path / "data/recipes/mine.yaml"
    original.write_text("system: stage_a")
    kept.parent.mkdir(parents=True)
    kept.symlink_to(original)

    copy_recipe(original, "mine", tmp_path / "data", replace=False)

    assert kept.readlink() == original
