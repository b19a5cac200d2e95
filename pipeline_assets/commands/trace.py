"""trace, peek: from a token to its source row and back, and what a trainer sees."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.terminal import IN_ONE_LINE, VISIBLE, AsJson, OptionalRoot, data_root
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.trace.source_row import SourceRow
    from pipeline_assets.corpus.trace.source_to_tokens import RowFate, SplitFate
    from pipeline_assets.corpus.trace.token_to_source import Trace

app = typer.Typer()
_SHOWN_CHARACTERS = 2_000


@app.command(epilog="Example: corpusmill trace data/megatron/healing_text_v1/train --token 9")
def trace(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="Folder of a Megatron split.")] = None,
    token: Annotated[int | None, typer.Option(help="Position in tokens.bin, from 0.")] = None,
    doc_id: Annotated[str | None, typer.Option(help="A document of the split.")] = None,
    row: Annotated[int | None, typer.Option(help="Row of documents.parquet, from 0.")] = None,
    source: Annotated[str | None, typer.Option(help="Row of a hub file, REPO@COMMIT:PATH#ROW; no FOLDER.")] = None,
    data: OptionalRoot = None,
    as_json: AsJson = False,
) -> None:
    """Say which row of which hub file a token came from; with --source, what became of a row."""
    from pipeline_assets.corpus.trace.source_row import SourceRow
    from pipeline_assets.corpus.trace.source_to_tokens import trace_source

    asked = [option for option in (token, doc_id, row) if option is not None]
    if source is not None:
        if folder is not None or asked:
            raise UsageError("a source row is looked up in the data root", "--source", "give it alone or with --data")
        wanted = SourceRow.parse(source)
        fates = trace_source(data or Path("data"), wanted)
        if as_json:
            _print_json({"source": _source_json(wanted), "snapshots": [dataclasses.asdict(fate) for fate in fates]})
        else:
            typer.echo("\n".join([str(wanted), *(line for fate in fates for line in _fate_lines(fate))]))
        return
    if folder is None:
        fix = "give the folder of a split and --token, --doc-id or --row, or --source alone"
        raise UsageError("nothing to trace", "trace", fix)
    if len(asked) != 1:
        what = "several things to trace" if asked else "nothing to trace"
        raise UsageError(what, folder, "give exactly one of --token, --doc-id, --row")
    root = data_root(context, folder, data)
    if root is None:
        raise UsageError("it is below no folder megatron/", folder, "say with --data where its upstream lies")
    found = _traced(folder, token, doc_id, row, root)
    if as_json:
        _print_json(dataclasses.asdict(found) | {"source": _source_json(found.source)})
    else:
        typer.echo("\n".join(_trace_lines(found)))


def _traced(folder: Path, token: int | None, doc_id: str | None, row: int | None, root: Path) -> "Trace":
    from pipeline_assets.corpus.trace.split_sequences import sequence_of_doc_id
    from pipeline_assets.corpus.trace.token_to_source import open_lineage, trace_sequence, trace_token

    lineage = open_lineage(folder, root)
    if token is not None:
        return trace_token(lineage, token)
    return trace_sequence(lineage, sequence_of_doc_id(lineage.split, doc_id) if doc_id is not None else row or 0)


def _trace_lines(found: "Trace") -> list[str]:
    last = found.first_token + found.tokens - 1
    lines = []
    if found.token is not None:
        token = found.token
        place = f"number {token.number:,} of its document, at byte {token.byte_offset:,} of the text"
        if token.is_end_of_text:
            place = f"the end of text that closes the document, after byte {token.byte_offset:,}"
        lines = [f"token     {token.position:,}: id {token.id}, {place}"]
    lines += [
        f"sequence  {found.sequence:,}: {found.tokens:,} tokens, {found.first_token:,} to {last:,} of tokens.bin",
        f"document  {found.doc_id}",
        f"shard     {found.snapshot / found.shard} row {found.shard_row:,}",
        f"source    {found.source}",
        f"          {found.source_digest}",
        f"licence   {found.license_tag}",
    ]
    if found.token is None:
        return [*lines, f"text      {found.beginning.translate(IN_ONE_LINE)}"]
    before, own, after = (
        text.translate(IN_ONE_LINE) for text in (found.token.before, found.token.text, found.token.after)
    )
    return [*lines, f"text      {before}»{own}«{after}"]


def _fate_lines(fate: "RowFate") -> list[str]:
    lines = [f"snapshot  {fate.snapshot}"]
    if fate.outcome != "document":
        return [*lines, f"          {fate.outcome.replace('_', ' ')}: {fate.detail}"]
    lines += [f"document  {fate.doc_id}", f"shard     {fate.shard} row {fate.shard_row:,}"]
    lines += [f"split     {split.split}: {_split_words(split)}" for split in fate.splits]
    return lines if fate.splits else [*lines, "split     none was made from it"]


def _split_words(fate: "SplitFate") -> str:
    if fate.outcome == "in_split":
        return f"sequence {fate.sequence:,}, tokens {fate.first_token:,} to {fate.last_token:,}"
    return f"{fate.outcome.replace('_', ' ')}: {fate.detail}"


@app.command(epilog="Example: corpusmill peek data/megatron/healing_text_v1/train --row 7")
def peek(
    folder: Annotated[Path, typer.Argument(help="Folder of a Megatron split, or of a snapshot of documents.")],
    row: Annotated[int | None, typer.Option(help="Sequence, or document of a snapshot, from 0; default: 0.")] = None,
    token: Annotated[int | None, typer.Option(help="The sequence that holds this token of tokens.bin.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one sequence as a trainer would see it."""
    from pipeline_assets.corpus.trace.peek import peek as peek_at

    if row is not None and token is not None:
        raise UsageError("two places to look at", folder, "give --row or --token")
    seen = peek_at(folder, row, token)
    if as_json:
        _print_json(dataclasses.asdict(seen))
        return
    tokens = "" if seen.tokens is None else f", {seen.tokens:,} tokens from {seen.first_token:,} on"
    typer.echo(f"row {seen.row:,}: {seen.doc_id}{tokens}")
    typer.echo(f"{seen.shard} row {seen.shard_row:,}\n")
    typer.echo(seen.text[:_SHOWN_CHARACTERS].translate(VISIBLE))
    if len(seen.text) > _SHOWN_CHARACTERS:
        typer.echo(f"\n… {len(seen.text) - _SHOWN_CHARACTERS:,} more characters; --json gives all")


def _source_json(source: "SourceRow") -> dict[str, Any]:
    return {"name": str(source), **dataclasses.asdict(source)}


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1, default=str))
