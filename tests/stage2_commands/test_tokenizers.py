"""Tokenizers that the commands of stage 2 train, check and accept."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_results import Corpusmill
from stage2_build import CODE, PAGES, WEB, recipe_with

from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.key_types import UNPINNED

pytest.importorskip("py3langid", reason="needs the extra `languages`")


def test_tokenizer_train_copies_the_model_and_writes_a_new_recipe(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    train = ("stage2", "tokenizer", "train", "--manifest", "small", "--out-dir", out)
    typed(*train, "--output-dir", tmp_path / "model")
    model = tmp_path / "model" / "spm_160_unigram.model"
    assert model.read_bytes() == (out / "stage2/small/tokenizer/spm_160_unigram.model").read_bytes()

    typed(*train, "--vocab-size", 150, "--log-file", tmp_path / "train.log")
    assert (out / "stage2/small-150/tokenizer/spm_150_unigram.model").exists()
    assert "training on" in (tmp_path / "train.log").read_text()

    new, base = (next((out / f"stage2/{name}/filtered/web/shards").iterdir()) for name in ("small-150", "small"))
    assert new.stat().st_ino == base.stat().st_ino, "artifacts that need no tokenizer are reused"

    too_large = typed(*train, "--vocab-size", 9999, status=2).stderr.splitlines()[-1]
    assert re.fullmatch(r"corpusmill: --vocab-size: must be <= \d+ for this sample, got 9,999; .+", too_large)
    assert not (out / "recipes" / "small-9999.yaml").exists()


def test_tokenizer_check_knows_a_model_and_refuses_another_hash(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    model, metadata = out / "stage2/small/tokenizer/spm_160_unigram.model", tmp_path / "new/told.json"
    result = typed("stage2", "tokenizer", "check", "--tokenizer-path", model, "--metadata-json", metadata)
    assert json.loads(metadata.read_text())["vocabulary_size"] == 160
    assert json.loads(result.stdout)["is_expected"]
    assert typed("tokenizer", "check", model).stdout == result.stdout

    copy = Path(shutil.copy(model, tmp_path))
    assert json.loads(typed("tokenizer", "check", copy).stdout)["is_expected"] is None
    checksum = {"file": "spm_150_unigram.model", "sha256": "0" * 64}
    (tmp_path / "checksum.json").write_text(json.dumps(checksum))
    unrelated = json.loads(typed("tokenizer", "check", copy).stdout)
    assert unrelated["is_expected"] is None, "checksum.json is about another model"

    options = ("--tokenizer_path", model, "--expected_sha256", "0" * 64, "--metadata_json", metadata)
    wrong = typed("stage2", "tokenizer", "check", *options, status=1)
    record = json.loads(metadata.read_text())
    assert (record["sha256"], record["expected_sha256"]) == (json.loads(result.stdout)["sha256"], "0" * 64)
    assert not record["is_expected"]
    assert f"pinned {'0' * 64}" in wrong.stderr


def test_process_accepts_only_the_external_tokenizer_that_the_recipe_expects(
    out: Path, hub: LoopbackHub, tmp_path: Path, typed: Corpusmill
) -> None:
    model = shutil.copy(out / "stage2/small/tokenizer/spm_160_unigram.model", tmp_path / "given.model")
    typed("stage2", "process", "small", "--tokenizer-path", model, "--out-dir", out)
    [folder] = (path for path in (out / "stage2").glob("small-*") if (path / "shards").exists())
    built, other = (np.load(root / "shards/web/shard_00000.npy") for root in (out / "stage2/small", folder))
    assert (built == other).all() and built.dtype == np.uint16

    recipe_with(tmp_path, hub.commits(), lambda recipe: recipe["tokenizer"].update(expected_sha256="0" * 64))
    refused = typed("stage2", "process", "small", "--tokenizer-path", model, "--out-dir", tmp_path, status=2)
    assert "small expects 000000" in refused.stderr

    segments = {"segments": [{"name": "a", "tokens": 64, "weights": {"web": 1}}]}
    recipe = {"system": "stage2", "name": "cut", "mixture": "small", "segments": segments}
    (tmp_path / "cut.yaml").write_text(yaml.safe_dump(recipe))
    args = ("stage2", "process", tmp_path / "cut.yaml", "--tokenizer-path", model, "--out-dir", tmp_path)
    assert "the recipe has no token shards; use a recipe with `shards`" in typed(*args, status=2).stderr

    section = {"kind": "file", "family": "sentencepiece", "path": str(model), "end_of_document": "<eod>"}
    section["sha256"] = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    recipe_with(tmp_path, hub.commits(), lambda recipe: recipe.update(tokenizer=section))
    refused = typed("stage2", "process", "small", "--out-dir", tmp_path, status=2)
    assert "small.yaml: tokenizer.end_of_document: '<eod>' is not a piece of given.model" in refused.stderr


def test_a_foreign_recipe_keeps_comments_if_pinned(hub: LoopbackHub, tmp_path: Path, typed: Corpusmill) -> None:
    recipe_with(tmp_path / "elsewhere", dict.fromkeys((WEB, PAGES, CODE), UNPINNED), name="mine")
    recipe = tmp_path / "elsewhere" / "recipes" / "mine.yaml"
    recipe.write_text("# Why it is as it is.\n" + recipe.read_text())

    typed("stage2", "tokenizer", "train", "--manifest", recipe, "--out-dir", tmp_path / "out")
    copy = tmp_path / "out" / "recipes" / "mine.yaml"
    assert copy.read_text().startswith("# Why it is as it is.\n") and hub.commits()[WEB] in copy.read_text()
    typed("stage2", "tokenizer", "train", "--manifest", "mine", "--out-dir", tmp_path / "out")
    assert "another recipe exists" in typed("stage2", "process", recipe, "--out-dir", tmp_path / "out", status=2).stderr


def test_an_invalid_tokenizer_file_changes_no_recipe(out: Path, tmp_path: Path, typed: Corpusmill) -> None:
    before = {path: path.read_bytes() for path in (out / "recipes").iterdir()}
    (tmp_path / "none.model").write_bytes(b"no model")

    args = ("stage2", "process", "small", "--tokenizer-path", tmp_path / "none.model", "--out-dir", out)
    assert "not a SentencePiece model" in typed(*args, status=1).stderr
    assert {path: path.read_bytes() for path in (out / "recipes").iterdir()} == before
