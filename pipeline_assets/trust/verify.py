"""Verification of an artifact, or of its whole chain, against the manifests.

It reads every file, or a sample. A manifest's `storage` is in no digest, so an edited compressed file still matches if
its sha256 there was edited too; only its content hash shows the edit. An uncompressed file has one hash for both.
"""

import contextlib
import datetime
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from pipeline_assets.build.pins.files_check import check_hub_cache, check_source_folders
from pipeline_assets.corpus.formats.parquet import content_sha256
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.spine.artifact import Artifact, Damage, read_manifest, scan_folder
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.lineage import Finding, collect_chain
from pipeline_assets.spine.manifest import LabelNames
from pipeline_assets.spine.pinned_folder import pin_folder, replaced_error
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.rehash import HashTask, rehash
from pipeline_assets.trust.result import Scope, Verification

_QUIET_S = 2.0


def scan_chain(folder: Path, scope: Scope, label_names: LabelNames) -> Verification:
    """Check manifests, names and sizes of a chain; list files to read as hash tasks.

    `label_names` returns the names of the labels of a kind.

    Raises:
        InputError: The folder has no artifact, or its manifest was edited.
        RetryableError: An artifact was removed during the scan.
    """
    started_at = datetime.datetime.now(datetime.UTC)
    chain = collect_chain(folder, scope.root)
    findings, tasks = list(chain.broken), []
    for artifact in chain.artifacts:
        digest = artifact.manifest.digest
        try:
            present = list(scan_folder(artifact.folder, artifact.manifest, label_names))
        except FileNotFoundError:
            raise replaced_error(artifact.folder) from None
        for item in present:
            path = artifact.folder / item.path
            if isinstance(item, Damage):
                findings.append(Finding(path, item.what, digest))
            else:
                tasks.append(HashTask(digest, item.path, (path,), item.bytes, "sha256", item.sha256, "sealed with"))
    out_of_place = len(findings)
    findings += chain.missing
    found = Verification(folder, scope, chain, tasks, findings, out_of_place, started_at, label_names)
    if scope.root is not None:
        manifests = [artifact.manifest for artifact in chain.artifacts]
        found.sources, hub_files = check_source_folders(manifests, chain.external_inputs, scope.root)
        found.hub = check_hub_cache(scope.root / CACHE_FOLDER, hub_files)
        findings += [*found.hub.findings, *found.sources.findings]
    return found


def read_and_check(found: Verification) -> None:
    """Read and check the files of the scope; fetch and write nothing.

    Raises:
        RetryableError: An artifact with findings was replaced since the scan of the chain.
    """
    _read(found)
    _read_contents(found)
    if found.findings:
        _raise_if_replaced(found)


def _raise_if_replaced(found: Verification) -> None:
    """Raise RetryableError if a finding is due to a replaced artifact."""
    for artifact in found.chain.artifacts:
        with contextlib.suppress(OSError):
            if _is_still_damaged(found, artifact):
                continue
        raise replaced_error(artifact.folder)


def _is_still_damaged(found: Verification, artifact: Artifact) -> bool:
    """Check whether the findings on an artifact recur while its folder is kept open."""
    with pin_folder(artifact.folder) as folder:
        try:
            now = read_manifest(folder.view)
        except InputError:
            return True  # its manifest is damaged
        if now != artifact.manifest:
            return False
        digest, present = now.digest, scan_folder(folder.view, now, found.label_names)
        damaged_paths = {artifact.folder / item.path for item in present if isinstance(item, Damage)}
        looked_at = [
            finding for finding in found.findings[: found.scan_finding_count] if finding not in found.chain.broken
        ]
        damaged = [task for task in found.tasks if task.owner == digest and found.artifact_state(task) == "damaged"]
        return all(finding.where in damaged_paths for finding in looked_at if finding.artifact == digest) and not any(
            _has_expected_hash(folder.view / task.name, task) for task in damaged
        )


def _has_expected_hash(path: Path, task: HashTask) -> bool:
    try:
        return file_sha256(path) == task.expected
    except OSError:
        return False


def _read(found: Verification) -> None:
    scope, tasks = found.scope, found.all_tasks
    if (sample := scope.sample) is not None:
        parts = (
            sample.select(part, lambda task: task.bytes, lambda task: (task.owner, task.name))
            for part in found.task_groups
        )
        tasks = list(itertools.chain.from_iterable(parts))
    progress = Progress("verify", sum(task.bytes for task in tasks), "bytes", scope.log_every_s, _QUIET_S)
    found.add_results(rehash(tasks, scope.threads, progress))


def _read_contents(found: Verification) -> None:
    """Check the content hashes of intact files; labels and raw files have none."""
    scope = found.scope
    hashes = {
        (artifact.manifest.digest, file.path): file.content_sha256
        for artifact in found.chain.artifacts
        for file in artifact.manifest.identity.files
        if not file.is_raw
    }
    tasks = [task for task in found.intact_tasks if (task.owner, task.name) in hashes]
    if not scope.content and scope.sample is None:
        found.unread_contents = len(tasks)
        return
    progress = Progress("contents", sum(task.bytes for task in tasks), "bytes", scope.log_every_s, _QUIET_S)
    pool = ThreadPoolExecutor(max(scope.threads, 1))
    try:
        complaints = pool.map(lambda task: _content_complaint(task, hashes[task.owner, task.name]), tasks)
        for task, complaint in zip(tasks, complaints, strict=True):
            progress.add(task.bytes)
            found.contents.append(complaint)
            if complaint is not None:
                found.findings.append(Finding(task.paths[0], complaint, task.owner))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _content_complaint(task: HashTask, expected: str) -> str | None:
    [path] = task.paths
    try:
        actual = content_sha256(path)
    except InputError as error:
        return error.what
    except (pa.ArrowException, OSError) as error:
        return f"its content can't be read ({one_line(error)})"
    return None if actual == expected else f"its content has {actual}, the digest names {expected}"
