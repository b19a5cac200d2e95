"""Launchers on Modal that tests open and close without a job."""

from pipeline_assets.corpus.scoring.launcher import ScoreWork
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.staging import StagingView
from resources.modal_launcher import ModalLauncherFactory


def open_launcher(
    work: ScoreWork, folder: StagingView, factory: ModalLauncherFactory | None = None, **settings: object
) -> None:
    with (factory or ModalLauncherFactory(ModalSettings.model_validate({"gpu": "none", **settings}))).open_launcher(
        work, folder
    ):
        pass
