"""Recovery of an artifact whose seal was interrupted by a crash."""

from pathlib import Path

from pipeline_assets.spine import artifact, durable
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.staging import (
    BUILDER_KEY,
    PLAN_FILE,
    fencing_number,
    finish_seal,
    leftover_folders,
    staging_folders,
)


def is_incomplete(folder: Path) -> bool:
    """Check whether the creation, seal or removal of a staging directory was aborted."""
    return (folder / MANIFEST_FILE).exists() or not (folder / PLAN_FILE).exists()


def finish_or_undo_seal(target: Path) -> None:
    """Finish an interrupted seal if its files are intact, else undo it.

    The caller has the lock, and has checked that `target` is sealed, empty or missing.
    """
    for folder in filter(is_incomplete, staging_folders(target)):
        sealed, number = artifact.try_read_manifest(folder), fencing_number(folder)
        is_own = sealed is not None and sealed.provenance.get(BUILDER_KEY) == number
        if sealed is not None and is_own and not any(artifact.find_damage(folder, sealed)):
            finish_seal(folder, target, number)
        else:
            durable.remove(folder)
    for old in leftover_folders(target, "old"):
        if target.exists():
            durable.remove(old)
        else:
            durable.rename(old, target)
