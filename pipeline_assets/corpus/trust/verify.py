"""An artifact, or its whole chain, held against what its manifests say: every file, or a sample."""

import datetime
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_assets.corpus.readers.held import held_of_folders, held_of_hub
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.spine.artifact import Artifact, Damage, present_files, read_manifest
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import file_sha256, held, was_replaced
from pipeline_assets.corpus.spine.lineage import Finding, chain_of
from pipeline_assets.corpus.spine.manifest import StoredFile
from pipeline_assets.corpus.spine.rehash import HashTask, Journal, rehash
from pipeline_assets.corpus.spine.usage import Progress
from pipeline_assets.corpus.trust.result import Proven, Sample, Scope, Verification

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.lineage import Lineage
    from pipeline_assets.corpus.trust.proof import Prover


_QUIET_S = 2.0


def look_at_chain(folder: Path, scope: Scope) -> Verification:
    """What manifests, names and sizes tell; what is to be read are hash tasks.

    Raises:
        InputError: nothing is sealed in the folder, or its manifest was edited.
    """
    started_at = datetime.datetime.now(datetime.UTC)
    chain = chain_of(folder, scope.root)
    findings, tasks = list(chain.broken), []
    for artifact in chain.artifacts:
        digest = artifact.manifest.digest
        for item in _present(artifact):
            path = artifact.folder / item.path
            if isinstance(item, Damage):
                findings.append(Finding(path, item.what, digest))
            else:
                tasks.append(HashTask(digest, item.path, (path,), item.bytes, "sha256", item.sha256, "sealed with"))
    out_of_place = len(findings)
    findings += chain.missing
    found = Verification(folder, scope, chain, tasks, findings, out_of_place, None, None, started_at)
    if scope.root is not None:
        manifests = [artifact.manifest for artifact in chain.artifacts]
        found.sources, of_hub = held_of_folders(manifests, chain.outside, scope.root)
        found.hub = held_of_hub(scope.root / CACHE_FOLDER, of_hub)
        findings += [*found.hub.findings, *found.sources.findings]
    return found


def _labels_of(kind: str) -> Collection[str]:
    from pipeline_assets.systems.registry import labels_of  # every system, and few artifacts have labels

    return labels_of(kind)


def hold(found: Verification, journal: Journal) -> None:
    """Reads what the scope asks for. Nothing is written but the journal, and nothing is fetched.

    Raises:
        RetryableError: an artifact was replaced meanwhile, so that nothing can be said of it.
    """
    _read(found, journal)
    _read_contents(found, journal)
    if found.scope.sample is not None and found.scope.root is not None:
        _prove(found, found.scope.sample, journal)
    if found.findings:
        _refuse_replaced(found)
    found.seconds = (datetime.datetime.now(datetime.UTC) - found.started_at).total_seconds()


def _present(artifact: Artifact) -> list[StoredFile | Damage]:
    """
    Raises:
        RetryableError: the folder, or a part of it, was gone while it was looked through.
    """
    try:
        return list(present_files(artifact.folder, artifact.manifest, _labels_of))
    except FileNotFoundError:
        raise was_replaced(artifact.folder) from None


def _refuse_replaced(found: Verification) -> None:
    """
    Raises:
        RetryableError: what was found is not so of an artifact of the chain, but of one that took its place meanwhile.
    """
    for artifact in found.chain.artifacts:
        try:
            shows_again = _shows_again(found, artifact)
        except OSError:
            shows_again = False
        if not shows_again:
            raise was_replaced(artifact.folder)


def _shows_again(found: Verification, artifact: Artifact) -> bool:
    """Whether an artifact has what was found by its name, now that no other can come between."""
    with held(artifact.folder) as folder:
        try:
            now = read_manifest(folder.view)
        except InputError:
            return True  # its manifest is damaged
        if now != artifact.manifest:
            return False
        digest, present = now.digest, present_files(folder.view, now, _labels_of)
        there = {artifact.folder / item.path for item in present if isinstance(item, Damage)}
        looked_at = [finding for finding in found.findings[: found.out_of_place] if finding not in found.chain.broken]
        damaged = [task for task in found.tasks if task.owner == digest and found.state_of(task) == "damaged"]
        return all(finding.where in there for finding in looked_at if finding.artifact == digest) and not any(
            _is_as_expected(folder.view / task.name, task) for task in damaged
        )


def _is_as_expected(path: Path, task: HashTask) -> bool:
    try:
        return file_sha256(path) == task.expected
    except OSError:
        return False


def _read(found: Verification, journal: Journal) -> None:
    scope, tasks = found.scope, found.all_tasks
    if scope.sample is not None:
        tasks = [task for part in found.parts for task in _drawn(scope.sample, part)]
    started = time.monotonic()
    progress = Progress("verify", sum(task.bytes for task in tasks), "bytes", scope.log_every_s, _QUIET_S)
    found.take(rehash(tasks, journal, scope.threads, progress))
    found.reading_seconds = time.monotonic() - started


def _read_contents(found: Verification, journal: Journal) -> None:
    """What the files say that were found as sealed."""
    from pipeline_assets.corpus.trust.proof import contents_of, read_contents

    scope, manifests = found.scope, [artifact.manifest for artifact in found.chain.artifacts]
    held = [task for task in found.tasks if found.state_of(task) in ("as_sealed", "read_before")]
    contents = contents_of(held, manifests)
    if not scope.content and scope.sample is None:
        found.unread_contents = len(contents)
        return
    progress = Progress("contents", sum(task.bytes for task, _ in contents), "bytes", scope.log_every_s, _QUIET_S)
    for result in read_contents(contents, journal, scope.threads, progress):
        found.contents.append(result)
        if result.complaint is not None:
            found.findings.append(Finding(result.task.paths[0], result.complaint, result.task.owner))


def _drawn(sample: Sample, tasks: Sequence[HashTask]) -> list[HashTask]:
    return sample.fitting(tasks, lambda task: task.bytes, lambda task: (task.owner, task.name))


def _prove(found: Verification, sample: Sample, journal: Journal) -> None:
    """Documents of every artifact of the chain that can be worked out again, as far as its upstream is here."""
    from pipeline_assets.corpus.trust.proof import proofs

    for artifact in found.chain.artifacts:
        prover = _prover_of(artifact, found.chain.lineage)
        if prover is None:
            continue
        proven = Proven(artifact)
        found.proofs.append(proven)
        if isinstance(prover, str):
            proven.why_not = prover
            continue
        proven.how, proven.shards_in_all = prover.how, len(prover.shards)
        for shard in proofs(prover, sample, journal, found.scope.threads, found.scope.log_every_s):
            proven.shards.append(shard)
            found.findings += [Finding(artifact.folder, what, artifact.manifest.digest) for what in shard.complaints]


def _prover_of(artifact: Artifact, lineage: "Lineage | None") -> "Prover | str | None":
    """How an artifact's documents are proven, or why they can't be; None for one that says nothing of documents."""
    from pipeline_assets.corpus.rows.trace import rows_of

    try:
        store = rows_of(artifact, lineage)
        return None if store is None else store.prover()
    except InputError as error:
        is_gone = lineage is not None and error.where == str(lineage.root)
        return "what it was made from is not here" if is_gone else str(error)
