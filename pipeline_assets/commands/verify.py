"""verify: holds an artifact, or all that it was made from too, against the manifests."""

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_assets.build.run import LOG_EVERY, WORKERS
from pipeline_assets.commands import terminal
from pipeline_assets.spine.artifact import Artifact, repair_command
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.provenance import Stopwatch
from pipeline_assets.spine.rehash import HashTask
from pipeline_assets.spine.visible import IN_ONE_LINE
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.pins.files_check import SourceFolderCheck
    from pipeline_assets.trust.result import Verification

_SHOWN_FINDINGS = 50
_PARTS = ("files of the artifacts", "parts of files in the hub cache", "source files")


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    upstream: Annotated[bool, typer.Option("--upstream", help="All that it was made from, too.")] = False,
    content: Annotated[bool, typer.Option("--content", help="Work out what compressed files say, too.")] = False,
    sample: Annotated[str | None, typer.Option(help="Read a share of the bytes: 5% or 0.05.")] = None,
    seed: Annotated[str, typer.Option(help="Another one draws another sample.")] = "0",
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> bool:
    """Example: corpusmill verify data/megatron/healing_text_v1 --upstream"""
    from pipeline_assets.trust.result import Sample, Scope
    from pipeline_assets.trust.result import as_json as report_of
    from pipeline_assets.trust.verify import read_and_check, scan_chain

    if sample is None and seed != "0":
        raise UsageError("a seed alone draws nothing", "--seed", "give --sample too")
    drawn = None if sample is None else Sample.parse(sample, seed)
    root = terminal.data_root(folder, data) if upstream else None
    terminal.log_to_stderr()
    found = scan_chain(
        folder,
        Scope(root, drawn, content, WORKERS.read(os.environ), LOG_EVERY.read(os.environ)),
        SYSTEMS.label_names,
    )
    read_and_check(found)
    report = None
    if as_json:
        provenance = Stopwatch().provenance({})
        kept = {name: provenance[name] for name in ("host", "platform", "python", "libraries", "git_sha")}
        report = report_of(found, {"corpusmill": version("corpusmill"), **kept})
    terminal.answer(as_json, report, (line.translate(IN_ONE_LINE) for line in _lines(found)))
    return not found.findings


def _lines(found: "Verification") -> Iterator[str]:
    for finding in found.findings[:_SHOWN_FINDINGS]:
        yield f"{finding.where}: {finding.what}"
    if len(found.findings) > _SHOWN_FINDINGS:
        yield f"… and {len(found.findings) - _SHOWN_FINDINGS:,} more; --json lists them"
    if found.scope.root is not None:
        yield from terminal.aligned(
            [_artifact_cells(artifact, found) for artifact in found.chain.artifacts], numbers=(3, 4)
        )
    if found.hub is not None and found.hub.listed:
        hub = found.hub
        read = len(hub.whole) + len(hub.in_part) + len(hub.unavailable)
        yield (
            f"hub cache: of {read:,} files read, {len(hub.whole):,} are here whole, {len(hub.in_part):,} in part "
            f"({_hashed_words(hub.tasks, found)}); not here: {len(hub.unavailable):,} files"
        )
    if found.sources is not None and found.sources.listed:
        yield _sources_line(found, found.sources)
    yield from _left_out_lines(found)
    yield from _mending_lines(found)
    yield _summary(found)
    yield found.chain.artifacts[0].manifest.digest


def _mending_lines(found: "Verification") -> Iterator[str]:
    """For each artifact with a file that is not as it was sealed, what makes it so again."""
    damaged = {finding.where for finding in found.findings}
    for artifact in found.chain.artifacts:
        if damaged & {artifact.folder / file.path for file in artifact.manifest.storage}:
            yield f"to mend it: {repair_command(artifact.folder)}"


def _artifact_cells(artifact: Artifact, found: "Verification") -> tuple[str, ...]:
    digest = artifact.manifest.digest
    tasks = [task for task in found.tasks if task.owner == digest]
    read = [task for task in tasks if found.artifact_state(task) != "not_read"]
    word = "DAMAGED" if found.is_damaged(artifact) else "intact" if len(read) == len(tasks) else "sampled"
    files = f"{len(tasks):,}" if len(read) == len(tasks) else f"{len(read):,} of {len(tasks):,}"
    size = sum(task.bytes for task in read)
    return word, artifact.manifest.kind, artifact.manifest.name, f"{files} files", f"{size:,} bytes"


def _sources_line(found: "Verification", sources: "SourceFolderCheck") -> str:
    changed, not_here = len(sources.findings), len(sources.unavailable)
    as_they_were = [task for task in sources.tasks if found.artifact_state(task) != "damaged"]
    gone = f", {', '.join(map(str, sources.missing))} is gone" if sources.missing else ""
    return (
        f"source files: of {sources.listed:,} files read, {len(as_they_were):,} are here "
        f"({_hashed_words(as_they_were, found)}), {changed:,} changed; not here: {not_here:,} files{gone}"
    )


def _hashed_words(tasks: Sequence[HashTask], found: "Verification") -> str:
    size = sum(task.bytes for task in tasks)
    hashed = sum(task.bytes for task in tasks if found.artifact_state(task) != "not_read")
    return f"{size:,} bytes, " + ("all hashed" if hashed == size else f"{hashed:,} of them hashed")


def _content_words(found: "Verification") -> str:
    """Which of the two was done with files that are stored in another form than their content."""
    if found.contents:
        right = found.contents.count(None)
        return f"; compressed, content as the digest names: {right:,} of {len(found.contents):,}"
    if found.unread_contents:
        return f"; compressed, content not worked out: {found.unread_contents:,} (--content)"
    return ""


def _summary(found: "Verification") -> str:
    files, size = len(found.tasks) + found.out_of_place, found.bytes_checked
    word = "intact" if found.verdict.startswith("intact") else found.verdict.upper()
    missing = len(found.chain.missing)
    rest = _content_words(found)
    rest += f"; {missing:,} upstream artifacts are missing, and what they were made from" if missing else ""
    held = f"{len(found.sealed_target):,} of {files:,} files are as they were sealed, {size:,} bytes"
    if found.scope.sample is None or not found.unread:
        return f"{word}: {held}{rest}"
    held += "; of all others, names and sizes only"
    return f"{word} of a sample ({found.percent_read:.1f} % of bytes): {held}{rest}"


def _left_out_lines(found: "Verification") -> Iterator[str]:
    words = []
    for part, name in zip(found.parts, _PARTS, strict=True):
        left_out = [task for task in part if found.artifact_state(task) == "not_read"]
        if left_out:
            size = sum(task.bytes for task in left_out)
            words.append(f"{len(left_out):,} of {len(part):,} {name}, {size:,} bytes")
    if words:
        yield f"not read: {'; '.join(words)}; --json lists them"
