"""rebuild: makes an artifact again from its manifest and says whether it is the same."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.terminal import (
    IN_ONE_LINE,
    AsJson,
    OptionalRoot,
    Workers,
    data_root,
    log_to_stderr,
    resume_hint,
)

if TYPE_CHECKING:
    from pipeline_assets.corpus.trust.differences import (
        FileFinding,
        RowDifference,
        RowDifferences,
        StepOutcome,
        Version,
    )
    from pipeline_assets.corpus.trust.rebuild import Rebuild

app = typer.Typer()
_SHOWN_LINES = 10
_SHOWN_FILES = 3
_GAP = "  "


@app.command(epilog="Example: corpusmill rebuild data/megatron/healing_text_v1/train")
def rebuild(
    context: typer.Context,
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
) -> None:
    """Build an artifact again, beside it, from its manifest; say what differs."""
    root = data_root(context, folder, data)
    options = [
        *(["--upstream"] if upstream else []),
        *(["--keep"] if keep else []),
        *(["--put-back"] if put_back else []),
    ]
    log_to_stderr()
    with resume_hint(shlex.join(["corpusmill", "rebuild", str(folder), *options, "--data", str(root)])):
        from pipeline_assets.corpus.recipes.run import Run
        from pipeline_assets.corpus.trust.rebuild import rebuild as build_again

        done = build_again(folder, Run.of(root, os.environ, workers=workers), upstream, keep, put_back)
    if as_json:
        typer.echo(json.dumps(_rebuild_json(done), indent=1))
    else:
        for line in _rebuild_lines(done, root):
            typer.echo(line.translate(IN_ONE_LINE))
    raise typer.Exit(0 if done.is_sound else 1)


def _rebuild_json(done: "Rebuild") -> dict[str, Any]:
    return {
        "identical": done.is_identical,
        "kept": _text(done.kept),
        "artifacts": [
            {
                "artifact": outcome.step.manifest.kind,
                "name": outcome.step.manifest.name,
                "folder": _text(outcome.step.place),
                "verdict": outcome.verdict,
                "sealed": outcome.step.manifest.digest,
                "rebuilt": outcome.rebuilt.digest if outcome.rebuilt else None,
                "copy": _text(done.copy_of(outcome)),
                "replaced": _text(outcome.replaced),
                "files": [asdict(finding) for finding in outcome.files],
                "elsewhere": list(outcome.elsewhere),
                "stored_otherwise": list(outcome.stored_otherwise),
                "versions": [asdict(version) for version in outcome.versions],
            }
            for outcome in done.outcomes
        ],
    }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


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
    yield from _first(outcome.elsewhere)
    if outcome.stored_otherwise:
        paths = ", ".join(outcome.stored_otherwise[:_SHOWN_FILES])
        more = ", …" if len(outcome.stored_otherwise) > _SHOWN_FILES else ""
        yield f"{_files(len(outcome.stored_otherwise))} equal, though stored in other bytes: {paths}{more}"
    if outcome.verdict == "different":
        yield from _cause_lines(outcome.versions)
    if copy is not None:
        yield f"kept in {copy}"
        if outcome.verdict == "different" and step.place is not None:
            yield f"to look closer: {shlex.join(['corpusmill', 'diff', str(step.place), str(copy)])}"


def _mending_lines(outcome: "StepOutcome", root: Path) -> Iterator[str]:
    place = outcome.step.place
    if outcome.verdict != "damaged" or place is None:
        return
    if outcome.replaced is not None:
        yield "it was damaged; the rebuilt copy, which is what the manifest says, took its place"
        yield f"what was damaged is kept in {outcome.replaced}"
        return
    yield "the rebuilt copy is what the manifest says; what is sealed no longer is"
    yield f"to mend it: {shlex.join(['corpusmill', 'rebuild', str(place), '--put-back', '--data', str(root)])}"


def _identical_words(outcome: "StepOutcome") -> str:
    """What was held against what."""
    files = len(outcome.step.manifest.identity.files)
    if not files:
        return "no files: what its manifest says came out the same"
    return f"{_files(files)} rebuilt as the manifest says" + (
        "; those sealed are intact" if outcome.is_sealed_intact else ""
    )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


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
    counted = (
        f"{rows.sealed:,}" if rows.sealed == rows.rebuilt else f"{rows.sealed:,} sealed and {rows.rebuilt:,} rebuilt"
    )
    because = f" ({rows.because})" if rows.because else ""
    return f"; {rows.differing:,} of {counted} {rows.unit} differ{because}"


def _cause_lines(versions: Sequence["Version"]) -> Iterator[str]:
    if versions:
        yield "other than when it was sealed:"
        yield from (f"{_GAP}{version.name}: {version.sealed} → {version.here}" for version in versions)
    else:
        yield "program, Python, platform and libraries are those of when it was sealed"


def _first(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_SHOWN_LINES]
    if len(lines) > _SHOWN_LINES:
        yield f"and {len(lines) - _SHOWN_LINES:,} more; --json gives all"
