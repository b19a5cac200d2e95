"""Where score shards run, as settings say it: here, or on Modal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.scoring.launcher import RemoteLauncherFactory  # which loads more than most runs need

LAUNCHER = "CORPUSMILL_LAUNCHER"
_KNOWN = ("local", "modal")


def remote_launcher_factory(
    variables: Mapping[str, str],
    launcher: str | None = None,
    salt: str = "",
    **limits: float | None,
) -> "RemoteLauncherFactory | None":
    """None for this machine.

    Args:
        variables: the environment.
        launcher: overrides the environment; None for no override.
        salt: as of `ModalLauncherFactory`.
        limits: `cost_limit` and `split_cost_limit` of Modal, which override the environment; None for no override.
    Raises:
        UsageError: there is no such launcher; as `ModalSettings.of`.
    """
    wanted = launcher or variables.get(LAUNCHER) or _KNOWN[0]
    if wanted not in _KNOWN:
        raise UsageError(f"it is {wanted!r}", LAUNCHER, f"set one of {', '.join(_KNOWN)}")
    if wanted == _KNOWN[0]:
        return None
    from resources.modal_launcher import ModalLauncherFactory  # which loads Modal's client

    return ModalLauncherFactory(ModalSettings.from_mapping(variables, **limits), salt)
