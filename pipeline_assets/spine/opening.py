"""Opening of staging directories, after recovery from crashes of earlier builds."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_assets.spine import artifact, durable, staging
from pipeline_assets.spine.adoption import adopt_staging_dir
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest


@contextlib.contextmanager
def open_staging_dir(target: Path, plan: Mapping[str, Any]) -> Iterator[staging.StagingDir]:
    """Lock a target, recover it after a crash, and open its staging directory.

    Finished shards of an interrupted build with an equal plan are adopted; staging directories with other plans are
    removed. Raise BuilderBusyError if another process builds the target, and RetryableError if the target has files
    that were never sealed.
    """
    with locked(target, highest_fence(target)) as lock:
        _raise_if_not_sealed(target)
        if _is_seal_interrupted(target):
            _finish_or_undo_seal(target)
        has_partial_work = bool(staging.staging_folders(target))
        # The fencing number in the name is this builder's, so that an earlier one that still runs cannot seal.
        folder = staging.sibling_path(target, "building", lock.fence)
        plan_bytes = json.dumps(plan, sort_keys=True).encode()
        if has_partial_work:
            adopt_staging_dir(target, plan_bytes, folder)
        if not folder.exists():
            durable.make_folder(folder)
            durable.write_durably(folder / staging.PLAN_FILE, plan_bytes)
        try:
            yield staging.StagingDir(folder, target, lock, has_partial_work)
        except Exception as error:
            lock.raise_if_lost()  # if another builder took over the folder, that explains the failure
            if isinstance(error, FileNotFoundError) and highest_fence(target) < lock.fence:  # not sealed either
                raise staging.missing_folder_error(folder) from error
            raise


def seal_in_place(target: Path, manifest: Manifest, is_sealed: Callable[[], bool] = lambda: False) -> artifact.Artifact:
    """Seal an artifact by writing only its manifest.

    The content consists of members in `target`, or of external files. `is_sealed` is called under the lock; True means
    that another builder has just sealed the artifact, which is then returned unchanged. Raise RetryableError if the
    lock was lost.
    """
    durable.make_folder(target)
    with locked(target, highest_fence(target)) as lock:
        durable.remove_abandoned(target)
        if is_sealed():
            return artifact.open_artifact(target)
        sealed = replace(manifest, provenance={**manifest.provenance, staging.BUILDER_KEY: lock.fence})
        lock.raise_if_lost()
        durable.write_durably(target / MANIFEST_FILE, sealed.to_bytes())
        staging.make_read_only(target, [target / MANIFEST_FILE])
    return artifact.open_artifact(target, manifest.digest)


def recover(target: Path) -> None:
    """Finish or undo an interrupted seal; do nothing if a live builder has the lock."""
    if _is_seal_interrupted(target):
        with contextlib.suppress(InputError), locked(target, highest_fence(target)):
            _raise_if_not_sealed(target)
            _finish_or_undo_seal(target)


def _is_seal_interrupted(target: Path) -> bool:
    return any(staging.leftover_folders(target, "old")) or any(map(_is_incomplete, staging.staging_folders(target)))


def _is_incomplete(folder: Path) -> bool:
    """Check whether the creation, seal or removal of a staging directory was aborted."""
    return (folder / MANIFEST_FILE).exists() or not (folder / staging.PLAN_FILE).exists()


def _finish_or_undo_seal(target: Path) -> None:
    """Finish an interrupted seal if its files are intact, else undo it.

    The caller has the lock, and has checked that `target` is sealed, empty or missing.
    """
    for folder in filter(_is_incomplete, staging.staging_folders(target)):
        sealed, number = artifact.try_read_manifest(folder), staging.fencing_number(folder)
        is_own = sealed is not None and sealed.provenance.get(staging.BUILDER_KEY) == number
        if sealed is not None and is_own and not any(artifact.find_damage(folder, sealed)):
            staging.finish_seal(folder, target, number)
        else:
            durable.remove(folder)
    for old in staging.leftover_folders(target, "old"):
        if target.exists():
            durable.remove(old)
        else:
            durable.rename(old, target)


def highest_fence(target: Path) -> int:
    """Return the highest fencing number of a target's leftovers and manifest, or 0."""
    sealed = artifact.try_read_manifest(target)
    sealed_number = 0 if sealed is None else sealed.provenance.get(staging.BUILDER_KEY, 0)
    return max([sealed_number, *map(staging.fencing_number, staging.list_leftovers(target))])


def _raise_if_not_sealed(target: Path) -> None:
    """Raise RetryableError if a seal would replace files that were never sealed."""
    is_sealed = (target / MANIFEST_FILE).exists()
    if not is_sealed and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        what = "the path exists and is not a sealed artifact"
        raise RetryableError(what, target, "move it away, then run the same command")
