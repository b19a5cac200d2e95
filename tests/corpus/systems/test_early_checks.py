"""Missing files and libraries of later steps are found before a build."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill
from refusals import refusal
from stage_a_build import build, local_source, parse_recipe

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.nemotron import NemotronRecipe

FAISS = {"near": {"faiss": {}}}


def stage_a_recipe(folder: Path) -> Recipe:
    return parse_recipe(local_source(folder, "notes", [{"text": "one"}]), dedup=FAISS)


def nemotron_recipe(folder: Path) -> Recipe:
    dataset = {"dataset": "maker/chats", "revision": "a" * 40, "splits": ["low"], "domain": "math"}
    content: dict[str, Any] = {"rows": {}, "deduplicate": FAISS, "datasets": [dataset]}
    return NemotronRecipe.from_mapping({"system": "nemotron", "name": "chats", **content}, "chats.yaml")


@pytest.mark.parametrize(("recipe", "section"), [(stage_a_recipe, "dedup"), (nemotron_recipe, "deduplicate")])
def test_missing_faiss_is_an_error_before_the_build(
    recipe: Any, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)

    line = refusal(lambda: recipe(tmp_path).check_local_files(tmp_path), UsageError)

    assert line.startswith(f"{section}.near.faiss: faiss is not installed; ")


def test_missing_faiss_is_no_error_if_the_corpus_is_deduplicated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = stage_a_recipe(tmp_path)
    build(recipe, tmp_path)
    monkeypatch.setitem(sys.modules, "faiss", None)

    recipe.check_local_files(tmp_path)


def test_files_of_steps_that_a_command_leaves_out_are_not_needed(tmp_path: Path, corpusmill: Corpusmill) -> None:
    rows = [{"text": f"text {number}", "key": str(number)} for number in range(3)]
    sources = [local_source(tmp_path, name, rows) for name in ("notes", "pages")]
    tokenizer = {"family": "hf_tokenizer", "sha256": "0" * 64, "end_of_document": "<|end|>"}
    pack = {"tokenizer": tokenizer, "tokenizer_path": "none/tokenizer.json"}
    path = tmp_path / "mixed.yaml"
    path.write_text(json.dumps({"system": "stage_a", "name": "mixed", "sources": sources, "pack": pack}))

    ingested = corpusmill("stage-a", "ingest-manifest", "--manifest", path, "--out-dir", tmp_path / "out")
    notes = corpusmill("run", path, "--partition", "notes", "--data", tmp_path / "data")
    whole = corpusmill("run", path, "--data", tmp_path / "data")

    assert (ingested.returncode, notes.returncode) == (0, 0), ingested.stderr + notes.stderr
    assert "none/tokenizer.json: cannot read the tokenizer file" in whole.stderr
    assert not (tmp_path / "data/stage_a/mixed/normalized/pages").exists()
