"""Raw sources: hashes of the files of a folder, or row groups of a hub."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from refusals import refusal
from stage_a_build import only, recipe_with

from pipeline_assets.build.pins.raw_pin import pin_folder_files
from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.readers import source_folder
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, open_source
from pipeline_assets.corpus.snapshot.listing import pin_sample
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings


@pytest.fixture
def source(tmp_path: Path) -> SourceFolder:
    """Two files that match the patterns, one of them empty, and one other file."""
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "deep" / "b.jsonl").write_bytes(b'{"text": "B"}\n')
    (tmp_path / "source" / "a.jsonl").write_bytes(b"")
    (tmp_path / "source" / "notes.md").write_bytes(b"not read")
    return SourceFolder(tmp_path / "source", ("**/*.jsonl",))


def pin(source: SourceFolder, threads: int = 0) -> BuildResult:
    return pin_folder_files(source, Path("/data"), RunSettings(threads, log_every_s=60))


def test_a_folder_is_pinned_by_name_size_and_hash_of_its_files(source: SourceFolder) -> None:
    os.utime(source.path / "a.jsonl", ns=(5, 6))
    os.utime(source.path / "deep" / "b.jsonl", ns=(7, 8))

    content = pin(source)

    sha256 = "c617144e990ffb9ed52391e2d46a5f88a90214315042570aeface39d6d1df043"
    assert content.external_inputs == [
        {"name": "a.jsonl", "digest": f"sha256:{hashlib.sha256(b'').hexdigest()}", "bytes": 0},
        {"name": "deep/b.jsonl", "digest": f"sha256:{sha256}", "bytes": 14},
    ]
    assert (content.files, content.counts, content.decisions) == ([], {"files": 2, "bytes": 14}, {})
    assert content.provenance == {"folder": str(source.path), "modified_ns": [6, 8]}


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a.jsonl").write_bytes(b""),
        lambda folder: (folder / "c.jsonl").write_bytes(b""),
        lambda folder: (folder / "a.jsonl").rename(folder / "aa.jsonl"),
    ],
    ids=["written again", "one more", "renamed"],
)
def test_files_that_change_while_hashed_stop_the_build(
    change: Callable[[Path], object], source: SourceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_disturbed(file: SourceFile) -> BinaryIO:
        opened = open_source(file)
        if file.name == "deep/b.jsonl":  # the last one
            change(source.path)
        return opened

    os.utime(source.path / "a.jsonl", ns=(5, 6))
    monkeypatch.setattr(source_folder, "open_source", open_disturbed)

    assert refusal(lambda: pin(source)) == (
        f"{source.path}: files changed while they were hashed; stop writing to the folder, and run again"
    )


def test_a_hub_source_is_pinned_by_its_listing_and_drawn_row_groups(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path
) -> None:
    table = pa.table({"text": [f"Text {number}" for number in range(100)], "id": list(map(str, range(100)))})
    commit = publish({"data/a.parquet": table, "data/b.parquet": table}, rows_per_group=50)
    recipe = recipe_with(tmp_path, only("pages", rules=[], language=None, amount={"documents": 120}), commit)
    [source] = recipe.sources
    assert isinstance(source, HubSource)

    content = pin_sample(hub_files, source.snapshot_recipe(recipe.shard_text_bytes), RunSettings(fetch_threads=1))

    assert content.files == []
    assert content.counts == {"files": 2, "row_groups": 3, "rows": 120}
    read = [[group["rows"] for group in entry.get("row_groups", [])] for entry in content.external_inputs]
    assert [entry["name"] for entry in content.external_inputs] == [
        f"maker/pages@{commit}:data/{file}.parquet" for file in "ab"
    ]
    assert sorted(read) in ([[20], [50, 50]], [[50], [20, 50]], [[50], [50, 20]])
