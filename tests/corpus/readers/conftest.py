"""Fixtures for tests of readers: local and published files of a source."""

from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_hub import FaultyHub
from hub_dataset import CARD, DATASET, LARGE, Published

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., SourceFile]:
    """Return a function that writes a file and lists it."""

    def write(content: bytes | str, name: str = "file") -> SourceFile:
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return SourceFile(path, name, path.stat().st_size)

    return write


@pytest.fixture
def commit(publish: Callable[..., str]) -> str:
    """Publish a regular file, an LFS file and an empty file; return the commit."""
    return publish({"README.md": CARD, "data/large.bin": LARGE, "data/empty.txt": b""})


@pytest.fixture
def published(hub: FaultyHub, hub_files: HubFiles, commit: str) -> Published:
    listed = {file.path: file for file in hub_files.list_files(DATASET, commit)}
    hub.requests.clear()
    return Published(hub, hub_files, commit, listed)
