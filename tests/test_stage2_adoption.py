"""A version adopts token shards of the version before if its rows are equal."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stage2_build import WEB, append_rows, build, recipe_with, texts, without_languages, write_datasets

from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage2_mixture import Stage2Recipe

pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
PAGES_SHARDS = "stage2/token_shards/pages"


class Versions:
    def __init__(self, folder: Path) -> None:
        self.root, self.hub, self.folder = folder / "data", folder / "hub", folder
        write_datasets(self.hub)

    def build(
        self,
        name: str,
        earlier: Stage2Recipe | None = None,
        change: Callable[[dict[str, Any]], None] = lambda content: None,
        root: Path | None = None,
    ) -> tuple[Stage2Recipe, dict[str, Artifact]]:
        def edit(content: dict[str, Any]) -> None:
            without_languages(content)
            change(content)

        root = root or self.root
        with LoopbackHub(self.hub) as hub:
            recipe = recipe_with(root, hub.commits(), edit, name)
            files = HubFiles(root / CACHE_FOLDER, hub.endpoint)
            return recipe, build(recipe, root, files, find_previous_folder=None if earlier is None else earlier.folder)

    def fresh(self, name: str, change: Callable[[dict[str, Any]], None] = lambda content: None) -> dict[str, Artifact]:
        return self.build(name, None, change, self.folder / "fresh")[1]

    def move_head(self) -> None:
        """Commit another card of the web dataset, and no row."""
        card = self.hub / "datasets" / WEB / "README.md"
        card.write_text(card.read_text() + "\nAnother line.\n")


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path)


def external_tokenizer(model: Path) -> Callable[[dict[str, Any]], None]:
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()

    def change(content: dict[str, Any]) -> None:
        content["tokenizer"] = {"kind": "file", "family": "sentencepiece", "sha256": sha256, "path": str(model)}
        content["tokenizer"]["end_of_document"] = "</s>"

    return change


def read_inodes(artifact: Artifact) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in artifact.folder.glob("*.npy")}


def assert_adopted(artifact: Artifact, earlier: Artifact, fresh: Artifact) -> None:
    """Check that token files are adopted, and that a fresh build has the same digest."""
    assert read_inodes(artifact) == read_inodes(earlier) != {}
    assert artifact.manifest.digest == fresh.manifest.digest
    provenance = artifact.manifest.provenance
    assert provenance["taken_over_from"] == earlier.manifest.name
    assert provenance["taken_over_digest"] == earlier.manifest.digest
    assert provenance["lost_text"] == fresh.manifest.provenance["lost_text"]
    list(verify(artifact, SYSTEMS.label_names))


def test_a_moved_head_without_new_rows_encodes_nothing(versions: Versions) -> None:
    first, before = versions.build("small_20261102")
    versions.move_head()

    _, after = versions.build("small_20261109", first)

    fresh = versions.fresh("small_20261109")
    assert after["stage2/raw/web"].manifest.digest != before["stage2/raw/web"].manifest.digest
    for name in ("web", "pages", "code"):
        role = f"stage2/token_shards/{name}"
        assert_adopted(after[role], before[role], fresh[role])


def test_an_unchanged_source_is_adopted_though_another_one_grew(versions: Versions) -> None:
    _, trained = versions.build("first")
    [model] = trained["stage2/tokenizer"].folder.glob("*.model")
    fixed_tokenizer = external_tokenizer(Path(shutil.copy(model, versions.folder / "kept.model")))
    first, before = versions.build("small_20261102", None, fixed_tokenizer)
    append_rows(versions.hub, texts(77, 60))

    _, after = versions.build("small_20261109", first, fixed_tokenizer)

    fresh = versions.fresh("small_20261109", fixed_tokenizer)
    assert before["stage2/deduplicated"].manifest.digest != after["stage2/deduplicated"].manifest.digest
    assert_adopted(after[PAGES_SHARDS], before[PAGES_SHARDS], fresh[PAGES_SHARDS])
    web = after["stage2/token_shards/web"]
    assert "taken_over_from" not in web.manifest.provenance
    assert web.manifest.digest == fresh["stage2/token_shards/web"].manifest.digest


@pytest.mark.parametrize("difference", ["rows", "seq_len", "tokenizer"])
def test_changed_rows_length_or_tokenizer_are_encoded(difference: str, versions: Versions) -> None:
    def change(content: dict[str, Any]) -> None:
        if difference == "seq_len":
            content["shards"]["seq_len"] = 32
        elif difference == "tokenizer":
            content["tokenizer"]["vocab_size"] = 170

    first, before = versions.build("small_20261102")
    if difference == "rows":
        append_rows(versions.hub, texts(77, 1))

    _, after = versions.build("small_20261109", first, change)

    role = "stage2/token_shards/web"
    assert "taken_over_from" not in after[role].manifest.provenance
    assert after[role].manifest.digest != before[role].manifest.digest
    assert np.load(after[role].path("shard_00000.npy")).shape[1] == (32 if difference == "seq_len" else 64)


@pytest.mark.parametrize(
    "path",
    ["raw_corpus/pages/LICENSES.md", "deduplicated/shards/pages-00000.jsonl.zst", "shards/pages/shard_00000.npy"],
)
def test_a_damaged_file_of_the_earlier_version_is_rebuilt(path: str, versions: Versions) -> None:
    first, _ = versions.build("small_20261102")
    damaged = versions.root / "stage2/small_20261102" / path
    content = damaged.read_bytes()
    damaged.unlink()  # other links to it stay intact
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    versions.move_head()

    _, after = versions.build("small_20261109", first)

    fresh = versions.fresh("small_20261109")
    for role, artifact in after.items():
        assert artifact.manifest.digest == fresh[role].manifest.digest
        assert not [item for item in verify(artifact, SYSTEMS.label_names) if isinstance(item, Damage)]
