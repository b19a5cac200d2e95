"""Verification of an artifact, or of its whole chain, against the manifests.

Every file is read, or a sample of the files. The sha256 of a compressed file is in the manifest's `storage`, which no
digest covers. If the file and this sha256 were both edited, only the file's content hash shows the edit.
"""

import contextlib
import datetime
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from pipeline_assets.build.pins.files_check import check_hub_cache, check_source_folders
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.formats.parquet import HASH_BLOCK_ROWS, ContentHash, StoredParquet
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.spine.artifact import Artifact, Damage, read_manifest, scan_folder
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.lineage import Finding, collect_chain
from pipeline_assets.spine.manifest import LabelNames
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.rehash import HashTask, rehash
from pipeline_assets.spine.replacement import pin_folder, replaced_error
from pipeline_assets.trust.result import Verification, VerificationScope

_QUIET_S = 2.0


def scan_chain(folder: Path, scope: VerificationScope, label_names: LabelNames) -> Verification:
    """Check names and sizes of all files in an artifact's `Chain`; list files to hash.

    If the scope has a data root, source folders and the hub cache are checked too. `label_names` returns the names of
    a kind's files that no digest covers. Raise RetryableError if an artifact was removed during the scan.
    """
    started_at = datetime.datetime.now(datetime.UTC)
    chain = collect_chain(folder, scope.root)
    findings, tasks = list(chain.broken_members), []
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
    scan_finding_count = len(findings)
    findings += chain.missing_inputs
    verification = Verification(folder, scope, chain, tasks, findings, scan_finding_count, started_at, label_names)
    if scope.root is not None:
        manifests = [artifact.manifest for artifact in chain.artifacts]
        verification.source_check, hub_files = check_source_folders(manifests, chain.external_inputs, scope.root)
        verification.hub_check = check_hub_cache(scope.root / CACHE_FOLDER, hub_files)
        findings += [*verification.hub_check.findings, *verification.source_check.findings]
    return verification


def read_and_check(verification: Verification) -> None:
    """Read and check the files of the scope; fetch and write nothing.

    Record the results. Raise RetryableError if an artifact was replaced since the scan, so that findings may be wrong.
    """
    _hash_files(verification)
    _check_contents(verification)
    for artifact in verification.chain.artifacts if verification.findings else ():
        with contextlib.suppress(OSError):
            if _is_unchanged(verification, artifact):
                continue
        raise replaced_error(artifact.folder)


def _is_unchanged(verification: Verification, artifact: Artifact) -> bool:
    """Check whether an artifact still has the manifest and damage that were found."""
    with pin_folder(artifact.folder) as folder:
        try:
            current = read_manifest(folder.stable_path)
        except InputError:
            return True  # the manifest is damaged
        if current != artifact.manifest:
            return False
        tasks = [task for task in verification.tasks if task.owner_digest == current.digest]
        damaged = [task for task in tasks if verification.task_state(task) == "damaged"]
        if any(_has_expected_hash(folder.stable_path / task.name, task) for task in damaged):
            return False
        present = scan_folder(folder.stable_path, current, verification.label_names)
        damaged_paths = {artifact.folder / item.path for item in present if isinstance(item, Damage)}
        scan_findings = verification.findings[: verification.scan_finding_count]
        scanned = [finding for finding in scan_findings if finding.artifact_digest == current.digest]
        return all(entry.where in damaged_paths for entry in scanned if entry not in verification.chain.broken_members)


def _has_expected_hash(path: Path, task: HashTask) -> bool:
    try:
        return file_sha256(path) == task.expected_hash
    except OSError:
        return False


def _hash_files(verification: Verification) -> None:
    scope, tasks = verification.scope, verification.all_tasks
    if (sample := scope.sample) is not None:
        tasks = []
        for group in verification.task_groups:
            tasks += sample.select(group, lambda task: task.bytes, lambda task: (task.owner_digest, task.name))
    progress = Progress("verify", sum(task.bytes for task in tasks), "bytes", scope.log_every_s, _QUIET_S)
    verification.add_results(rehash(tasks, scope.threads, progress))


def _check_contents(verification: Verification) -> None:
    """Check content hashes of intact compressed and Parquet files, if requested."""
    scope = verification.scope
    hashes = {
        (artifact.manifest.digest, file.path): file.content_sha256
        for artifact in verification.chain.artifacts
        for file in artifact.manifest.identity.files
        if not file.is_raw
    }
    tasks = [task for task in verification.intact_tasks if (task.owner_digest, task.name) in hashes]
    if not scope.checks_content and scope.sample is None:
        verification.unread_content_count = len(tasks)
        return
    progress = Progress("contents", sum(task.bytes for task in tasks), "bytes", scope.log_every_s, _QUIET_S)
    pool = ThreadPoolExecutor(max(scope.threads, 1))
    try:
        errors = pool.map(lambda task: _content_error(task, hashes[task.owner_digest, task.name]), tasks)
        for task, error in zip(tasks, errors, strict=True):
            progress.add(task.bytes)
            verification.content_results.append(error)
            if error is not None:
                verification.findings.append(Finding(task.paths[0], error, task.owner_digest))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _content_error(task: HashTask, expected: str) -> str | None:
    [path] = task.paths
    try:
        actual = content_sha256(path)
    except InputError as error:
        return error.what
    except (pa.ArrowException, OSError) as error:
        return f"content cannot be read ({one_line(error)})"
    return None if actual == expected else f"content hash is {actual}, sealed with {expected}"


def content_sha256(path: Path) -> str:
    """Compute the content hash of a Parquet or `.jsonl.zst` file, block by block."""
    if path.suffix == ".parquet":
        with StoredParquet(path) as file:
            content = ContentHash(file.schema_arrow)
            for batch in file.iter_batches(HASH_BLOCK_ROWS):
                content.update(pa.Table.from_batches([batch], file.schema_arrow))
        return content.hexdigest()
    digest = hashlib.sha256()
    for block in read_line_blocks(path):
        digest.update(block)
    return digest.hexdigest()
