"""Opening of staging directories, with recovery from crashes of earlier builds."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_assets.spine import artifact, durable
from pipeline_assets.spine.adoption import drop_invalid_receipts
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import FILE_NAME, Identity, Manifest
from pipeline_assets.spine.metadata_file import MetadataFile
from pipeline_assets.spine.staging import (
    BUILDER,
    PLAN,
    RECEIPTS,
    StagingDir,
    fencing_number,
    finish_seal,
    leftover_folders,
    leftover_path,
    list_leftovers,
    make_read_only,
    remove_unnamed,
    staging_folders,
)

_PLAN_FILE: MetadataFile[dict[str, Any]] = MetadataFile("plan", 256 << 20, "run its recipe again", dict[str, Any])


@contextlib.contextmanager
def open_staging_dir(target: Path, plan: Mapping[str, Any]) -> Iterator[StagingDir]:
    """Lock a target, recover it after a crash, and open its staging directory.

    Finished shards of an interrupted build with an equal plan are adopted; a directory with a different plan is
    removed.

    Raises:
        BuilderBusy: Another process builds the same target.
        RetryableError: The target has files and was never sealed.
    """
    with locked(target, highest_fence(target)) as lock:
        _recover_locked(target)
        has_partial_work = bool(staging_folders(target))
        folder = _adopt(target, plan, lock.fence)
        try:
            yield StagingDir(folder, target, lock, has_partial_work)
        except Exception:
            lock.raise_if_lost()  # if another builder took over the folder, that explains the failure
            raise


def seal_in_place(
    target: Path,
    kind: str,
    name: str,
    identity: Identity,
    provenance: Mapping[str, Any],
    is_sealed: Callable[[], bool] = lambda: False,
) -> artifact.Artifact:
    """Seal an artifact by writing only its manifest.

    The content is members in `target`, or external files. After locking, `is_sealed` is called: True means that another
    builder has just sealed the artifact. That artifact is returned unchanged, because it may be in use.
    """
    durable.make_folder(target)
    with locked(target, highest_fence(target)) as lock:
        durable.remove_abandoned(target)
        if is_sealed():
            return artifact.open_artifact(target)
        manifest = Manifest(kind, name, identity, [], {**provenance, BUILDER: lock.fence})
        durable.write_durably(target / FILE_NAME, manifest.to_bytes())
        make_read_only(target, [target / FILE_NAME])
    return artifact.open_artifact(target, manifest.digest)


def read_plan(folder: Path) -> Mapping[str, Any]:
    """Return the plan of a staging directory; empty if it cannot be read."""
    return _PLAN_FILE.read_valid(folder / PLAN) or {}


def _adopt(target: Path, plan: Mapping[str, Any], fence: int) -> Path:
    """Rename the newest staging directory with an equal plan, or create an empty one.

    Other staging directories are removed, and so are files without a valid receipt. The new name has this builder's
    fencing number. An earlier builder that still runs loses its paths and cannot seal.
    """
    folder = leftover_path(target, "building", fence)
    plan_bytes = json.dumps(plan, sort_keys=True).encode()
    for other in reversed(staging_folders(target)):
        if not folder.exists() and _PLAN_FILE.has_content(other / PLAN, plan_bytes):
            durable.rename(other, folder)
        else:
            durable.remove(other)
    if folder.exists():
        remove_unnamed(folder, drop_invalid_receipts(folder), keep=(PLAN, RECEIPTS))
    else:
        durable.make_folder(folder)
        durable.write_durably(folder / PLAN, plan_bytes)
    return folder


def recover(target: Path) -> None:
    """Finish or undo an interrupted seal, unless a live builder holds the lock."""
    if leftover_folders(target, "old") or any(_is_incomplete(folder) for folder in staging_folders(target)):
        with contextlib.suppress(InputError), locked(target, highest_fence(target)):
            _recover_locked(target)


def highest_fence(target: Path) -> int:
    """Return the highest fencing number of a target's leftovers and manifest, or 0."""
    sealed = artifact.try_read_manifest(target)
    sealed_number = 0 if sealed is None else sealed.provenance.get(BUILDER, 0)
    return max([sealed_number, *map(fencing_number, list_leftovers(target))])


def _is_incomplete(folder: Path) -> bool:
    """Check whether the creation, seal or removal of a staging directory was cut off."""
    return (folder / FILE_NAME).exists() or not (folder / PLAN).exists()


def _recover_locked(target: Path) -> None:
    """Finish or undo an interrupted seal; the caller has the lock."""
    _raise_if_not_sealed(target)
    for folder in filter(_is_incomplete, staging_folders(target)):
        sealed, number = artifact.try_read_manifest(folder), fencing_number(folder)
        is_own = sealed is not None and sealed.provenance.get(BUILDER) == number
        if sealed is not None and is_own and not any(artifact.find_damage(folder, sealed)):
            finish_seal(folder, target, number)
        else:
            durable.remove(folder)
    for old in leftover_folders(target, "old"):
        if target.exists():
            durable.remove(old)
        else:
            durable.rename(old, target)


def _raise_if_not_sealed(target: Path) -> None:
    """Raise RetryableError if a seal would replace files that were never sealed."""
    is_sealed = (target / FILE_NAME).exists()
    if not is_sealed and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        what = "the path exists and is not a sealed artifact"
        raise RetryableError(what, target, "move it away, then run the same command")
