"""Writable loopback hub with a dataset and sealed pools of its rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from candidate_pools import Row, rows_artifact, seal_pools
from faulty_hub import FaultyHub

from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.publishing.hub_repo import HubRepo
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_repos import RepoReader
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest

SOURCE = "maker/chats"
AGREEMENT = "You agree to use it for training alone.\n---\n# No: really"
TOKEN = "hf_any"
NAME = "loopback/pools"


@dataclass(frozen=True)
class Place:
    """Running hub, the commit of its one dataset, and a publisher's cache."""

    hub: FaultyHub
    revision: str
    cache: Path

    def repo(self, token: str = TOKEN, tries: int = 3, name: str = NAME) -> HubRepo:
        return HubRepo.open(name, HubFiles(self.cache, endpoint=self.hub.endpoint, tries=tries, wait_s=0.01), token)

    @property
    def folder(self) -> Path:
        return self.hub.folder / "datasets" / NAME

    def sent(self) -> list[str]:
        """List the digests of uploaded large files, in order."""
        paths = (request.path for request in self.hub.requests if request.method == "PUT")
        return [path.removeprefix("/upload/") for path in paths if path.startswith("/upload/")]


def open_place(folder: Path, *, gated: bool = False, hub_type: type[FaultyHub] = FaultyHub) -> Iterator[Place]:
    source = folder / "datasets" / SOURCE
    source.mkdir(parents=True)
    metadata = {"license": "other", "license_name": "made-terms"}
    metadata |= {"extra_gated_prompt": AGREEMENT, "extra_gated_fields": {"Name": "text"}} if gated else {}
    (source / "README.md").write_text(f"---\n{yaml.safe_dump(metadata)}---\n# Chats\n")
    if gated:
        (source / ".gated").touch()
    with hub_type(folder, writable=True, token=TOKEN) as hub:
        yield Place(hub, RepoReader().read(source, "", source.name).commit, folder.with_name("cache"))


def row(number: int, revision: str | None, **columns: Any) -> Row:
    fields = {"id": f"row-{number}", "dataset": SOURCE, "split": "low", "text": f"text {number} " * 40}
    counts = {"stats_tokens": 10, "stats_completion_tokens": 4, "stats_tool_calls": number % 3}
    source = {"source_file": "low.jsonl", "source_row": number, "source_revision": revision}
    empty: Row = dict.fromkeys(SCHEMA.names)
    return {**empty, **fields, **counts, **source, "meta_license": "cc-by-4.0", **columns}


def build_rows(revision: str | None, count: int = 12) -> list[Row]:
    return [row(number, revision, meta_correctness=number / count) for number in range(count)]


def pools(root: Path, splits: dict[str, Sequence[Row]], name: str = "mine/chats", **recipe: Any) -> Artifact:
    """Seal the pools of some splits."""
    shards = {split: rows_artifact(root, list(rows), name=split) for split, rows in splits.items()}
    return seal_pools(root, shards, PoolsRecipe.model_validate(recipe), name)


def read_card(folder: Path) -> tuple[str, str]:
    """Read the YAML and the body of a card."""
    head, _, body = (folder / "README.md").read_text().removeprefix("---\n").partition("\n---\n")
    return head, body


def card_yaml(folder: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = yaml.safe_load(read_card(folder)[0])
    return metadata


def check_whole(folder: Path) -> str:
    """Return the digest of a consistent repo, or `bare` without card and manifest."""
    if not (folder / "README.md").exists():
        assert not (folder / MANIFEST_FILE).exists()
        return "bare"
    manifest = Manifest.from_bytes((folder / MANIFEST_FILE).read_bytes(), folder)
    assert manifest.provenance == {}, "it names machines"
    for stored in manifest.storage:
        assert (folder / stored.path).stat().st_size == stored.bytes
    metadata = card_yaml(folder)
    infos = {
        info["config_name"]: {s["name"]: s["num_examples"] for s in info["splits"]} for info in metadata["dataset_info"]
    }
    for config in metadata["configs"]:
        for data in config["data_files"]:
            files = [path for path in folder.rglob("*.parquet") if path.match(data["path"])]
            rows = sum(pq.read_metadata(path).num_rows for path in files)
            assert rows == infos[config["config_name"]][data["split"]], (config["config_name"], data)
    named = re.findall(r"sha256:[0-9a-f]{64}", (folder / "README.md").read_text())
    assert named[0] == manifest.digest
    return manifest.digest
