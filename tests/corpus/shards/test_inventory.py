"""The inventory of token shards: figures of intact shards, differences of others."""

import json
import os
import shutil
from collections.abc import Callable
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


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (edit, "sha256 is "),
        (truncate, "has 286 bytes, sealed with 288"),
        (Path.unlink, "the file is missing"),
    ],
)
def test_a_damaged_shard_is_a_difference(copy: Path, damage: Callable[[Path], object], reason: str) -> None:
    damage(copy / "shard_00001.npy")

    [difference] = take_inventory({"a": copy}).differences

    assert (difference.corpus, difference.file) == ("a", "shard_00001.npy")
    assert difference.reason.startswith(reason)


def test_an_added_shard_and_an_edited_table_are_differences(copy: Path) -> None:
    shutil.copy(copy / "shard_00000.npy", copy / "shard_99999.npy")
    edit(copy / "documents.parquet")

    differences = take_inventory({"a": copy}).differences

    assert [difference.file for difference in differences] == ["documents.parquet", "shard_99999.npy"]
    assert differences[1].reason == "the manifest doesn't name this file"


def test_an_edited_manifest_is_a_difference(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"documents": ', '"documents": 9'))

    inventory = take_inventory({"a": copy})

    assert inventory.corpora == {}
    assert [
        (difference.file, difference.reason.startswith("digest is sha256:")) for difference in inventory.differences
    ] == [("manifest.json", True)]


def test_a_missing_corpus_hides_no_difference_of_another(copy: Path, tmp_path: Path) -> None:
    (copy / "shard_00001.npy").unlink()

    inventory = take_inventory({"a": tmp_path / "gone", "b": copy})

    assert [(difference.corpus, difference.file, difference.reason) for difference in inventory.differences] == [
        ("a", "manifest.json", "folder not found"),
        ("b", "shard_00001.npy", "the file is missing"),
    ]
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
