"""rebuild: makes an artifact again from its manifest and says whether it is the same."""

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.terminal import (
    IN_ONE_LINE,
    AsJson,
    OptionalRoot,
    Workers,
    answer,
    as_command,
    counted,
    data_root,
    log_to_stderr,
)
from pipeline_assets.corpus.recipes.run import Run
from resources.launchers import elsewhere_of

if TYPE_CHECKING:
    from pipeline_assets.corpus.trust.differences import (
        FileFinding,
        RowDifference,
        RowDifferences,
        StepOutcome,
        Version,
    )
    from pipeline_assets.corpus.trust.rebuild import Rebuild

_SHOWN_LINES = 10
_SHOWN_FILES = 3
_GAP = "  "


def rebuild(
    folder: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    upstream: Annotated[
        bool, typer.Option("--upstream", help="Build all that it is made from again too, from the hub on.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the rebuilt copy; one that differs always is.")] = False,
    put_back: Annotated[
        bool, typer.Option("--put-back", help="Put copies in the places of what is damaged; that is kept.")
    ] = False,
    workers: Workers = 2,
    data: OptionalRoot = None,
    as_json: AsJson = False,
) -> bool:
    """Example: corpusmill rebuild data/megatron/healing_text_v1/train"""
    from pipeline_assets.corpus.trust.rebuild import rebuild as build_again

    root = data_root(folder, data)
    log_to_stderr()
    run = Run.of(root, os.environ, workers=workers, elsewhere=elsewhere_of(os.environ, salt=uuid.uuid4().hex))
    done = build_again(folder, run, upstream, keep, put_back)
    answer(as_json, _rebuild_json(done), (line.translate(IN_ONE_LINE) for line in _rebuild_lines(done, root)))
    return done.is_sound


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
                "replaced": outcome.replaced,
                **{part: getattr(outcome, part) for part in ("files", "elsewhere", "stored_otherwise", "versions")},
            }
            for outcome in done.outcomes
        ],
    }


def _rebuild_lines(done: "Rebuild", root: Path) -> Iterator[str]:
    for outcome in done.outcomes:
        step = outcome.step
        is_mended = outcome.replaced is not None
        word = "mended" if is_mended else outcome.verdict if outcome.verdict == "identical" else outcome.verdict.upper()
        yield f"{word:11} {step.place or f'{step.manifest.name}, of which only the manifest is left'}"
        for line in (*_outcome_lines(outcome, done.copy_of(outcome)), *_mending_lines(outcome, root)):
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
    yield from outcome.elsewhere[:_SHOWN_LINES]
    if len(outcome.elsewhere) > _SHOWN_LINES:
        yield f"and {len(outcome.elsewhere) - _SHOWN_LINES:,} more; --json gives all"
    if outcome.stored_otherwise:
        paths = ", ".join(outcome.stored_otherwise[:_SHOWN_FILES])
        more = ", …" if len(outcome.stored_otherwise) > _SHOWN_FILES else ""
        yield f"{counted(len(outcome.stored_otherwise), 'file')} equal, though stored in other bytes: {paths}{more}"
    if outcome.verdict == "different":
        yield from _cause_lines(outcome.versions)
    if copy is not None:
        yield f"kept in {copy}"
        if outcome.verdict == "different" and step.place is not None:
            yield f"to look closer: {as_command('diff', step.place, copy)}"


def _mending_lines(outcome: "StepOutcome", root: Path) -> Iterator[str]:
    place = outcome.step.place
    if outcome.verdict != "damaged" or place is None:
        return
    if outcome.replaced is not None:
        yield "it was damaged; the rebuilt copy, which is what the manifest says, took its place"
        yield f"what was damaged is kept in {outcome.replaced}"
        return
    yield "the rebuilt copy is what the manifest says; what is sealed no longer is"
    yield f"to mend it: {as_command('rebuild', place, '--put-back', '--data', root)}"


def _identical_words(outcome: "StepOutcome") -> str:
    """What was held against what."""
    files = len(outcome.step.manifest.identity.files)
    if not files:
        return "no files: what its manifest says came out the same"
    return f"{counted(files, 'file')} rebuilt as the manifest says" + (
        "; those sealed are intact" if outcome.is_sealed_intact else ""
    )


def _file_lines(finding: "FileFinding") -> Iterator[str]:
    if finding.sealed is None and finding.rebuilt is not None:
        yield f"{finding.path}: only in the rebuilt copy, {finding.rebuilt.rows:,} rows"
    elif finding.rebuilt is None and finding.sealed is not None:
        yield f"{finding.path}: not in the rebuilt copy; {finding.sealed.rows:,} rows were sealed"
    elif not finding.is_as_promised:
        yield f"{finding.path}: other content{_rows_words(finding.rows)}"
    if finding.damage is not None:
        differing = _rows_words(finding.rows) if finding.is_as_promised else ""
        yield f"{finding.path}: the sealed file is damaged: {finding.damage}{differing}"
    if finding.rows is not None:
        for row in finding.rows.first:
            yield from (f"{_GAP}{line}" for line in _row_lines(row, finding.rows))


def _row_lines(row: "RowDifference", rows: "RowDifferences") -> Iterator[str]:
    """A line for each field that differs; one line for a row that only one side has."""
    place = f"{rows.unit.removesuffix('s')} {row.row:,}" + (f" ({row.name})" if row.name else "")
    if row.row >= min(rows.sealed, rows.rebuilt) and row.fields:
        field, side = row.fields[0], "sealed" if row.row < rows.sealed else "rebuilt"
        yield f"{place}: only {side}: {field.name}: {field.sealed or field.rebuilt}"
        return
    for field in row.fields:
        before, after = ("nothing" if value is None else value for value in (field.sealed, field.rebuilt))
        yield f"{place}: {field.name}: {before} → {after}"


def _rows_words(rows: "RowDifferences | None") -> str:
    if rows is None:
        return ""
    in_all = f"{rows.sealed:,}"
    in_all += "" if rows.sealed == rows.rebuilt else f" sealed and {rows.rebuilt:,} rebuilt"
    because = f" ({rows.because})" if rows.because else ""
    return f"; {rows.differing:,} of {in_all} {rows.unit} differ{because}"


def _cause_lines(versions: "Sequence[Version]") -> Iterator[str]:
    if versions:
        yield "other than when it was sealed:"
        yield from (f"{_GAP}{version.name}: {version.sealed} → {version.here}" for version in versions)
    else:
        yield "program, Python, platform and libraries are those of when it was sealed"
