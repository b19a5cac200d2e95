"""stage-a report and why: what sources hold, and what became of a document."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pipeline_assets.commands.building import Flags, Place, SealedInputs, sealed_folders
from pipeline_assets.commands.sections import NAMES, command
from pipeline_assets.commands.terminal import IN_ONE_LINE, AsJson, Root, existing_root
from pipeline_assets.commands.trace_lines import draw_words

if TYPE_CHECKING:
    from pipeline_assets.corpus.document_fate import DocumentFate

app = typer.Typer()
_SHOWN_CHARACTERS = 300


@command(
    app,
    "report",
    "stage-a report --input 'out/stage_a/normalized/*' --out out/stage_a/report",
    NAMES | {"name": "--out", "data": "--out"},
)
def report(input: SealedInputs, out: Annotated[Path, typer.Option(help="Folder of the report.")], flags: Flags) -> None:
    """Tell what sources hold, and what deduplication or decontamination made of them: report.html, report.json."""
    from pipeline_assets.commands.given import report_target

    place = Place.at(out)
    run = flags.run(place.root)
    target = report_target(sealed_folders(input), place.below)
    artifact = place.build(target, run)
    target.refuse_failed(run.root)
    counts = artifact.manifest.identity.counts
    sources = sum(one.partition is not None for one in target.upstream)
    typer.echo(f"{sources} sources: {counts['documents']:,} documents, {counts['tokens']:,} tokens")
    for file in artifact.manifest.storage:
        typer.echo(str(out / file.path))


@app.command("why", epilog="Example: corpusmill stage-a why wikipedia:en:12 --data out")
def why(
    doc_id: Annotated[str, typer.Argument(help="Id of a document.")],
    data: Root = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Say why a document is in or out. Exit status 1: no source has such an id."""
    from pipeline_assets.corpus.document_fate import fates_of

    fates = list(fates_of(existing_root(data), doc_id))
    if as_json:
        rows = [_json(fate) for fate in fates]
        typer.echo(json.dumps(rows, indent=1, default=str))
    elif not fates:
        typer.echo(f"no source below {data} has a document {doc_id!r}", err=True)
    else:
        for fate in fates:
            for line in _lines(fate, data):
                typer.echo(line.translate(IN_ONE_LINE))
    raise typer.Exit(0 if fates else 1)


def _json(fate: "DocumentFate") -> dict[str, Any]:
    decisions = [{"folder": folder, **msgspec.to_builtins(decision)} for folder, decision in fate.deduplicated]
    evidence = [{"folder": folder, "evidence": msgspec.to_builtins(line)} for folder, line in fate.decontaminated]
    document = msgspec.to_builtins(fate.document)
    packed = [{**asdict(one), "reject": msgspec.to_builtins(one.reject)} for one in fate.packed]
    steps = {"deduplicated": decisions, "decontaminated": evidence, "packed": packed}
    return asdict(fate) | {"document": document} | steps


def _place(fate: "DocumentFate", root: Path, source: str, file: str, row: int) -> str:
    """Where in its file a row of a source is, in words; its line where the file is still here."""
    from pipeline_assets.corpus.readers.row_words import row_words
    from pipeline_assets.corpus.spine.artifact import open_artifact
    from pipeline_assets.corpus.spine.errors import InputError
    from pipeline_assets.corpus.trace.origin import listing_of
    from pipeline_assets.corpus.trace.source_row import place_told

    try:
        return place_told(listing_of(root, open_artifact(fate.folder), source).row(file, row))
    except InputError:  # what it was made from is gone
        return row_words(file, row, None)


def _lines(fate: "DocumentFate", root: Path) -> Iterator[str]:
    document = fate.document
    if document is not None:
        meta = document.meta
        yield f"{fate.folder}/{fate.shard} row {fate.row}"
        file, row = str(meta["source_file"]), meta["source_row"]
        yield f"  from     {file} {_place(fate, root, document.source, file, row)}"
        yield f"  licence  {document.license_tag} ({meta.get('license_evidence', 'recipe')})"
        yield f"  text     {len(document.text):,} characters: {document.text[:_SHOWN_CHARACTERS]}"
    for reject in fate.rejects:
        yield f"{fate.folder}"
        yield f"  rejected  {reject.told(_place(fate, root, fate.folder.name, reject.file, reject.row))}"
    for filtered in fate.filtered:
        yield f"{filtered.folder}"
        yield f"  {filtered.outcome}{f' for {filtered.reason}' if filtered.reason else ''}"
        for measurement in filtered.measurements:
            yield f"    {measurement}"
        for name, count in filtered.changes.items():
            yield f"    changed: {name} {count:,}"
    if document is not None and not fate.filtered:
        yield "  no filtered source was made of it"
    for folder, decision in fate.deduplicated:
        yield f"{folder}"
        word = decision.decision.replace("_", " ")
        seen = f", seen before in {decision.seen_in}" if decision.seen_in else ""
        yield f"  {word}{f' of {decision.duplicate_of}' if decision.duplicate_of else ''}{seen}"
        if decision.similarity is not None:
            show = shlex.join(["corpusmill", "dedup", "show", decision.doc_id, "--data", str(root)])
            yield f"    similarity {decision.similarity:.4f}; side by side: {show}"
    for folder, line in fate.decontaminated:
        yield f"{folder}"
        if line is None:
            yield "  kept: it holds no item of an evaluation set"
        else:
            yield f"  {line.action} for {line.reason}"
            yield f"    {line}"
            yield f"    in characters {', '.join(f'{start:,}-{end:,}' for start, end in line.spans)}: {line.excerpt}"
    for packed in fate.packed:
        yield f"{packed.folder}"
        for draw in packed.draws:
            yield f"  {draw_words(draw)}"
        if packed.reject is not None:
            yield f"  rejected  {packed.reject}"
        elif not packed.draws:
            yield "  not drawn: its source had given its share before its turn came"
