"""The inventory of token shards: figures of what is as it was sealed, a difference for all that isn't."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal
from shards_build import by_model, copy_of, manual, numbered_rows, seal_rows, shard_documents

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
    return copy_of(sealed.folder, tmp_path)


def test_what_is_as_sealed_is_counted(sealed: Artifact, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    assert [(one["file"], one["rows"]) for one in inventory.corpora["b"]["shards"]] == [
        ("shard_00000.npy", 5),
        ("shard_00001.npy", 5),
        ("shard_00002.npy", 2),
    ]
    assert json.loads(json.dumps(inventory.to_json()))["corpora"]["b"]["tokens"] == 48
    page = inventory.to_markdown()
    assert page.startswith(f"# Token shards: {inventory.tokens:,} tokens\n\n| corpus | rows |")
    assert "| `b` | 12 | 48 | 4 | 3 |" in page and "## Differences\n\n(none)\n" in page


def edited(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (edited, "sha256 is "),
        (truncated, "has 286 bytes, sealed with 288"),
        (Path.unlink, "the file is missing"),
    ],
)
def test_a_shard_unlike_the_sealed_is_a_difference(copy: Path, damage: Callable[[Path], object], reason: str) -> None:
    damage(copy / "shard_00001.npy")

    [found] = take_inventory({"a": copy}).differences

    assert (found.corpus, found.file) == ("a", "shard_00001.npy")
    assert found.reason.startswith(reason)


def test_a_shard_that_was_added_and_a_table_that_was_edited_are_differences(copy: Path) -> None:
    shutil.copy(copy / "shard_00000.npy", copy / "shard_99999.npy")
    edited(copy / "documents.parquet")

    found = take_inventory({"a": copy}).differences

    assert [one.file for one in found] == ["documents.parquet", "shard_99999.npy"]
    assert found[1].reason == "the manifest doesn't name this file"


def test_a_manifest_that_was_edited_is_a_difference(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"documents": ', '"documents": 9'))

    inventory = take_inventory({"a": copy})

    assert inventory.corpora == {}
    assert [(one.file, one.reason.startswith("digest is sha256:")) for one in inventory.differences] == [
        ("manifest.json", True)
    ]


def test_a_corpus_that_is_gone_hides_no_difference_of_another(copy: Path, tmp_path: Path) -> None:
    (copy / "shard_00001.npy").unlink()

    inventory = take_inventory({"a": tmp_path / "gone", "b": copy})

    assert [(one.corpus, one.file, one.reason) for one in inventory.differences] == [
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
    return build_target(target, root, lambda building: build_inventory(building, corpora, settings), False, {})


def test_an_inventory_is_sealed_alike_wherever_the_corpora_lie(sealed: Artifact, copy: Path, tmp_path: Path) -> None:
    one = seal_inventory(tmp_path / "one", {"manual": sealed})
    other = seal_inventory(tmp_path / "other", {"manual": open_artifact(copy)}, workers=2)

    assert one.manifest.digest == other.manifest.digest
    assert json.loads((one.folder / "inventory.json").read_text())["differences"] == []
    assert (one.folder / "inventory.md").read_text().startswith("# Token shards: ")


def test_nothing_is_sealed_of_corpora_that_differ(copy: Path, tmp_path: Path) -> None:
    corpus = open_artifact(copy)
    edited(copy / "shard_00001.npy")
    (copy / "shard_00002.npy").unlink()

    line = refusal(lambda: seal_inventory(tmp_path / "out", {"a": corpus}), InputError)

    assert line.startswith(f"{copy / 'shard_00001.npy'}: sha256 is ")
    assert line.endswith("(and 1 more); restore the file, or rebuild the token shards")
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
