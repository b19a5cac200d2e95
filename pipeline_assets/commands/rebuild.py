"""The commands `rebuild` and `diff`, which compare two artifacts of one kind."""

import os
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.commands import terminal
from pipeline_assets.spine.artifact import Artifact, open_artifact, repair_hint
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.visible import to_one_line
from pipeline_assets.systems.registry import SYSTEMS
from resources.launchers import remote_launcher_factory

if TYPE_CHECKING:
    from pipeline_assets.build.rows.comparison import Comparison, CountChange, DocumentChanges
    from pipeline_assets.trust.differences import FileFinding, StepOutcome
    from pipeline_assets.trust.rebuild import RebuildResult

_MAX_SHOWN_LINES = 10
_MAX_SHOWN_FILES = 3
_INDENT = "  "
_CHANGE_TITLES = {"made_by": "stage and tokenizer", "made_from": "inputs"}
_LEDGER_COUNTS = {"in": "rows read", "out": "documents kept", "merged": "merged into another row's document"}


def rebuild(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    upstream: Annotated[bool, typer.Option("--upstream", help="Rebuild all upstream artifacts too.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep an identical copy; different ones are always kept.")
    ] = False,
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> bool:
    """Build an artifact again from its manifest and compare.

    Exit status 1: a copy differs from its artifact, or could not be built.

    Example: corpusmill rebuild data/megatron/healing_text_v1/train
    """
    from pipeline_assets.build.trainer_exports import KINDS
    from pipeline_assets.trust.rebuild import rebuild as build_again

    root = terminal.data_root(folder, data)
    terminal.log_to_stderr()
    launcher = remote_launcher_factory(os.environ, salt=uuid.uuid4().hex)
    run = Run.from_settings(root, os.environ, remote_launcher=launcher)
    kinds = {**SYSTEMS.kinds, **{kind.name: kind for kind in KINDS.values()}}
    rebuilt = build_again(folder, run, kinds, upstream, keep)
    terminal.print_answer(as_json, _rebuild_json(rebuilt), map(to_one_line, _rebuild_lines(rebuilt)))
    return rebuilt.is_identical


def _rebuild_json(rebuilt: "RebuildResult") -> dict[str, Any]:
    return {
        "identical": rebuilt.is_identical,
        "kept": rebuilt.kept_folder,
        "artifacts": [
            {
                "artifact": outcome.step.manifest.kind,
                "name": outcome.step.manifest.name,
                "folder": outcome.step.sealed_folder,
                "verdict": outcome.verdict,
                "sealed": outcome.step.manifest.digest,
                "rebuilt": outcome.rebuilt_manifest.digest if outcome.rebuilt_manifest else None,
                "copy": rebuilt.rebuilt_folder(outcome),
                "files": outcome.file_findings,
                "elsewhere": outcome.other_differences,
                "stored_otherwise": outcome.differently_stored_paths,
                "versions": outcome.version_changes,
            }
            for outcome in rebuilt.outcomes
        ],
    }


def _rebuild_lines(rebuilt: "RebuildResult") -> Iterator[str]:
    for outcome in rebuilt.outcomes:
        step = outcome.step
        word = outcome.verdict if outcome.verdict == "identical" else outcome.verdict.upper()
        yield f"{word:11} {step.sealed_folder or f'{step.manifest.name} (only its manifest exists)'}"
        for line in _outcome_lines(outcome, rebuilt.rebuilt_folder(outcome)):
            yield _INDENT + line


def _outcome_lines(outcome: "StepOutcome", copy_folder: Path | None) -> Iterator[str]:
    step = outcome.step
    if outcome.rebuilt_manifest is None:
        yield "an input differs after its rebuild"
        return
    if outcome.verdict == "different":
        yield f"sealed   {step.manifest.digest}"
        yield f"rebuilt  {outcome.rebuilt_manifest.digest}"
    else:
        yield outcome.rebuilt_manifest.digest
    if outcome.verdict == "identical" and step.manifest.identity.files:
        files = pluralize(len(step.manifest.identity.files), "file")
        intact = "; the sealed files are intact" if outcome.is_sealed_intact else ""
        yield f"{files} rebuilt, equal to the manifest{intact}"
    elif outcome.verdict == "identical":
        yield "no files; the manifest is the same"
    for finding in outcome.file_findings:
        yield from _file_lines(finding)
    yield from _first_lines(outcome.other_differences)
    if outcome.differently_stored_paths:
        files = pluralize(len(outcome.differently_stored_paths), "file")
        paths = terminal.join_first(outcome.differently_stored_paths, _MAX_SHOWN_FILES)
        yield f"{files} with equal content in other bytes: {paths}"
    if outcome.verdict == "different":
        unchanged = "program, Python, platform and libraries are unchanged since the seal"
        yield "changed since the seal:" if outcome.version_changes else unchanged
        for version in outcome.version_changes:
            yield f"{_INDENT}{version.name}: {version.sealed} → {version.current}"
    if copy_folder is not None:
        yield f"kept in {copy_folder}"
        if outcome.verdict == "different" and step.sealed_folder is not None:
            yield f"for details: {terminal.format_command('diff', step.sealed_folder, copy_folder)}"
    if outcome.verdict == "damaged" and step.sealed_folder is not None:
        yield "the rebuilt copy matches the manifest; the sealed files do not"
        yield f"to repair it: {repair_hint(step.sealed_folder)}"


def _first_lines(lines: Sequence[str]) -> list[str]:
    """Return the first lines, then a line that counts the omitted lines, if any."""
    more = len(lines) - _MAX_SHOWN_LINES
    return [*lines[:_MAX_SHOWN_LINES], *([f"and {more:,} more; --json gives all"] if more > 0 else [])]


def _file_lines(finding: "FileFinding") -> Iterator[str]:
    if finding.sealed is None and finding.rebuilt is not None:
        yield f"{finding.path}: only in the rebuilt copy, {pluralize(finding.rebuilt.rows, 'row')}"
    elif finding.rebuilt is None and finding.sealed is not None:
        yield f"{finding.path}: not in the rebuilt copy; sealed with {pluralize(finding.sealed.rows, 'row')}"
    elif not finding.matches_manifest:
        yield f"{finding.path}: different content"
    if finding.damage is not None:
        yield f"{finding.path}: the sealed file is damaged: {finding.damage}"


def diff(
    a: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    b: Annotated[Path, typer.Argument(help="Folder of another artifact of the same kind.")],
    as_json: terminal.AsJson = False,
) -> bool:
    """Compare two artifacts, down to their documents.

    Exit status 1: the artifacts differ.

    Example: corpusmill diff data/megatron/pages_v1 data/megatron/pages_v2
    """
    from pipeline_assets.build.rows.comparison import compare

    with forbid_replacement(a), forbid_replacement(b):
        first, second = (open_artifact(folder, require_manifest(folder).digest) for folder in (a, b))
        comparison = compare(first, second, SYSTEMS.kinds)
    terminal.print_answer(as_json, _diff_json(comparison), map(to_one_line, _diff_lines(comparison)))
    return comparison.is_identical


def _diff_json(comparison: "Comparison") -> dict[str, Any]:
    def describe(artifact: Artifact) -> dict[str, Any]:
        manifest = artifact.manifest
        return {"folder": artifact.folder, "kind": manifest.kind, "name": manifest.name, "digest": manifest.digest}

    return {
        "a": describe(comparison.a),
        "b": describe(comparison.b),
        "identical": comparison.is_identical,
        **comparison.changes,
        "documents": comparison.document_changes,
        "counts": [vars(count) | {"delta": count.delta} for count in comparison.counts],
    }


def _diff_lines(comparison: "Comparison") -> Iterator[str]:
    for side, artifact in (("A", comparison.a), ("B", comparison.b)):
        yield f"{side}  {artifact.folder}  {artifact.manifest.digest}"
    if comparison.is_identical:
        yield "identical according to their manifests; no file was read (`corpusmill verify` reads them)"
        return
    yield "different"
    for part, lines in comparison.changes.items():
        yield from _titled_lines(_CHANGE_TITLES.get(part, part.replace("_", " ")), _first_lines(lines))
    yield from _titled_lines("counts", _count_lines(comparison.counts))
    for changes in comparison.document_changes:
        title = "documents" if changes.part is None else f"documents of {changes.part}"
        yield from _titled_lines(title, [*_document_lines(changes)])


def _count_lines(counts: "Sequence[CountChange]") -> list[str]:
    """Return a table of rows read and differing counts, then the number of equal ones."""
    shown = [count for count in counts if not count.is_equal or count.name == "ledger.in"]
    cells = [("", "A", "B", "change")]
    for count in shown:
        change = "" if count.is_equal else _format_figure(count.delta, "+")
        cells.append((_describe_count(count.name), _format_figure(count.a), _format_figure(count.b), change))
    equal = len(counts) - len(shown)
    more = [f"{pluralize(equal, 'equal count')}; --json gives all"] if equal else []
    return [*(terminal.align(cells, number_columns=(1, 2, 3)) if shown else ()), *more]


def _titled_lines(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)


def _format_figure(value: int | str, sign_format: str = "") -> str:
    return format(value if isinstance(value, int) else Decimal(value), f"{sign_format},")


def _describe_count(name: str) -> str:
    """Describe a count of a manifest from its dotted name, such as `ledger.in`."""
    match name.split(".", 2):
        case ["ledger", outcome]:
            return _LEDGER_COUNTS.get(outcome, name)
        case ["ledger", fate, reason]:
            return f"{fate}: {reason}"
        case ["changes", *change]:
            return f"changes: {'.'.join(change).replace('/', ' ').replace('_', ' ')}"
    return name if "." in name else name.replace("_", " ")


def _document_lines(changes: "DocumentChanges") -> Iterator[str]:
    groups = [(changes.only_in_a, "only in A"), (changes.only_in_b, "only in B"), (changes.in_both, "in both")]
    groups.append((changes.changed, "in both, with different texts"))
    if changes.relabelled.documents:
        groups.append((changes.relabelled, f"in both, with the same text, but {changes.other_properties}"))
    for group, description in groups:
        examples = f": {', '.join(group.examples)}" if group.examples else ""
        more = ", …" if group.documents > len(group.examples) > 0 else ""
        yield f"{pluralize(group.documents, 'document')} {description}{examples}{more}"
