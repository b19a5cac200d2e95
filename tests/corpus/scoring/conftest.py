"""What tests of scoring share: tiny models with seeded weights, saved once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tiny_models import save_model

from pipeline_assets.corpus.scoring.launcher import Launcher, ScoreWork
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.staging import StagingView

if TYPE_CHECKING:
    from modal_loopback import ModalOnLoopback


@pytest.fixture
def folder(tmp_path: Path) -> StagingView:
    """An empty building folder."""
    (tmp_path / "building").mkdir()
    return StagingView(tmp_path / "building")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model, by its name."""
    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = save_model(name, tmp_path_factory.mktemp(name))
        return folders[name]

    return folder


@pytest.fixture
def loopback() -> Iterator["ModalOnLoopback"]:
    """Modal on loopback, whose functions do as they are told; without faults when a test begins."""
    from scripted_modal import modal_told

    loopback = modal_told()
    with loopback.called():
        yield loopback
    for fault in (loopback.folder / "faults").iterdir():
        fault.unlink()


@pytest.fixture
def work(tmp_path: Path) -> ScoreWork:
    from scripted_modal import work_told

    return work_told(tmp_path)


@pytest.fixture
def launcher(loopback: "ModalOnLoopback", work: ScoreWork, folder: StagingView) -> Iterator[Launcher]:
    from resources.modal_launcher import ModalLauncherFactory

    with ModalLauncherFactory(ModalSettings(gpu="none", places=2)).open_launcher(work, folder) as launcher:
        yield launcher
