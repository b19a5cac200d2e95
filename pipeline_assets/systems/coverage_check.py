"""The check of normalized rows against the inventory of their dataset."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.row_checks import compare_coverage
from pipeline_assets.spine.artifact import Artifact, Verdict, open_artifact, read_manifest


def coverage_within_inventory(shards: Artifact, target: Target, root: Path) -> Verdict:
    """Check that the metadata of normalized rows matches the counts in the inventory."""
    upstream = shards.manifest.identity.upstream
    inventories = [_open_derived_from(inventory, upstream, root) for inventory in target.checked_against]
    return compare_coverage(shards, inventories)


def _open_derived_from(target: Target, inputs: Sequence[Mapping[str, Any]], root: Path) -> Artifact | None:
    """Open a target's artifact if it was built from `inputs`; else return None.

    The artifact must have the target's recipe and stage, and `inputs` (the input entries of another manifest) must
    contain all its upstream artifacts. External files are not compared. Raise InputError if the artifact is damaged.
    """
    manifest = read_manifest(root / target.folder)
    if manifest is None or (manifest.identity.recipe, manifest.identity.stage) != (target.recipe, target.stage):
        return None
    is_derived = all(entry in inputs for entry in manifest.identity.upstream)
    return open_artifact(root / target.folder) if is_derived else None
