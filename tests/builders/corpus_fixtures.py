"""Fixtures that many tests share."""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import healing_build
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiktoken
from faulty_hub import FaultyHub
from healing_build import DATASET, INLINE
from huggingface_hub import constants
from real_samples import sample

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe


@pytest.fixture(scope="session")
def synthetic_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the synthetic samples; return their folder."""
    from synthetic_samples import write_samples

    return write_samples(tmp_path_factory.mktemp("samples"))


@pytest.fixture
def shared_data(real: bool, synthetic_data: Path) -> Path:
    """Return a folder of samples, synthetic or real."""
    return sample("") if real else synthetic_data


@pytest.fixture(params=[pytest.param("", marks=pytest.mark.real, id="real")])
def real_data(request: pytest.FixtureRequest) -> Path:
    """Return the folder of real samples, for tests of their content."""
    return sample(request.param)


@pytest.fixture(scope="session")
def tiktoken_ids() -> Callable[[str], list[int]]:
    """Return tiktoken's own o200k_harmony encoder, loaded from the shipped file."""
    from tiktoken_ext import openai_public

    lines = (line.split() for line in VOCABULARY_PATH.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: ranks)
        encoding = tiktoken.Encoding(**openai_public.o200k_harmony())
    return encoding.encode_ordinary


@pytest.fixture
def jsonl() -> Callable[[Path], list[dict[str, object]]]:
    """Return a function that parses a `.jsonl.zst` with json.loads, line by line."""

    def read(path: Path) -> list[dict[str, object]]:
        return [json.loads(line) for block in read_line_blocks(path) for line in block.splitlines()]

    return read


@pytest.fixture
def read_docs(jsonl: Callable[[Path], list[dict[str, object]]]) -> Callable[[Artifact], list[dict[str, object]]]:
    """Return a function that reads all documents of a snapshot in manifest order."""

    def read(snapshot: Artifact) -> list[dict[str, object]]:
        files = [file.path for file in snapshot.manifest.identity.files if file.path.startswith("shards/")]
        return [document for path in files for document in jsonl(snapshot.path(path))]

    return read


@pytest.fixture
def read_rejects(jsonl: Callable[[Path], list[dict[str, object]]]) -> Callable[[Artifact], list[dict[str, object]]]:
    """Return a function that reads all rejects of a snapshot or a split."""

    def read(artifact: Artifact) -> list[dict[str, object]]:
        return jsonl(artifact.path("rejects.jsonl.zst"))

    return read


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyHub]:
    """Serve a loopback hub without repos, which clients read without a token."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    folder = tmp_path / "hub"
    folder.mkdir()
    with FaultyHub(folder) as running:
        yield running


@pytest.fixture
def hub_files(hub: FaultyHub, tmp_path: Path) -> HubFiles:
    """Return a client of the hub with an empty cache."""
    return HubFiles(tmp_path / "cache", hub.endpoint, tries=2, wait_s=0.01)


Publish = Callable[..., str]


@pytest.fixture
def publish(hub: FaultyHub) -> Publish:
    """Return a function that writes files into maker/pages and returns its commit."""

    def write(files: Mapping[str, bytes | pa.Table], rows_per_group: int = 50) -> str:
        for name, content in files.items():
            path = hub.folder / "datasets" / DATASET / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                pq.write_table(content, path, row_group_size=rows_per_group, compression="zstd")
        return hub.commits()[DATASET]

    return write


@pytest.fixture(scope="session")
def healing_recipe() -> Callable[..., HealingRecipe]:
    """Return a function that parses a healing recipe of all of maker/pages."""
    return healing_build.parse_recipe


@pytest.fixture
def build_snapshot(hub_files: HubFiles) -> Callable[..., Artifact]:
    """Return a function that builds the snapshot of a recipe in a data root."""

    def build(
        recipe: HealingRecipe, root: Path, engine: RunSettings = INLINE, hub_files: HubFiles = hub_files
    ) -> Artifact:
        return healing_build.build_snapshot(recipe, root, hub_files, engine)

    return build


@pytest.fixture
def ingest(
    publish: Publish,
    healing_recipe: Callable[..., HealingRecipe],
    build_snapshot: Callable[..., Artifact],
    tmp_path: Path,
) -> Callable[..., Artifact]:
    """Return a function that publishes tables and builds their snapshot."""

    def build(
        tables: Mapping[str, bytes | pa.Table],
        /,
        rows_per_group: int = 50,
        root: str = "data",
        engine: RunSettings = INLINE,
        **changes: object,
    ) -> Artifact:
        recipe = healing_recipe(publish(tables, rows_per_group), changes)
        return build_snapshot(recipe, tmp_path / root, engine)

    return build


@pytest.fixture
def build_megatron() -> Callable[..., Artifact]:
    """Return a function that builds a split and the selection that it needs."""
    return healing_build.build_megatron


@pytest.fixture
def build_train_split(
    ingest: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: Path,
) -> Callable[..., Artifact]:
    """Return a function that builds the train split of pages; valid is empty."""
    from numbered_pages import pages

    def build(texts: dict[str, str], root: str, token_budget: int = 1000) -> Artifact:
        corpus = ingest({"a.parquet": pages(texts)}, rows_per_group=10, root=root, shard_text_bytes=1)
        megatron = {"token_budget": token_budget, "valid_fraction": "0"}
        recipe = healing_recipe(corpus.manifest.identity.recipe["revision"], {"shard_text_bytes": 1}, megatron)
        return build_megatron(recipe, tmp_path / root, "train")

    return build


@pytest.fixture
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
