"""trace, peek: from a token or a document to its source row and back, and what a reader gets."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.terminal import IN_ONE_LINE, VISIBLE, AsJson, OptionalRoot, data_root, existing_root
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.rows.fates import Followed
    from pipeline_assets.corpus.rows.source_row import AnyRow
    from pipeline_assets.corpus.rows.store import Fate, Part, Row
    from pipeline_assets.corpus.rows.trace import Traced

app = typer.Typer()
_SHOWN_CHARACTERS = 2_000


@app.command(epilog="Example: corpusmill trace data/megatron/healing_text_v1/train --token 9")
def trace(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a Megatron split, a packed set, a corpus, or normalised rows.")
    ] = None,
    token: Annotated[int | None, typer.Option(help="Position in tokens.bin or input_ids.mmap, from 0.")] = None,
    doc_id: Annotated[
        str | None, typer.Option(help="A document of the split, set or corpus; the id of a normalised row.")
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            help="Row of a split's documents.parquet, of a packed set, of normalised rows, or document; from 0."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Row of a source, REPO@COMMIT:PATH#ROW or PATH#ROW; no FOLDER.")
    ] = None,
    data: OptionalRoot = None,
    as_json: AsJson = False,
) -> None:
    """Say which row of which file a token or document came from; with --source, what became of a row."""
    asked = [option for option in (token, doc_id, row) if option is not None]
    if source is not None:
        if folder is not None or asked:
            raise UsageError("a source row is looked up in the data root", "--source", "give it alone or with --data")
        _trace_source(source, data or Path("data"), as_json)
        return
    if folder is None:
        fix = "give the folder of a split, set or corpus and --token, --doc-id or --row, or --source alone"
        raise UsageError("nothing to trace", "trace", fix)
    if len(asked) != 1:
        what = "several things to trace" if asked else "nothing to trace"
        raise UsageError(what, folder, "give exactly one of --token, --doc-id, --row")
    root = data_root(context, folder, data)
    from pipeline_assets.corpus.rows.trace import open_rows, trace_id, trace_row, trace_token
    from pipeline_assets.corpus.spine.artifact import sealed_manifest
    from pipeline_assets.corpus.spine.files import unreplaced
    from pipeline_assets.corpus.spine.lineage import Lineage

    with unreplaced(folder):
        sealed_manifest(folder)
        store = open_rows(folder, Lineage(root))
        if token is not None:
            found = [trace_token(store, token)]
        else:
            found = trace_id(store, doc_id) if doc_id is not None else trace_row(store, row or 0)
        lines = [line for one in found for line in (*_lines(one), "")]
    if as_json:
        told = [_json(one) for one in found]
        _print_json(told if store.holds_several else told[0])
    else:
        typer.echo("\n".join(lines[:-1]))


def _lines(found: "Traced") -> Iterator[str]:
    """A document of an artifact and where it came from, or a token of it."""
    text, labels, token = found.text, found.text.store.labels, found.token
    if token is not None:
        place = f"number {token.number:,} of its document"
        place += "" if token.byte_offset is None else f", at byte {token.byte_offset:,} of the text"
        if token.is_end_of_document:
            after = "" if token.byte_offset is None else f", after byte {token.byte_offset:,}"
            place = f"the end of text that closes the document{after}"
        yield f"token     {token.position:,}: id {token.id}, {place}"
    for row, part in found.places:
        yield from _place_lines(found, row, part)
    yield from (f"drawn     {draw['told']}" for draw in found.figures.get("draws", ()))
    around = text.beginning if token is None else f"{token.before}»{token.text}«{token.after}"
    source, *answers = text.source.rows
    lines = [
        f"{labels.row:10}{text.part.id}",
        f"shard     {text.store.artifact.folder / text.part.shard} row {text.part.shard_row:,}",
        *([] if text.part.tokens is None else [f"tokens    {text.part.tokens:,}{_figures(found)}"]),
        f"source    {source}",
        f"          {text.source.digest}",
        *_line_of(source),
        *(f"answer    {answer}" for answer in answers),
        f"licence   {text.source.license_tag} ({text.source.license_evidence})",
        f"{labels.beginning if token is None else 'text':10}{around}",
    ]
    yield from (line.translate(IN_ONE_LINE) for line in lines)


def _figures(found: "Traced") -> str:
    return "".join(f", {value:,} {name.replace('_', ' ')}" for name, value in found.figures.items())


def _place_lines(found: "Traced", row: "Row", part: "Part") -> Iterator[str]:
    """Where a part lies, of an artifact that holds tokens."""
    if row.ids is None or row.first_token is None or part.tokens is None:
        return
    first, last = row.first_token + part.column, row.first_token + part.column + part.tokens - 1
    label = f"{found.store.labels.row:10}"
    if found.store.holds_several:
        stop = part.start + part.tokens
        tokens = f"tokens {part.start:,} to {stop - 1:,}" if part.tokens > 1 else f"token {part.start:,}"
        yield f"{label}row {row.number:,} from column {part.column:,} on: {tokens} of it"
    else:
        yield f"{label}{row.number:,}: {part.tokens:,} tokens, {first:,} to {last:,} of tokens.bin"


def _line_of(row: "AnyRow") -> list[str]:
    """Of a file of lines, on which a row is."""
    from pipeline_assets.corpus.rows.source_row import place_told

    place = place_told(row)
    return [] if place.startswith("row ") else [f"          {place}"]


def _json(found: "Traced") -> dict[str, Any]:
    text = found.text
    source, *answers = text.source.rows
    places = [
        {
            "row": row.number,
            "first_token": None if row.first_token is None else row.first_token + part.column,
            "column": part.column,
            "start": part.start,
            "tokens": part.tokens,
        }
        for row, part in found.places
    ]
    return {
        "folder": found.store.artifact.folder,
        **places[0],
        "places": places,
        "token": None if found.token is None else asdict(found.token),
        "corpus": text.store.artifact.folder,
        "corpus_digest": text.store.artifact.manifest.digest,
        "doc_id": text.part.id,
        "shard": text.part.shard,
        "shard_row": text.part.shard_row,
        "source": _row_json(source),
        "answers": [_row_json(answer) for answer in answers],
        "source_digest": text.source.digest,
        "license_tag": text.source.license_tag,
        "license_evidence": text.source.license_evidence,
        "beginning": text.beginning,
        **found.figures,
    }


def _trace_source(source: str, root: Path, as_json: bool) -> None:
    from pipeline_assets.corpus.rows.fates import follow_source
    from pipeline_assets.corpus.rows.source_row import parse_row
    from pipeline_assets.corpus.spine.lineage import Lineage

    wanted = parse_row(source)
    found = follow_source(Lineage(existing_root(root)), wanted)
    if not as_json:
        typer.echo("\n".join([str(wanted), *(line for one in found for line in _followed_lines(one))]))
        return
    groups: dict[str, Any] = {"snapshots": [], "corpora": []}
    for one in found:
        groups.setdefault(one.store.labels.group, []).append(followed_json(one))
    _print_json({"source": _row_json(wanted), **groups})


def _followed_lines(found: "Followed") -> Iterator[str]:
    """What became of a row of a source in what read it, and in all that was made of that."""
    labels, fate, part = found.store.labels, found.fate, found.part
    yield f"{labels.artifact:10}{fate.artifact.folder}"
    if part is None:
        yield f"          {fate.words}".translate(IN_ONE_LINE)
        return
    answer = ", of which it is an answer" if fate.outcome == "merged" else ""
    yield f"{labels.row:10}{part.id.translate(IN_ONE_LINE)}{answer}"
    yield f"shard     {part.shard} row {part.shard_row:,}"
    for store, below in found.below:
        yield f"{store.labels.artifact:8}  {below.artifact.folder}: {below.words}".translate(IN_ONE_LINE)
    if not found.below:
        yield "          nothing was made of it"


def followed_json(found: "Followed") -> dict[str, Any]:
    """What became of a document or of a row, as JSON: what was made of it by kind."""
    groups: dict[str, Any] = {}
    for store, fate in found.below:
        groups.setdefault(store.labels.group, []).append(_fate_json(fate))
    part = found.part
    return {
        **_fate_json(found.fate),
        "digest": found.fate.artifact.manifest.digest,
        "doc_id": None if part is None else part.id,
        **groups,
    }


def _fate_json(fate: "Fate") -> dict[str, Any]:
    told = {"folder": fate.artifact.folder, "outcome": fate.outcome, "detail": fate.detail}
    return {**told, **fate.place, **fate.told}


@app.command(epilog="Example: corpusmill peek data/megatron/healing_text_v1/train --row 7")
def peek(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a Megatron split, a packed set, a corpus, or normalised rows.")
    ],
    row: Annotated[
        int | None, typer.Option(help="Sequence, row of a packed set, or document, from 0; default: 0.")
    ] = None,
    token: Annotated[int | None, typer.Option(help="The sequence or row that holds this token.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one sequence or row as a trainer would see it, or one document."""
    from pipeline_assets.corpus.rows.peek import peek as peek_at
    from pipeline_assets.corpus.rows.trace import open_rows
    from pipeline_assets.corpus.spine.artifact import sealed_manifest
    from pipeline_assets.corpus.spine.files import unreplaced

    if row is not None and token is not None:
        raise UsageError("two places to look at", folder, "give --row or --token")
    sealed_manifest(folder)
    with unreplaced(folder):
        store = open_rows(folder)
        seen = peek_at(store, row, token)
    if as_json:
        _print_json(_peek_json(folder, seen, store.holds_several))
    elif store.holds_several:
        typer.echo(f"row {seen.number:,}: {len(seen.parts):,} segments, {seen.padding:,} tokens of padding")
        for part in seen.parts:
            stop = part.start + (part.tokens or 0)
            typer.echo(f"\n{part.source} {part.id}, tokens {part.start:,} to {stop - 1:,} of it\n")
            _show_text(part.text)
    else:
        [part] = seen.parts
        tokens = "" if part.tokens is None else f", {part.tokens:,} tokens"
        tokens += "" if seen.first_token is None else f" from {seen.first_token:,} on"
        typer.echo(f"row {seen.number:,}: {part.id}{tokens}\n{part.shard} row {part.shard_row:,}\n")
        _show_text(part.text)


def _peek_json(folder: Path, seen: "Row", holds_several: bool) -> dict[str, Any]:
    keys = ("source", "doc_id", "start", "tokens", "text")
    parts = [asdict(part) | {"doc_id": part.id} for part in seen.parts]
    if holds_several:
        segments = [{key: part[key] for key in keys} for part in parts]
        return {"folder": folder, "row": seen.number, "segments": segments, "padding": seen.padding}
    own = {key: parts[0][key] for key in ("doc_id", "shard", "shard_row", "tokens", "text")}
    return {"folder": folder, "row": seen.number, "first_token": seen.first_token, **own}


def _show_text(text: str) -> None:
    typer.echo(text[:_SHOWN_CHARACTERS].translate(VISIBLE))
    if len(text) > _SHOWN_CHARACTERS:
        typer.echo(f"\n… {len(text) - _SHOWN_CHARACTERS:,} more characters; --json gives all")


def _row_json(row: "AnyRow") -> dict[str, Any]:
    return {"name": str(row), **asdict(row)}


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1, default=str))
