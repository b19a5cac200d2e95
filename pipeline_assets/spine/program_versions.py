"""Versions of program, Python, platform and libraries, as stored in a provenance."""

from collections.abc import Mapping
from typing import Any

from pipeline_assets.spine.provenance import ProvenanceRecorder


def current_versions() -> dict[str, str | None]:
    """Return the versions of program, Python, platform and libraries in this process.

    Keys are `program` (its version is a commit), `python`, `platform` and names of libraries. None stands for an
    unknown commit, or for a library that is not installed.
    """
    return recorded_versions(ProvenanceRecorder().provenance({}))


def recorded_versions(provenance: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the versions in a provenance, keyed as in `current_versions`."""
    keys = {"program": "git_sha", "python": "python", "platform": "platform"}
    versions = {name: provenance[key] for name, key in keys.items() if key in provenance}
    return {**versions, **provenance.get("libraries", {})}
