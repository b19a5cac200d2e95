"""Choice of where shards are scored: on this machine or on Modal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.scoring.launcher import RemoteLauncherFactory  # loads more than most runs need

LAUNCHER_VARIABLE = "CORPUSMILL_LAUNCHER"
LAUNCHER_NAMES = ("local", "modal")


def remote_launcher_factory(
    variables: Mapping[str, str], launcher_name: str | None = None, salt: str = "", **cost_limits: float | None
) -> "RemoteLauncherFactory | None":
    """Return the factory of launchers on Modal; None to score on this machine.

    If not None, `launcher_name` and `cost_limits` (`cost_limit`, `split_cost_limit`) override environment `variables`.
    For `salt` see `ModalLauncherFactory`. Raise UsageError if the name or a setting of Modal is invalid.
    """
    name = launcher_name or variables.get(LAUNCHER_VARIABLE) or LAUNCHER_NAMES[0]
    if name not in LAUNCHER_NAMES:
        raise UsageError(f"must be one of {', '.join(LAUNCHER_NAMES)}, got {name!r}", LAUNCHER_VARIABLE, "correct it")
    if name == LAUNCHER_NAMES[0]:
        return None
    from resources.modal_launcher import ModalLauncherFactory  # loads Modal's client

    return ModalLauncherFactory(ModalSettings.from_mapping(variables, **cost_limits), salt)
