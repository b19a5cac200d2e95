"""What tests of scoring share: tiny models with seeded weights, saved once."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # of tiny_models, reference
sys.path.insert(0, str(Path(__file__).parents[1] / "nemotron"))  # of real_rows, rows_made

from tiny_models import save_model

from pipeline_assets.corpus.spine.staging import BuildFolder


@pytest.fixture
def folder(tmp_path: Path) -> BuildFolder:
    """An empty building folder."""
    (tmp_path / "building").mkdir()
    return BuildFolder(tmp_path / "building")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model, by its name."""
    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = save_model(name, tmp_path_factory.mktemp(name))
        return folders[name]

    return folder
