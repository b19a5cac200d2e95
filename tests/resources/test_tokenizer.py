"""Builds encode with the file of the tokenizer resource."""

import hashlib
import shutil
from pathlib import Path

import dagster as dg
import pytest
from materialized import NOWHERE, Materialized
from materialized import resources as all_resources
from nemotron_build import write_nemotron

import resources.store
from pipeline_assets.build import drive
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.code_location import build_definitions
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, load_encoder
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.registry import SYSTEMS
from resources.store import Hub, Launcher, Store, Tokenizer


def test_tokenizer_resource_loads_the_encoder_once() -> None:
    encoder = Tokenizer().encoder()

    assert encoder is Tokenizer().encoder() is load_encoder(Tokenizer().sha256)
    assert encoder.encode(["hello world"]).ids.tolist() == [24912, 2375]


def test_run_checks_the_hash_of_the_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "o200k_base.tiktoken"
    other.write_bytes(b"IQ== 0\n")
    monkeypatch.setattr(resources.store, "VOCABULARY_PATH", other)

    with pytest.raises(InputError, match="sha256"):
        Store().make_run(tmp_path, Hub().files(tmp_path), Tokenizer(), Launcher())


def test_ui_shows_the_tokenizer_with_its_digest(tmp_path: Path) -> None:
    tokenizer = (build_definitions(tmp_path).resources or {})["tokenizer"]

    assert isinstance(tokenizer, Tokenizer)
    assert (tokenizer.family, len(tokenizer.sha256)) == ("o200k_harmony", 64)


def write_other_tokenizer(folder: Path) -> Tokenizer:
    """Write a valid vocabulary with another hash and return its resource."""
    path = folder / "other.tiktoken"
    path.write_bytes(VOCABULARY_PATH.read_bytes() + b"\n")
    return Tokenizer(path=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def build_kind(tokenizer: Tokenizer, root: Path, recipe: Recipe, kind: str) -> str:
    """Build the first target of a kind with its inputs; return its digest."""
    run = Store(workers=0, replace=True).make_run(root, Hub(endpoint=NOWHERE).files(root), tokenizer, Launcher())
    target = next(target for target in recipe.targets() if target.kind.name == kind)
    for needed in (*target.upstream, target):
        if not needed.upstream or needed is target:
            built = drive.build(needed, run)
    return built.artifact.manifest.digest


@pytest.mark.parametrize("kind", ["stage_a/report", "nemotron/normalized_shards", "healing/megatron_split"])
def test_build_encodes_with_the_file_of_the_resource(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind.startswith("nemotron"):
        root, recipe = tmp_path / "data", write_nemotron(tmp_path)
    else:
        root = request.getfixturevalue("notes_root" if kind.startswith("stage_a") else "root")
        [path] = (root / "recipes").glob("*.yaml")
        recipe = SYSTEMS.read_recipe(path)
    folder = root / next(target.folder for target in recipe.targets() if target.kind.name == kind)
    shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(InputError, match=r"sha256 is .*, pinned 446a9538"):
        build_kind(write_other_tokenizer(tmp_path), root, recipe, kind)
    copy = Tokenizer(path=str(shutil.copy(VOCABULARY_PATH, tmp_path / "copy.tiktoken")))
    copied = build_kind(copy, root, recipe, kind)

    shutil.rmtree(folder)
    assert copied == build_kind(Tokenizer(), root, recipe, kind)


def test_asset_with_a_wrong_resource_fails_and_names_both_hashes(root: Path, tmp_path: Path) -> None:
    recipe = SYSTEMS.read_recipe(root / "recipes" / "healing_text_v1.yaml")
    shutil.rmtree(root / recipe.target("healing/megatron_split", "valid").folder)
    run = Materialized(root, NOWHERE)
    asset = next(asset for asset in run.definitions.assets or [] if asset.key.path[-1] == "megatron_split")  # type: ignore[union-attr]

    with pytest.raises(dg.Failure) as failure:
        dg.materialize(
            [asset],  # type: ignore[list-item]
            partition_key="valid",
            resources=all_resources() | {"tokenizer": write_other_tokenizer(tmp_path)},
        )

    assert "pinned 446a9538" in str(failure.value.description)
