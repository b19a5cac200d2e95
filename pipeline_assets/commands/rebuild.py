"""rebuild, diff: whether an artifact that is made again from its manifest is the same, and what makes two differ."""

import os
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.commands import terminal
from pipeline_assets.spine.artifact import open_artifact, repair_command, require_manifest
from pipeline_assets.spine.files import forbid_replacement
from pipeline_assets.spine.visible import IN_ONE_LINE
from pipeline_assets.systems.registry import SYSTEMS
from resources.launchers import remote_launcher_factory

if TYPE_CHECKING:
    from pipeline_assets.build.rows.comparison import Comparison, DocumentChanges
    from pipeline_assets.trust.differences import FileFinding, StepOutcome
    from pipeline_assets.trust.rebuild import Rebuild

_SHOWN_LINES = 10
_SHOWN_FILES = 3
_GAP = "  "


def rebuild(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    upstream: Annotated[bool, typer.Option("--upstream", help="Build all its upstream again too.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the rebuilt copy; one that differs always is.")] = False,
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> bool:
    """Example: corpusmill rebuild data/megatron/healing_text_v1/train"""
    from pipeline_assets.trust.rebuild import rebuild as build_again

    root = terminal.data_root(folder, data)
    terminal.log_to_stderr()
    run = Run.from_settings(
        root, os.environ, remote_launcher=remote_launcher_factory(os.environ, salt=uuid.uuid4().hex)
    )
    done = build_again(folder, run, SYSTEMS.kinds, upstream, keep)
    terminal.answer(as_json, _rebuild_json(done), (line.translate(IN_ONE_LINE) for line in _rebuild_lines(done)))
    return done.is_identical


def _rebuild_json(done: "Rebuild") -> dict[str, Any]:
    return {
        "identical": done.is_identical,
        "kept": done.kept,
        "artifacts": [
            {
                "artifact": outcome.step.manifest.kind,
                "name": outcome.step.manifest.name,
                "folder": outcome.step.place,
                "verdict": outcome.verdict,
                "sealed": outcome.step.manifest.digest,
                "rebuilt": outcome.rebuilt.digest if outcome.rebuilt else None,
                "copy": done.copy_of(outcome),
                "files": outcome.files,
                "elsewhere": outcome.other_differences,
                "stored_otherwise": outcome.stored_otherwise,
                "versions": outcome.versions,
            }
            for outcome in done.outcomes
        ],
    }


def _rebuild_lines(done: "Rebuild") -> Iterator[str]:
    for outcome in done.outcomes:
        step = outcome.step
        word = outcome.verdict if outcome.verdict == "identical" else outcome.verdict.upper()
        yield f"{word:11} {step.place or f'{step.manifest.name}, of which only the manifest is left'}"
        for line in _outcome_lines(outcome, done.copy_of(outcome)):
            yield _GAP + line


def _outcome_lines(outcome: "StepOutcome", copy: Path | None) -> Iterator[str]:
    step = outcome.step
    if outcome.rebuilt is None:
        yield "what it is made from came out different"
        return
    if outcome.verdict == "different":
        yield f"sealed   {step.manifest.digest}"
        yield f"rebuilt  {outcome.rebuilt.digest}"
    else:
        yield outcome.rebuilt.digest
    if outcome.verdict == "identical":
        yield _identical_words(outcome)
    for finding in outcome.files:
        yield from _file_lines(finding)
    yield from outcome.other_differences[:_SHOWN_LINES]
    if len(outcome.other_differences) > _SHOWN_LINES:
        yield f"and {len(outcome.other_differences) - _SHOWN_LINES:,} more; --json gives all"
    if outcome.stored_otherwise:
        files = terminal.pluralize(len(outcome.stored_otherwise), "file")
        paths = terminal.join_first(outcome.stored_otherwise, _SHOWN_FILES)
        yield f"{files} equal, though stored in other bytes: {paths}"
    if outcome.verdict == "different":
        same = "program, Python, platform and libraries are those of when it was sealed"
        yield "other than when it was sealed:" if outcome.versions else same
        yield from (f"{_GAP}{version.name}: {version.sealed} → {version.local}" for version in outcome.versions)
    if copy is not None:
        yield f"kept in {copy}"
        if outcome.verdict == "different" and step.place is not None:
            yield f"to look closer: {terminal.as_command('diff', step.place, copy)}"
    if outcome.verdict == "damaged" and step.place is not None:
        yield "the rebuilt copy is what the manifest says; what is sealed no longer is"
        yield f"to mend it: {repair_command(step.place)}"


def _identical_words(outcome: "StepOutcome") -> str:
    files = len(outcome.step.manifest.identity.files)
    if not files:
        return "no files: what its manifest says came out the same"
    return f"{terminal.pluralize(files, 'file')} rebuilt as the manifest says" + (
        "; those sealed are intact" if outcome.is_sealed_intact else ""
    )


def _file_lines(finding: "FileFinding") -> Iterator[str]:
    if finding.sealed is None and finding.rebuilt is not None:
        yield f"{finding.path}: only in the rebuilt copy, {finding.rebuilt.rows:,} rows"
    elif finding.rebuilt is None and finding.sealed is not None:
        yield f"{finding.path}: not in the rebuilt copy; {finding.sealed.rows:,} rows were sealed"
    elif not finding.matches_manifest:
        yield f"{finding.path}: other content"
    if finding.damage is not None:
        yield f"{finding.path}: the sealed file is damaged: {finding.damage}"


def diff(
    a: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    b: Annotated[Path, typer.Argument(help="Folder of another one of its kind.")],
    as_json: terminal.AsJson = False,
) -> bool:
    """Example: corpusmill diff data/megatron/pages_v1 data/megatron/pages_v2"""
    from pipeline_assets.build.rows.comparison import compare

    with forbid_replacement(a), forbid_replacement(b):
        left, right = (open_artifact(folder, require_manifest(folder).digest) for folder in (a, b))
        found = compare(left, right, SYSTEMS.kinds)
    terminal.answer(as_json, _diff_json(found), _diff_lines(found))
    return found.is_identical


def _diff_json(found: "Comparison") -> dict[str, Any]:
    sides = {
        side: {
            "folder": one.folder,
            "kind": one.manifest.kind,
            "name": one.manifest.name,
            "digest": one.manifest.digest,
        }
        for side, one in (("a", found.a), ("b", found.b))
    }
    return {
        **sides,
        "identical": found.is_identical,
        **found.changes,
        "documents": found.documents,
        "counts": [vars(count) | {"delta": count.delta} for count in found.counts],
    }


def _diff_lines(found: "Comparison") -> Iterator[str]:
    for side, one in (("A", found.a), ("B", found.b)):
        yield f"{side}  {one.folder}  {one.manifest.digest}"
    if found.is_identical:
        yield "identical: their manifests say so, no file was read (`corpusmill verify` reads)"
        return
    yield "different"
    for part, lines in found.changes.items():
        more = [f"and {len(lines) - _SHOWN_LINES:,} more; --json gives all"] if len(lines) > _SHOWN_LINES else []
        yield from _section(part.replace("_", " "), [*lines[:_SHOWN_LINES], *more])
    counts = [
        (_count_words(one.name), _figure(one.a), _figure(one.b), "" if one.is_equal else _figure(one.delta, "+"))
        for one in found.counts
    ]
    yield from _section("counts", terminal.aligned([("", "A", "B", "change"), *counts], numbers=(1, 2, 3)))
    for changes in found.documents:
        title = "documents" if changes.part is None else f"documents of {changes.part}"
        yield from _section(title, _document_lines(changes))


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)


def _figure(value: int | str, sign: str = "") -> str:
    return format(value if isinstance(value, int) else Decimal(value), f"{sign},")


def _count_words(name: str) -> str:
    """A count as people say it; the ledger is rows read = documents kept + merged + dropped + rejected."""
    match name.split(".", 2):
        case ["ledger", "in"]:
            return "rows read"
        case ["ledger", "out"]:
            return "documents kept"
        case ["ledger", "merged"]:
            return "merged into another row's document"
        case ["changes", *change]:
            return f"changes: {'.'.join(change).replace('/', ' ').replace('_', ' ')}"
        case ["ledger", fate, reason]:
            return f"{fate}: {reason.replace('_', ' ')}"
    return name.replace("_", " ").replace(".", " of ")


def _document_lines(changes: "DocumentChanges") -> list[str]:
    told = [
        (changes.only_in_a, "only in A"),
        (changes.only_in_b, "only in B"),
        (changes.in_both, "in both"),
        (changes.changed, "in both, but with another text"),
    ]
    if changes.relabelled.documents:
        told.append((changes.relabelled, f"in both, of the same text, but {changes.labels}"))
    return [
        f"{terminal.pluralize(found.documents, 'document')} {words}"
        + (f": {', '.join(found.examples)}" if found.examples else "")
        + (", …" if found.documents > len(found.examples) > 0 else "")
        for found, words in told
    ]
