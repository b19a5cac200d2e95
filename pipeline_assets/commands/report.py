"""stage-a report and why: what sources hold, and what became of a document."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pipeline_assets.commands.building import Flags, Place, SealedInputs, sealed_folders
from pipeline_assets.commands.sections import NAMES, command
from pipeline_assets.commands.terminal import IN_ONE_LINE, AsJson, Root, existing_root
from pipeline_assets.commands.trace import followed_json
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.rows.fates import Followed

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
    from pipeline_assets.corpus.rows.fates import follow_document
    from pipeline_assets.corpus.spine.lineage import Lineage

    if not doc_id:
        raise UsageError("the id is empty", "DOC_ID", "give the id of a document: `trace` and `peek` show ids")
    found = list(follow_document(Lineage(existing_root(data)), doc_id))
    if as_json:
        typer.echo(json.dumps([_json(one) for one in found], indent=1, default=str))
    elif not found:
        typer.echo(f"no source below {data} has a document {doc_id!r}", err=True)
    else:
        for one in found:
            for line in _lines(one):
                typer.echo(line.translate(IN_ONE_LINE))
    raise typer.Exit(0 if found else 1)


def _json(found: "Followed") -> dict[str, Any]:
    return followed_json(found) | {"rejects": msgspec.to_builtins(found.rejects)}


def _lines(found: "Followed") -> Iterator[str]:
    from pipeline_assets.corpus.rows.store import Source
    from pipeline_assets.corpus.spine.errors import InputError

    folder, part = found.fate.artifact.folder, found.part
    if part is not None:
        yield f"{folder}/{part.shard} row {part.shard_row}"
        try:
            source = found.store.origin(part)
            assert isinstance(source, Source)
            yield f"  from     {source.file} {_place(found, part.source, source.file, source.rows[0].row)}"
            yield f"  licence  {source.license_tag} ({source.license_evidence})"
        except InputError as gone:
            yield f"  from     {gone.what}"
        yield f"  text     {len(part.text):,} characters: {part.text[:_SHOWN_CHARACTERS]}"
    for reject in found.rejects:
        yield f"{folder}"
        yield f"  rejected  {reject.told(_place(found, folder.name, reject.file, reject.row))}"
    for _, fate in found.below:
        yield f"{fate.artifact.folder}"
        yield from (f"  {line}" for line in fate.lines or [fate.words])
    if part is not None and not found.below:
        yield "  nothing was made of it"


def _place(found: "Followed", source: str, file: str, row: int) -> str:
    """Where in its file a row of a source is, in words; its line where the file is still here."""
    from pipeline_assets.corpus.readers.lines import row_words
    from pipeline_assets.corpus.rows.source_row import place_told
    from pipeline_assets.corpus.spine.errors import InputError

    try:
        return place_told(found.store.listing(source).row(file, row))
    except InputError:  # what it was made from is gone
        return row_words(file, row, None)
