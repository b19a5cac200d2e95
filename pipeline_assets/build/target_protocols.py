"""Protocols of local inputs and count limits, which targets get from recipes."""

from pathlib import Path
from typing import Protocol

from pipeline_assets.spine.artifact import Verdict
from pipeline_assets.spine.manifest import Manifest


class ExternalInputs(Protocol):
    """Local files that an artifact reads, but that no artifact contains."""

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """Describe the files that changed since the seal; None if unchanged."""


class CountLimit(Protocol):
    """Limit of a recipe on an artifact's counts, reported as the check `check_name`.

    The limit is evaluated whenever the target's state is read, since a recipe may change the limit after the build.
    """

    @property
    def check_name(self) -> str: ...

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Evaluate the limit for a sealed artifact."""
