"""Fixtures for tests of scoring, such as tiny models and Modal on loopback."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faulty_hub import FaultyHub
from tiny_models import save_model

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.scoring.launcher import Launcher, ScoreWork
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import StagingView

if TYPE_CHECKING:
    from modal_loopback import ModalOnLoopback


@pytest.fixture
def folder(tmp_path: Path) -> StagingView:
    """Return an empty staging directory."""
    (tmp_path / "building").mkdir()
    return StagingView(tmp_path / "building")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that saves a tiny model once and returns its folder."""
    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = save_model(name, tmp_path_factory.mktemp(name))
        return folders[name]

    return folder


@pytest.fixture
def loopback() -> Iterator["ModalOnLoopback"]:
    """Start Modal on loopback with scripted functions, without faults."""
    from scripted_modal import start_scripted_modal

    loopback = start_scripted_modal()
    with loopback.connected():
        yield loopback
    for fault in (loopback.folder / "faults").iterdir():
        fault.unlink()


@pytest.fixture
def work(tmp_path: Path) -> ScoreWork:
    from scripted_modal import build_scripted_work

    return build_scripted_work(tmp_path)


@pytest.fixture
def launcher(loopback: "ModalOnLoopback", work: ScoreWork, folder: StagingView) -> Iterator[Launcher]:
    from resources.modal_launcher import ModalLauncherFactory

    with ModalLauncherFactory(ModalSettings(gpu="none", places=2)).open_launcher(work, folder) as launcher:
        yield launcher


@pytest.fixture
def run(hub: FaultyHub, tmp_path: Path) -> Run:
    root = tmp_path / "data"
    return Run(root, RunSettings(), HubFiles(root / CACHE_FOLDER, hub.endpoint, tries=2, wait_s=0.01))
