"""Text that a user's tokenizer loses, in manifests, checks and reports.

They are those of the systems that encode text.
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")
pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")

from parallel_build import contents as parallel_content
from stage_a_build import INLINE, local_source, parse_recipe
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.parallel_text.encode import encode
from pipeline_assets.corpus.shards.mixture_figures import preview_inventory
from pipeline_assets.corpus.tokens.losses import Losses
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Artifact, open_artifact, read_check_results
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from resources.artifact_metadata import artifact_metadata

ENGLISH = [f"the {word} river runs by {word} stones to the sea" for word in ("old", "new", "cold", "wide", "slow")]
CHINESE = [f"的一是不了人我在有他{character}" for character in "这为之大来"]
HALVES = {"en": "0.5", "zh": "0.5"}
LOST = "above `max_unknown_fraction`"


def build_artifacts(recipe: Recipe, root: Path, kind: str, *partitions: str) -> list[Artifact]:
    list(run_targets(recipe.targets(), Run(root, INLINE)))
    folders = [recipe.target(kind, partition).folder for partition in partitions or (None,)]
    return [open_artifact(root / folder) for folder in folders]


def build_sources(root: Path) -> list[dict[str, Any]]:
    texts = {"en": ENGLISH, "zh": CHINESE}
    rows = {name: [{"text": text * 3, "key": text} for text in source_texts] for name, source_texts in texts.items()}
    return [local_source(root, name, source_texts) for name, source_texts in rows.items()]


def write_letters(folder: Path) -> dict[str, Any]:
    """Write a tokenizer.json of letters without an unknown token; return its section."""
    letters = sorted(set("".join(ENGLISH)) - {" "})
    library = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["<end>"])
    library.save(str(folder / "tokenizer.json"))
    sha256 = file_sha256(folder / "tokenizer.json")
    return {"family": "hf_tokenizer", "sha256": sha256, "end_of_document": "<end>"}


def build_pack_recipe(root: Path, **limits: str) -> Recipe:
    section = {"seq_len": 16, "tokenizer": write_letters(root), "tokenizer_path": "tokenizer.json", **limits}
    return parse_recipe(*build_sources(root), pack=section)


def build_mixture(root: Path, shares: dict[str, str] = HALVES, **limits: str) -> Recipe:
    tokenizer = {"kind": "trained", "sources": {"en": "1"}, "sample_bytes": 9000, "vocab_size": 27}
    shards = {"sources": shares, "seq_len": 4, "rows_per_shard": 8, **limits}
    named = [{key: value for key, value in source.items() if key != "domain"} for source in build_sources(root)]
    content = {"system": "stage2", "name": "mixed", "sources": named, "tokenizer": tokenizer, "shards": shards}
    return Stage2Recipe.from_mapping(content, "made")


def write_pairs(folder: Path, french: Sequence[str]) -> ParallelRecipe:
    """Write numbered pairs; return a recipe that trains a model without byte fallback."""
    folder.mkdir()
    for split, count in (("train", 60), ("validation", 20)):
        texts = ((f"{french[row % 5]} {row}", f"{ENGLISH[row % 5]} {split} {row}") for row in range(count))
        rows = (json.dumps({"translation": {"fr": fr, "en": en}}) + "\n" for fr, en in texts)
        (folder / f"{split}-0.jsonl").write_text("".join(rows))
    content = parallel_content({"path": str(folder), "files": ["{split}-*.jsonl"]}, k=40)
    return ParallelRecipe.from_mapping(
        content | {"name": folder.name, "encode": {"vocab_size": 40, "byte_fallback": False}}, "made"
    )


def test_a_packed_set_that_lost_a_source_fails_until_the_recipe_allows_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"zh: 0 of 0 tokens are unknown.*{LOST} \(0\.05\)"):
        build_artifacts(build_pack_recipe(tmp_path), tmp_path, "stage_a/packed")

    [packed] = build_artifacts(build_pack_recipe(tmp_path, max_unknown_fraction="1"), tmp_path, "stage_a/packed")

    english, chinese = (3 * len("".join(texts).replace(" ", "")) for texts in (ENGLISH, CHINESE))
    assert read_losses(packed.manifest) == {"en": Losses(english, 0, english, 0), "zh": Losses(0, 0, chinese, chinese)}
    checks = read_check_results(packed.folder, packed.manifest.digest) or ()
    [recorded] = [check for check in checks if check.name.startswith("unknown_")]
    assert (recorded.passed, recorded.blocking) == (False, False), "the record has the present limit"
    metadata = artifact_metadata(packed, SYSTEMS.kinds, True)
    assert (metadata["unknown_fraction_zh"].value, metadata["unknown_fraction_en"].value) == (1.0, 0.0)
    strict = build_pack_recipe(tmp_path)
    report = json.loads((tmp_path / strict.target("stage_a/report").folder / "report.json").read_bytes())
    assert report["packed"]["lost_text"]["zh"]["fraction"] == "1.000000"
    state, reason = strict.target("stage_a/packed").state(tmp_path)
    assert state == "failed" and LOST in reason, "another limit changes no digest"


def test_token_shards_of_another_script_fail_and_the_inventory_shows_the_share(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"zh: .* tokens are unknown.*{LOST} \(0\.05\)"):
        build_artifacts(build_mixture(tmp_path), tmp_path, "stage2/token_shards", "zh")

    allowed = build_mixture(tmp_path, max_unknown_fraction="1")
    english, chinese = build_artifacts(allowed, tmp_path, "stage2/token_shards", "en", "zh")

    losses = (read_losses(chinese.manifest) or {})["zh"]
    assert losses.unknown_tokens and losses.lost_characters == losses.characters == 3 * len("".join(CHINESE))
    assert (read_losses(english.manifest) or {})["en"].lost_characters == 0
    inventory = tmp_path / "stage2/mixed/inventory"
    row = f"| `zh` | {losses.unknown_tokens} | {losses.characters} | 100.000% |"
    assert row in (inventory / "inventory.md").read_text()
    assert [row["text lost"] for row in preview_inventory(open_artifact(inventory))] == ["0.000%", "100.000%"]
    sums = json.loads((tmp_path / "stage2/mixed/mixtures/mixed_shards.json").read_bytes())["all"]
    assert sums["lost_text"]["lost_characters"] == losses.lost_characters
    figures = json.loads((inventory / "inventory.json").read_bytes())["corpora"]["zh"]
    assert figures["lost_text"]["zh"]["fraction"] == "1.000000"


def test_the_total_of_a_lossless_mixture_has_0_lost_characters(tmp_path: Path) -> None:
    build_artifacts(build_mixture(tmp_path, shares={"en": "1"}), tmp_path, "stage2/token_shards", "en")

    figures = json.loads((tmp_path / "stage2/mixed/mixtures/mixed_shards.json").read_bytes())
    lost_text = figures["all"]["lost_text"]
    assert (lost_text["unknown_tokens"], lost_text["lost_characters"]) == (0, 0)
    assert figures["all"] == figures["corpora"]["en"]


def test_pairs_without_pieces_in_the_model_fail_per_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [cache] = build_artifacts(write_pairs(tmp_path / "english", ENGLISH[::-1]), tmp_path, "parallel_text/token_cache")
    model = cache.path("spm.model")
    section = {"model": str(model), "model_sha256": file_sha256(model)}
    content = write_pairs(tmp_path / "chinese", CHINESE).content()
    recipes = [
        ParallelRecipe.from_mapping(content | {"encode": section | limit}, "made")
        for limit in ({}, {"max_unknown_fraction": "1"})
    ]

    with pytest.raises(InputError, match=rf"src: .*{LOST} \(0\.05\)"):
        build_artifacts(recipes[0], tmp_path, "parallel_text/token_cache")
    [lossy] = build_artifacts(recipes[1], tmp_path, "parallel_text/token_cache")

    losses = read_losses(lossy.manifest) or {}
    assert losses["src"].fraction > Fraction(1, 2) and losses["tgt"].fraction < Fraction(1, 100)
    manifest = tmp_path / "parallel_text" / "chinese" / "sample" / "manifest.jsonl"
    with pytest.raises(InputError, match=rf"{LOST} \(0\.05\).*or raise"):
        encode(manifest, model, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    caplog.clear()
    encode(manifest, model, tmp_path / "cache", max_unknown_fraction="1")
    [warning] = caplog.messages
    assert warning.startswith(f"{tmp_path}/cache: src: ") and warning.endswith(", above 0.1 %")
    encode(tmp_path / "parallel_text/english/sample/manifest.jsonl", model, tmp_path / "whole")
    assert caplog.messages == [warning], "a lossless text causes no warning"
