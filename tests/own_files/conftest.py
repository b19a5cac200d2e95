"""Folder of mixed files with the data root that `init` and `run` build from it."""

from pathlib import Path

import pytest
from command_results import Corpusmill
from mixed_files import write_mixed_files


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows in three formats with two text columns, notes, and unreadable files."""
    folder = tmp_path_factory.mktemp("own") / "My Files"
    folder.mkdir()
    write_mixed_files(folder)
    return folder


@pytest.fixture(scope="module")
def built(mixed: Path, corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the data root with `init` and `run`; tests only read it."""
    root = tmp_path_factory.mktemp("data")
    init = corpusmill("init", "mine", "--input", mixed, "--data", root)
    assert init.returncode == 0, init.stderr
    path = root / "recipes" / "mine.yaml"
    path.write_text(path.read_text().replace("seq_len: 2048", "seq_len: 64"))
    ran = corpusmill("run", "mine", "--data", root, "--workers", "0")
    assert ran.returncode == 0, ran.stderr
    return root
