"""Sealing of artifacts: with the files that were built, or as a manifest only."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.build.removal_state import read_removals
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import Artifact, open_artifact, read_manifest, try_read_manifest
from pipeline_assets.spine.build_result import BuildFunction, BuildResult
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import Identity, Manifest
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.spine.provenance import ProvenanceRecorder
from pipeline_assets.spine.receipt_files import verify_work
from pipeline_assets.spine.usage import peak_memory_bytes, reclaimable_bytes
from pipeline_assets.spine.verified_reads import verify_reads

REPLACE_OPTION = "--replace"  # the run setting in messages
_REPLACE_HINT = f"run with {REPLACE_OPTION}"


def build_target(
    target: Target, root: Path, write_files: BuildFunction, replace: bool, run_settings: Mapping[str, Any]
) -> Artifact:
    """Build and seal a target, or open the sealed artifact if it matches the recipe.

    `write_files` writes files into the staging directory and describes them. If `write_files` reads an input file with
    an unexpected hash, InputError is raised and nothing is sealed.

    Raises:
        UsageError: The folder has an artifact of a different kind; or its artifact is stale, and `replace` is not set.
        InputError: The folder's artifact is damaged, and `replace` is not set; an input failed a blocking check; an
            input or the removal list changed during the build; or another process is building the target.
    """
    recover(root / target.folder)
    if target.matches_recipe(root):
        return open_artifact(root / target.folder)
    raise_if_occupied(target, root, replace)
    for upstream in target.upstream:
        upstream.raise_if_failed(root)
    folder, plan, recorder = root / target.folder, target.plan(root), ProvenanceRecorder()
    with open_staging_dir(folder, plan) as staging:
        if target.matches_recipe(root):
            staging.discard()
            return open_artifact(folder)
        raise_if_occupied(target, root, replace)
        adopted = staging.count_finished_shards()
        try:
            with verify_reads(), verify_work(staging.folder):
                result = write_files(staging)
        except InputError:
            staging.discard_if_unstarted()
            raise
        if (now := target.plan(root)) != plan:
            is_replaced = now["inputs"] != plan["inputs"]
            what = "an input was replaced" if is_replaced else "entries were added to the removal list"
            raise RetryableError(f"{what} during the build", folder, "run the same command again")
        provenance = {
            **recorder.provenance(run_settings),
            "peak_disk_bytes": reclaimable_bytes((staging.folder,)),
            "peak_memory_bytes": peak_memory_bytes(),
            "adopted_shards": adopted,
            **result.provenance,
            **({} if target.intended_use is None else {"made_for": target.intended_use}),
            **_replacement_entry(try_read_manifest(folder), root),
        }
        identity = _build_identity(target, result, plan["inputs"])
        manifest = Manifest(target.kind.name, target.name, identity, [], provenance)
        page = () if result.write_page is None else (result.write_page(staging, manifest),)
        stored = [file.stored for file in (*result.files, *result.labels, *page)]
        return staging.seal(dataclasses.replace(manifest, storage=stored))


def seal_manifest(
    target: Target, root: Path, list_inputs: Callable[[], BuildResult], replace: bool, run_settings: Mapping[str, Any]
) -> Artifact:
    """Seal an artifact without files: its manifest lists members or external files.

    If the sealed artifact matches its recipe, `list_inputs` is not called, because it may hash all inputs. A sealed
    manifest with different content is replaced if `replace` is set or no other artifact depends on the manifest.
    """
    if target.matches_recipe(root):
        return open_artifact(root / target.folder)
    recorder = ProvenanceRecorder()
    with verify_reads():
        result = list_inputs()
    inputs = [
        entry | {"member": upstream.folder.name} if upstream in target.members else entry
        for entry, upstream in zip(target.inputs(root), target.upstream, strict=True)
    ]
    for upstream in target.upstream:
        upstream.raise_if_failed(root)
    identity = _build_identity(target, result, inputs)
    sealed = try_read_manifest(root / target.folder)
    if sealed is None or sealed.digest != identity.digest:
        is_replaceable = replace or (sealed is not None and not Lineage(root).downstream(sealed.digest))
        raise_if_occupied(target, root, is_replaceable)
    provenance = {**recorder.provenance(run_settings), **result.provenance, **_replacement_entry(sealed, root)}
    manifest = Manifest(target.kind.name, target.name, identity, [], provenance)
    return seal_in_place(root / target.folder, manifest, functools.partial(target.matches_recipe, root))


def raise_if_occupied(target: Target, root: Path, replace: bool) -> None:
    """Raise an error if the folder has an artifact that must not be replaced.

    Raise UsageError if the artifact is of another kind or, without `replace`, does not match the target. Raise
    InputError if it is damaged, unless `replace` is set. Raise RetryableError if its manifest may not be read: it may
    be intact.
    """
    state, reason = target.state(root)
    if state == "damaged":
        _raise_if_denied(root / target.folder)
    sealed = read_manifest(root / target.folder) if state == "stale" else None
    if sealed is not None and sealed.kind != target.kind.name:
        what = f"expected a {target.kind.name}, got a {sealed.kind}"
        raise UsageError(what, root / target.folder, "choose another output folder")
    if replace or state in ("missing", "current", "failed"):
        return
    if state == "damaged":
        what, fix = f"the artifact is damaged ({reason})", f"{_REPLACE_HINT} to build it again"
        raise InputError(what, root / target.folder, fix)
    if sealed is not None and target.removal_staleness(root, sealed) == reason:
        # A build under another name would leave the rows to forget where they are.
        what, _, fix = reason.partition("; ")
        fix = f"{fix}, or {_REPLACE_HINT}" if fix else f"{_REPLACE_HINT} to build it without listed rows"
        raise UsageError(what, root / target.folder, fix)
    fix = f"set another `{target.name_key}` in the recipe, or {_REPLACE_HINT}"
    raise UsageError(f"another version is sealed here: {reason}", root / target.folder, fix)


def _raise_if_denied(folder: Path) -> None:
    """Raise RetryableError if this user may not read the manifest in a folder."""
    try:
        read_manifest(folder)
    except RetryableError:
        raise
    except InputError:
        pass


def _replacement_entry(sealed: Manifest | None, root: Path) -> dict[str, str]:
    """Return the provenance entry `replaces`, which only `forget` reads; may be empty."""
    return {"replaces": sealed.digest} if sealed is not None and read_removals(root).entries else {}


def _build_identity(target: Target, result: BuildResult, inputs: Sequence[Mapping[str, Any]]) -> Identity:
    return Identity(
        stage=target.stage,
        recipe=target.recipe,
        inputs=[*inputs, *result.external_inputs],
        tokenizer=target.tokenizer,
        decisions=result.decisions,
        counts=result.counts,
        files=[file.content for file in result.files],
    )
