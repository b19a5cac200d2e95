"""The command `verify`, which compares artifacts with their manifests."""

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.pins.files_check import SourceFolderCheck
from pipeline_assets.build.run import LOG_EVERY, WORKERS
from pipeline_assets.commands import terminal
from pipeline_assets.spine.artifact import Artifact, repair_hint
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.provenance import ProvenanceRecorder
from pipeline_assets.spine.rehash import HashTask
from pipeline_assets.spine.visible import to_one_line
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.result import FileSample, Verification, VerificationScope, verification_json

_MAX_SHOWN_FINDINGS = 50
_TASK_GROUP_NAMES = ("files of the artifacts", "parts of files in the hub cache", "source files")


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    upstream: Annotated[bool, typer.Option("--upstream", help="Verify all upstream artifacts and inputs too.")] = False,
    content: Annotated[
        bool, typer.Option("--content", help="Recompute content hashes of compressed files too.")
    ] = False,
    sample: Annotated[str | None, typer.Option(help="Read only a share of the bytes: 5% or 0.05.")] = None,
    seed: Annotated[str, typer.Option(help="Random seed of the sample.")] = "0",
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> bool:
    """Verify every file of an artifact against its manifest.

    Exit status 1: an artifact is damaged, incomplete or missing, an input file is changed or missing in its source
    folder, or the hub cache is damaged. Missing cache files, and files of missing source folders, are only counted.

    Example: corpusmill verify data/megatron/healing_text_v1 --upstream
    """
    from pipeline_assets.trust.verify import read_and_check, scan_chain

    if sample is None and seed != "0":
        raise UsageError("needs --sample", "--seed", "pass --sample too")
    drawn = None if sample is None else FileSample.parse(sample, seed)
    root = terminal.data_root(folder, data) if upstream else None
    terminal.log_to_stderr()
    scope = VerificationScope(root, drawn, content, WORKERS.read(os.environ), LOG_EVERY.read(os.environ))
    verification = scan_chain(folder, scope, SYSTEMS.label_names)
    read_and_check(verification)
    report = None
    if as_json:
        provenance = ProvenanceRecorder().provenance({})
        machine = {name: provenance[name] for name in ("host", "platform", "python", "libraries", "git_sha")}
        report = verification_json(verification, {"corpusmill": version("corpusmill"), **machine})
    terminal.print_answer(as_json, report, map(to_one_line, _verification_lines(verification)))
    return not verification.findings


def _verification_lines(verification: Verification) -> Iterator[str]:
    for finding in verification.findings[:_MAX_SHOWN_FINDINGS]:
        yield f"{finding.where}: {finding.what}"
    if len(verification.findings) > _MAX_SHOWN_FINDINGS:
        yield f"… and {len(verification.findings) - _MAX_SHOWN_FINDINGS:,} more; --json lists them"
    if verification.scope.root is not None:
        cells = [_artifact_cells(artifact, verification) for artifact in verification.chain.artifacts]
        yield from terminal.align(cells, number_columns=(3, 4))
    if (hub := verification.hub_check) is not None and hub.listed_count:
        whole, partial, missing = len(hub.whole_files), len(hub.partial_files), len(hub.unavailable)
        total, size = whole + partial + missing, _describe_hashed_bytes(hub.tasks, verification)
        found = f"{whole:,} of {pluralize(total, 'input file')} complete, {partial:,} in part ({size})"
        yield f"hub cache: {found}, {missing:,} missing"
    if verification.source_check is not None and verification.source_check.listed_count:
        yield _sources_line(verification, verification.source_check)
    yield from _unread_lines(verification)
    damaged = {finding.where for finding in verification.findings}
    for artifact in verification.chain.artifacts:
        if damaged & {artifact.folder / file.path for file in artifact.manifest.storage}:
            yield f"to repair it: {repair_hint(artifact.folder)}"
    yield _summary_line(verification)
    yield verification.chain.artifacts[0].manifest.digest


def _artifact_cells(artifact: Artifact, verification: Verification) -> tuple[str, ...]:
    digest = artifact.manifest.digest
    tasks = [task for task in verification.tasks if task.owner_digest == digest]
    read = [task for task in tasks if verification.task_state(task) != "not_read"]
    word = "DAMAGED" if verification.is_damaged(artifact) else "intact" if len(read) == len(tasks) else "sampled"
    size = sum(task.bytes for task in read)
    files = pluralize(len(tasks), "file")
    files = files if len(read) == len(tasks) else f"{len(read):,} of {files}"
    return word, artifact.manifest.kind, artifact.manifest.name, files, pluralize(size, "byte")


def _sources_line(verification: Verification, folder_check: SourceFolderCheck) -> str:
    tasks = [task for task in folder_check.tasks if verification.task_state(task) != "damaged"]
    total = pluralize(folder_check.listed_count, "input file")
    unchanged = f"{len(tasks):,} of {total} unchanged ({_describe_hashed_bytes(tasks, verification)})"
    changed, missing = len(folder_check.findings), len(folder_check.unavailable)
    folders = ", ".join(map(str, folder_check.missing_folders))
    not_found = f"; folder not found: {folders}" if folders else ""
    return f"source files: {unchanged}, {changed:,} changed, {missing:,} missing{not_found}"


def _describe_hashed_bytes(tasks: Sequence[HashTask], verification: Verification) -> str:
    size = sum(task.bytes for task in tasks)
    hashed = sum(task.bytes for task in tasks if verification.task_state(task) != "not_read")
    return f"{pluralize(size, 'byte')}, " + ("all hashed" if hashed == size else f"{hashed:,} of them hashed")


def _describe_content_hashes(verification: Verification) -> str:
    """Report how many content hashes of compressed files match or are unchecked."""
    if verification.content_results:
        correct = verification.content_results.count(None)
        return f"; content hashes of compressed files match: {correct:,} of {len(verification.content_results):,}"
    if verification.unread_content_count:
        return f"; content hashes of compressed files not recomputed: {verification.unread_content_count:,} (--content)"
    return ""


def _summary_line(verification: Verification) -> str:
    files, size = len(verification.tasks) + verification.scan_finding_count, verification.intact_bytes
    word = "intact" if verification.verdict.startswith("intact") else verification.verdict.upper()
    missing = len(verification.chain.missing_inputs)
    rest = _describe_content_hashes(verification)
    are_missing = "is missing, with its inputs" if missing == 1 else "are missing, with their inputs"
    rest += f"; {pluralize(missing, 'upstream artifact')} {are_missing}" if missing else ""
    match = f"{pluralize(files, 'file')} match{'es its manifest' if files == 1 else ' their manifests'}"
    checked = f"{len(verification.intact_tasks):,} of {match}, {pluralize(size, 'byte')}"
    if verification.scope.sample is not None and verification.unread_tasks:
        word = f"{word} of a sample ({verification.percent_read:.1f} % of bytes)"
        checked += "; of the others, only names and sizes were compared"
    return f"{word}: {checked}{rest}"


def _unread_lines(verification: Verification) -> Iterator[str]:
    parts = []
    for group, name in zip(verification.task_groups, _TASK_GROUP_NAMES, strict=True):
        unread = [task for task in group if verification.task_state(task) == "not_read"]
        if unread:
            size = sum(task.bytes for task in unread)
            parts.append(f"{len(unread):,} of {len(group):,} {name}, {pluralize(size, 'byte')}")
    if parts:
        yield f"not read: {'; '.join(parts)}; --json lists them"
