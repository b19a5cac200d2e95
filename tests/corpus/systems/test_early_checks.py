"""Missing files and libraries of later steps are found before a build."""

import hashlib
import json
import logging
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, get_args

import pytest
from command_results import Corpusmill
from hub_pools import build_rows as build_pool_rows
from hub_pools import pools
from parallel_build import contents, write_set
from refusals import refusal
from stage2_build import DATASETS, recipe_content
from stage_a_build import INLINE, build, local_source, parse_recipe
from tiny_scoring import SCORES, build_rows, save_whole_model, scoring_recipe, write_pool

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.systems.early_checks import check_scorer
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from pipeline_assets.systems.stage_a import StageARecipe

FAISS = {"near": {"faiss": {}}}
SCORING = {"model": {"path": "model"}}


def stage_a_recipe(folder: Path) -> Recipe:
    return parse_recipe(local_source(folder, "notes", [{"text": "one"}]), dedup=FAISS)


DATASET = {"dataset": "maker/chats", "revision": "a" * 40, "splits": ["low"], "domain": "math"}


def nemotron_recipe(folder: Path, **sections: object) -> Recipe:
    content = {"rows": {}, "deduplicate": FAISS, "datasets": [DATASET]} | sections
    return NemotronRecipe.from_mapping({"system": "nemotron", "name": "chats", **content}, "chats.yaml")


def stage2_recipe(folder: Path) -> Recipe:
    content = recipe_content(dict.fromkeys(DATASETS.values(), "a" * 40)) | {"dedup": FAISS}
    return Stage2Recipe.from_mapping(content, "small.yaml")


@pytest.mark.parametrize(
    ("recipe", "section"), [(stage_a_recipe, "dedup"), (nemotron_recipe, "deduplicate"), (stage2_recipe, "dedup")]
)
def test_missing_faiss_is_an_error_before_the_build(
    recipe: Any, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)

    line = refusal(lambda: recipe(tmp_path).check_prerequisites(tmp_path), UsageError)

    assert line.startswith(f"{section}.near.faiss: faiss is not installed; ")


def test_missing_faiss_is_no_error_if_the_corpus_is_deduplicated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = stage_a_recipe(tmp_path)
    build(recipe, tmp_path)
    monkeypatch.setitem(sys.modules, "faiss", None)

    recipe.check_prerequisites(tmp_path)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_missing_artifacts_of_other_recipes_are_errors_before_the_build(
    command: str, tmp_path: Path, corpusmill: Corpusmill
) -> None:
    source, data = local_source(tmp_path, "notes", [{"text": "one"}]), tmp_path / "data"
    seen = [f"stage_a/{name}/signatures/{name}" for name in ("first", "second")]
    path = tmp_path / "mixed.yaml"
    path.write_text(json.dumps({"system": "stage_a", "name": "mixed", "sources": [source], "dedup": {}, "seen": seen}))

    result = corpusmill(command, path, "--data", data)

    fix = "build it first, or correct the recipe"
    lines = [f"corpusmill: {path}: seen: {data}/{folder}: no artifact is sealed here; {fix}" for folder in seen]
    assert (result.returncode, result.stderr.splitlines()) == (2, lines)


def test_signatures_with_other_settings_are_an_error_before_the_build(tmp_path: Path) -> None:
    source, outputs = local_source(tmp_path, "notes", [{"text": "one", "key": "1"}]), {"signatures": True}
    build(parse_recipe(source, dedup={"near": {}}, outputs=outputs, name="first"), tmp_path)
    near = {"minhash": {"shingle_words": 3}}
    later = parse_recipe(source, dedup={"near": near}, seen=["stage_a/first/signatures/first"], name="later")

    line = refusal(lambda: later.check_prerequisites(tmp_path), UsageError)

    assert line.startswith(f"{tmp_path}/stage_a/first/signatures/first: signatures cannot be compared: ")


SEALED = [{"folder": "pools/chats", "dataset": "chats", "splits": ["low"]}]
NORMALIZED = {"kind": "normalized", "source": "notes"}
SEGMENTS = {"segments": [{"name": "one", "tokens": 10, "weights": {"notes": 1}}]}


@pytest.mark.parametrize(
    ("kind", "content", "key", "folder"),
    [
        (NemotronRecipe, {"sealed_pools": SEALED, "scoring": SCORING}, "sealed_pools", "pools/chats"),
        (Stage2Recipe, {"mixture": "first", "segments": SEGMENTS}, "mixture", "stage2/first/shards/notes"),
        (StageARecipe, {"sources": [NORMALIZED]}, "sources", "stage_a/later/normalized/notes"),
    ],
)
def test_missing_artifacts_are_errors_that_name_their_key_before_the_build(
    kind: type[Recipe], content: dict[str, Any], key: str, folder: str, tmp_path: Path
) -> None:
    [system] = get_args(kind.model_fields["system"].annotation)
    recipe = kind.from_mapping(content | {"system": system, "name": "later"}, "later.yaml")

    assert refusal(lambda: recipe.check_prerequisites(tmp_path), UsageError) == (
        f"{key}: {tmp_path}/{folder}: no artifact is sealed here; build it first, or correct the recipe"
    )


def test_splits_without_rows_in_sealed_pools_are_errors_before_the_build(tmp_path: Path) -> None:
    rows = build_pool_rows("0" * 40, 3)
    built = pools(tmp_path, {"high": rows, "low": rows})
    section = {"folder": str(built.folder), "dataset": "chats", "splits": ["hihg", "low", "valid"]}
    content = {"system": "nemotron", "name": "scored", "sealed_pools": [section], "scoring": SCORING}
    recipe = NemotronRecipe.from_mapping(content, "scored.yaml")

    with pytest.raises(UsageError) as caught:
        recipe.check_prerequisites(tmp_path)

    fix = "omit or correct it in `sealed_pools`; splits with rows: high, low"
    assert [str(error) for error in (caught.value, *caught.value.others)] == [
        f"{built.folder}: no pool has a row of the split {split}; {fix}" for split in ("hihg", "valid")
    ]


def test_the_model_of_sentence_pairs_is_checked_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path / "set")
    content = contents({"path": "set", "files": ["{split}-*.parquet"]})
    pinned = {"model": "none.model", "model_sha256": "0" * 64}
    trained, external = (
        ParallelRecipe.from_mapping(content | {"encode": encode}, "pairs.yaml") for encode in ({}, pinned)
    )
    monkeypatch.setitem(sys.modules, "sentencepiece", None)

    package = refusal(lambda: trained.check_prerequisites(tmp_path), UsageError)
    model = refusal(lambda: external.check_prerequisites(tmp_path))

    assert package.startswith("tokenizers: sentencepiece is not installed; ")
    assert model.startswith(f"{tmp_path}/none.model: cannot read the tokenizer file (No such file or directory); ")


@pytest.mark.parametrize("kind", ["trained", "file"])
def test_a_dtype_that_is_too_small_for_the_vocabulary_is_an_error_before_the_build(tmp_path: Path, kind: str) -> None:
    content = recipe_content(dict.fromkeys(DATASETS.values(), "a" * 40))
    content["shards"] |= {"dtype": "uint16"}
    content["tokenizer"] |= {"vocab_size": 70_000}
    if kind == "file":
        vocabulary = {f"word{number}": number for number in range(70_000)}
        added = {"content": "word0", "id": 0, "special": True, "normalized": False, "single_word": False}
        added |= {"lstrip": False, "rstrip": False}
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "word1"}
        data = json.dumps({"version": "1.0", "added_tokens": [added], "model": model}).encode()
        (tmp_path / "tokenizer.json").write_bytes(data)
        content["tokenizer"] = {"kind": "file", "path": "tokenizer.json", "family": "hf_tokenizer"}
        content["tokenizer"] |= {"sha256": hashlib.sha256(data).hexdigest(), "end_of_document": "word0"}
    recipe = Stage2Recipe.from_mapping(content, "small.yaml")

    assert refusal(lambda: recipe.check_prerequisites(tmp_path), UsageError) == (
        "shards.dtype: uint16 allows only ids below 65,536, and the vocabulary has 70,000; remove it, or set int32"
    )


@pytest.mark.parametrize("sections", [{"scoring": SCORING}, {"rows": {"template": {"path": "model"}}}])
def test_a_missing_model_folder_is_an_error_before_the_build(sections: dict[str, object], tmp_path: Path) -> None:
    recipe = nemotron_recipe(tmp_path, deduplicate={}, pools={}, **sections)

    line = refusal(lambda: recipe.check_prerequisites(tmp_path), UsageError)

    assert line == f"{tmp_path}/model: folder not found; correct the model's `path`"


def test_a_max_length_above_that_of_a_local_model_is_an_error_before_the_build(tmp_path: Path) -> None:
    save_whole_model(tmp_path / "model")
    recipe = scoring_recipe(write_pool(tmp_path / "pool", build_rows(1)), tmp_path / "model", max_length=100_000)

    line = refusal(lambda: NemotronRecipe.from_mapping(recipe, "mine.yaml").check_prerequisites(tmp_path), UsageError)

    assert line == "scoring.max_length: must be at most the model's 4,096 tokens, got 100,000; set 4096 or less"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_missing_torch_is_an_error_before_a_build_of_scores(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scoring_recipe(write_pool(tmp_path / "pool", build_rows(1)), tmp_path / "model", device=device)
    targets = NemotronRecipe.from_mapping(recipe, "mine.yaml").targets()
    monkeypatch.setitem(sys.modules, "torch", None)

    line = refusal(lambda: check_scorer(targets, tmp_path), UsageError)
    check_scorer([target for target in targets if target.kind.name != SCORES], tmp_path)

    assert line.startswith("scoring: torch is not installed; ")


def test_a_missing_gpu_is_an_error_before_the_build(tmp_path: Path, corpusmill: Corpusmill) -> None:
    save_whole_model(tmp_path / "model")
    recipe = scoring_recipe(write_pool(tmp_path / "pool", build_rows(1)), tmp_path / "model", device="cuda")
    (tmp_path / "mine.yaml").write_text(json.dumps(recipe))

    run, plan = (
        corpusmill(command, tmp_path / "mine.yaml", "--data", tmp_path / "data", env={"CUDA_VISIBLE_DEVICES": ""})
        for command in ("run", "plan")
    )

    assert (run.returncode, "no GPU found that PyTorch can use" in run.stderr) == (2, True), run.stderr
    assert plan.returncode == 0 and plan.stderr.startswith("WARNING scoring.device: no GPU found"), plan.stderr
    assert not (tmp_path / "data/nemotron").exists()


def test_missing_readers_of_files_are_errors_before_the_build_or_the_hashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "corpusmill")

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    notes = local_source(tmp_path, "notes", [{"text": "one"}])
    for name in ("page.pdf", "site.7z"):
        (tmp_path / name).write_bytes(b"7z\xbc\xaf\x27\x1c")
    pages = notes | {"source": "pages", "path": str(tmp_path), "files": ["*.pdf"], "columns": None}
    site = {"kind": "stackexchange", "source": "site", "path": str(tmp_path), "files": ["*.7z"], "host": "a.org"}
    stored = notes | {"source": "stored", "path": "s3://bucket/notes"}
    quiz = {"name": "quiz", "path": "s3://bucket/quiz", "files": ["*.jsonl"], "columns": {"text": ["text"]}}
    monkeypatch.setattr("importlib.metadata.version", missing)
    for package in ("py7zr", "obstore.store"):
        monkeypatch.setitem(sys.modules, package, None)

    def line(*sources: Any, **sections: Any) -> str:
        return refusal(lambda: parse_recipe(*sources, **sections).check_prerequisites(tmp_path))

    assert "pypdf" in line(notes, pages) and "[office]" in line(notes, pages)
    [raw, *_] = parse_recipe(site | {"domain": "a"}).targets()
    before_hashing = refusal(lambda: raw.kind.build(raw, Run(tmp_path / "data", INLINE)), RetryableError)
    assert caplog.messages == []
    assert line(notes, site | {"domain": "a"}) == before_hashing
    assert before_hashing == (
        f"{tmp_path}/site.7z: reading a .7z needs py7zr; in the project's folder run "
        ".venv/bin/python -m pip install -c constraints.txt -e '.[stackexchange]', or unpack the archive"
    )
    assert line(notes, stored).startswith("objects: obstore.store is not installed; ")
    assert line(notes, decontamination={"evaluation": [quiz]}).startswith("objects: obstore.store is not installed; ")


def test_an_artifact_of_other_settings_is_an_error_before_a_source_is_built(
    tmp_path: Path, corpusmill: Corpusmill
) -> None:
    sources = [local_source(tmp_path, name, [{"text": name, "key": name}]) for name in ("notes", "pages")]
    path, data = tmp_path / "mixed.yaml", tmp_path / "data"
    recipe: dict[str, Any] = {"system": "stage_a", "name": "mixed", "dedup": {}}
    path.write_text(json.dumps(recipe | {"sources": sources[:1]}))
    corpusmill("run", path, "--data", data)
    path.write_text(json.dumps(recipe | {"sources": sources}))

    refused = corpusmill("run", path, "--data", data)

    assert refused.returncode == 2 and "deduplicated/mixed: another version is sealed here: " in refused.stderr
    assert not (data / "stage_a/mixed/normalized/pages").exists()
    shutil.rmtree(data / "stage_a/mixed/filtered/notes")
    path.write_text(json.dumps(recipe | {"sources": sources[:1]}))
    assert corpusmill("run", path, "--data", data).returncode == 0  # built again with equal content


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
