"""The inventory of token shards: figures of intact shards, differences of others."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal
from shards_build import by_model, copy_set, manual, numbered_rows, seal_rows, shard_documents

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.shards.inventory import build_inventory, take_inventory
from pipeline_assets.corpus.shards.mixture_figures import write_mixture_figures
from pipeline_assets.corpus.shards.recipe import INVENTORY_STAGE
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory, texts: list[str], model: Path) -> Artifact:
    return shard_documents(tmp_path_factory.mktemp("sealed"), manual(texts[:30]), by_model(model))


@pytest.fixture
def copy(sealed: Artifact, tmp_path: Path) -> Path:
    return copy_set(sealed.folder, tmp_path)


def test_intact_shards_are_counted(sealed: Artifact, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = np.where(numbered_rows(2, 12) == 5, np.uint16(1), numbered_rows(2, 12))  # four ends
    other = seal_rows(tmp_path, "b", rows).folder

    with caplog.at_level("INFO", "corpusmill"):
        inventory = take_inventory({"manual": sealed.folder, "b": other})

    counts = sealed.manifest.identity.counts
    assert inventory.differences == []
    assert [*inventory.corpora] == ["b", "manual"]
    assert inventory.tokens == counts["tokens"] + 48
    assert caplog.messages == ["b: 48 tokens, 0 differences", f"manual: {counts['tokens']:,} tokens, 0 differences"]
    figures = inventory.corpora["manual"]
    assert {key: figures[key] for key in ("documents", "tokens", "license_tokens")} == {
        key: counts[key] for key in ("documents", "tokens", "license_tokens")
    }
    assert [(shard["file"], shard["rows"]) for shard in inventory.corpora["b"]["shards"]] == [
        ("shard_00000.npy", 5),
        ("shard_00001.npy", 5),
        ("shard_00002.npy", 2),
    ]
    assert json.loads(json.dumps(inventory.to_json()))["corpora"]["b"]["tokens"] == 48
    page = inventory.to_markdown()
    assert page.startswith(f"# Token shards: {inventory.tokens:,} tokens\n\n| corpus | rows |")
    assert "| `b` | 12 | 48 | 4 | 3 |" in page and "## Differences\n\n(none)\n" in page


def edit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_every_damage_of_a_corpus_is_a_difference(copy: Path) -> None:
    edit(copy / "documents.parquet")
    (copy / "shard_00001.npy").unlink()
    shutil.copy(copy / "shard_00000.npy", copy / "shard_99999.npy")

    missing, edited, added = take_inventory({"a": copy}).differences

    assert (missing.corpus, missing.file, missing.reason) == ("a", "shard_00001.npy", "the file is missing")
    assert (edited.file, edited.reason.partition(" is ")[0]) == ("documents.parquet", "sha256")
    assert (added.file, added.reason) == ("shard_99999.npy", "the manifest does not list this file")


def test_an_edited_manifest_or_a_missing_corpus_hides_no_difference_of_another(copy: Path, tmp_path: Path) -> None:
    edited = copy_set(copy, tmp_path / "edited") / "manifest.json"
    edited.write_text(edited.read_text().replace('"documents": ', '"documents": 9'))
    (copy / "shard_00001.npy").unlink()

    inventory = take_inventory({"a": tmp_path / "gone", "b": copy, "c": edited.parent})

    gone, damaged, changed = inventory.differences
    assert (gone.corpus, gone.file, gone.reason) == ("a", "manifest.json", "folder not found")
    assert (damaged.corpus, damaged.file) == ("b", "shard_00001.npy")
    assert (changed.corpus, changed.file) == ("c", "manifest.json")
    assert changed.reason.startswith("digest is sha256:")
    assert list(inventory.corpora) == ["b"]


def test_a_folder_without_a_set_is_refused(tmp_path: Path) -> None:
    message = refusal(lambda: take_inventory({"a": tmp_path}), UsageError)

    assert "nothing is sealed here" in message
    assert message.endswith("; build the recipe first, such as with `corpusmill run`")


def seal_inventory(root: Path, corpora: dict[str, Artifact], workers: int = 0) -> Artifact:
    target = Target(unknown_kind("stage_a/inventory", INVENTORY_STAGE), "inventory", Path("inventory"), {})
    settings = RunSettings(workers)
    return build_target(target, root, lambda staging: build_inventory(staging, corpora, settings), False, {})


def test_an_inventory_does_not_depend_on_the_folder_of_a_corpus(sealed: Artifact, copy: Path, tmp_path: Path) -> None:
    first = seal_inventory(tmp_path / "one", {"manual": sealed})
    second = seal_inventory(tmp_path / "other", {"manual": open_artifact(copy)}, workers=2)

    assert first.manifest.digest == second.manifest.digest
    assert json.loads((first.folder / "inventory.json").read_text())["differences"] == []
    assert (first.folder / "inventory.md").read_text().startswith("# Token shards: ")


def test_an_inventory_of_differing_corpora_is_not_sealed(copy: Path, tmp_path: Path) -> None:
    corpus = open_artifact(copy)
    edit(copy / "shard_00001.npy")
    (copy / "shard_00002.npy").unlink()

    message = refusal(lambda: seal_inventory(tmp_path / "out", {"a": corpus}), InputError)

    assert message.startswith(f"{copy / 'shard_00001.npy'}: sha256 is ")
    assert message.endswith("(and 1 more); restore the file, or rebuild the token shards")
    assert not (tmp_path / "out" / "inventory").exists()


def test_figures_of_an_earlier_recipe_are_removed(sealed: Artifact, tmp_path: Path) -> None:
    inventory = seal_inventory(tmp_path / "mix", {"manual": sealed})
    figures, used = tmp_path / "mix" / "mixtures", sealed.manifest.identity.decisions["tokenizer_sha256"]
    figures.mkdir()
    for sha256, names in (("0" * 64, []), (used, ["mix_tokenizer.json"])):
        (figures / "mix_filtered_shards.json").write_text("{}")
        (figures / "mix_tokenizer.json").write_text(json.dumps({"sha256": sha256}))

        write_mixture_figures(inventory)

        assert sorted(os.listdir(figures)) == ["mix_full_shards.json", "mix_shards.json", *names]
