"""The command `trace`, which follows rows to their source, or downstream."""

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.build.rows.source_row import AnySourceRow, format_place, parse_row_address
from pipeline_assets.build.run import open_hub
from pipeline_assets.commands import terminal
from pipeline_assets.commands.inputs import warn_of_unsearchable
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.visible import to_one_line
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.rows.follow import FollowedRow
    from pipeline_assets.build.rows.row_values import Fate, Part, Row
    from pipeline_assets.build.rows.source_listing import TextSource
    from pipeline_assets.build.rows.trace import TracedRow


def trace(
    folder: Annotated[Path | None, typer.Argument(help="Folder of a split, packed set, corpus or rows.")] = None,
    token: Annotated[int | None, typer.Option(help="Position in tokens.bin or input_ids.mmap, from 0.")] = None,
    doc_id: Annotated[str | None, typer.Option(help="Id of a document or normalized row.")] = None,
    row: Annotated[int | None, typer.Option(help="Sequence, row or document number, from 0.")] = None,
    source: Annotated[str | None, typer.Option(help="[REPO@COMMIT:]PATH#ROW or PATH:LINE, without FOLDER.")] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Print only the source's record, fetching it if needed.")
    ] = False,
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Trace a token or document to its source row, or back.

    Example: corpusmill trace data/megatron/healing_text_v1/train --token 9
    """
    from pipeline_assets.build.rows.row_stores import open_rows
    from pipeline_assets.build.rows.trace import trace_id, trace_row, trace_token

    selectors = [option for option in (token, doc_id, row) if option is not None]
    if source is not None:
        if folder is not None or selectors or record:
            what = "excludes FOLDER, --token, --doc-id, --row and --record"
            raise UsageError(what, "--source", "pass it alone or with --data")
        _trace_source(source, data, as_json)
        return
    if record and as_json:
        raise UsageError("excludes --json, because it prints the record as it is", "--record", "pass one of them")
    if folder is None:
        fix = "pass the folder of a split, set or corpus and --token, --doc-id or --row, or --source alone"
        raise UsageError("nothing to trace", "trace", fix)
    if len(selectors) != 1:
        what = f"expected one of --token, --doc-id and --row, got {len(selectors) or 'none'}"
        raise UsageError(what, folder, "pass exactly one of them")
    root = terminal.data_root(folder, data)
    with forbid_replacement(folder):
        require_manifest(folder)
        store = open_rows(folder, SYSTEMS.kinds, Lineage(root))
        if token is not None:
            traced = [trace_token(store, token)]
        else:
            traced = trace_id(store, doc_id) if doc_id is not None else trace_row(store, row or 0)
        if record:
            from pipeline_assets.build.rows.source_record import read_record

            for entry in traced:
                content = read_record(entry.text.source.rows[0], open_hub(root, os.environ))
                if sys.stdout.isatty():
                    terminal.echo(content.decode(errors="replace"))
                else:
                    typer.echo(content)
            return
        lines = [line for entry in traced for line in (*_traced_lines(entry), "")]
    entries = [_traced_json(entry) for entry in traced]
    terminal.print_answer(as_json, entries if store.mixes_documents or len(entries) > 1 else entries[0], lines[:-1])


def _traced_lines(traced: "TracedRow") -> Iterator[str]:
    text, labels, token = traced.text, traced.text.store.display_names, traced.token
    if token is not None:
        byte = token.byte_offset
        if token.is_end_of_document:
            position = "end-of-text token of the document" + ("" if byte is None else f", after byte {byte:,}")
        else:
            position = f"number {token.number:,} of its document"
            position += "" if byte is None else f", at byte {byte:,} of the text, line {token.line:,}"
        yield f"token     {token.position:,}: id {token.id}, {position}"
    for row, part in traced.row_parts:
        yield from _position_lines(traced, row, part)
    yield from (f"drawn     {draw['told']}" for draw in traced.facts.get("draws", ()))
    excerpt = text.excerpt if token is None else f"{token.before}»{token.text}«{token.after}"
    source, *answers = text.source.rows
    facts = ((name.replace("_", " "), value) for name, value in traced.facts.items() if name != "draws")
    figures, line = "".join(f", {value:,} {name}" for name, value in facts), format_place(source)
    lines = [
        f"{labels.row:10}{text.part.id}",
        f"shard     {text.store.artifact.folder / text.part.shard} row {text.part.shard_row:,}",
        *([] if text.part.tokens is None else [f"tokens    {text.part.tokens:,}{''.join(figures)}"]),
        *(f"derived   {file} row {row:,}" for file, row in text.derivation),
        f"source    {source}",
        f"          {text.source.digest}",
        *([] if line.startswith("row ") else [f"          {line}"]),
        *(f"answer    {answer}" for answer in answers),
        f"licence   {format_licence(text.source)}",
        f"{labels.excerpt if token is None else 'text':10}{excerpt}",
    ]
    yield from map(to_one_line, lines)


def format_licence(source: "TextSource") -> str:
    """Format the licence tag of a source row, with the evidence for the tag."""
    return f"{source.license_tag} ({source.license_evidence})"


def _position_lines(traced: "TracedRow", row: "Row", part: "Part") -> Iterator[str]:
    if row.token_ids is None or row.first_token is None or part.tokens is None:
        return
    first, last = row.first_token + part.column, row.first_token + part.column + part.tokens - 1
    label = f"{traced.store.display_names.row:10}"
    if traced.store.mixes_documents:
        stop = part.start + part.tokens
        tokens = f"tokens {part.start:,} to {stop - 1:,}" if part.tokens > 1 else f"token {part.start:,}"
        yield f"{label}row {row.number:,} from column {part.column:,}: {tokens} of the document"
    else:
        yield f"{label}{row.number:,}: {pluralize(part.tokens, 'token')}, {first:,} to {last:,} of tokens.bin"


def _traced_json(traced: "TracedRow") -> dict[str, Any]:
    text = traced.text
    source, *answers = text.source.rows
    places = []
    for row, part in traced.row_parts:
        first_token = None if row.first_token is None else row.first_token + part.column
        position = {key: getattr(part, key) for key in ("column", "start", "tokens")}
        places.append({"row": row.number, "first_token": first_token, **position})
    return {
        "folder": traced.store.artifact.folder,
        **places[0],
        "places": places,
        "token": traced.token,
        "corpus": text.store.artifact.folder,
        "corpus_digest": text.store.artifact.manifest.digest,
        "doc_id": text.part.id,
        "shard": text.part.shard,
        "shard_row": text.part.shard_row,
        "made_of": [{"file": file, "row": row} for file, row in text.derivation],
        "source": _source_row_json(source),
        "answers": [_source_row_json(answer) for answer in answers],
        "source_digest": text.source.digest,
        "license_tag": text.source.license_tag,
        "license_evidence": text.source.license_evidence,
        "beginning": text.excerpt,
        **traced.facts,
    }


def _source_row_json(row: AnySourceRow) -> dict[str, Any]:
    return {"name": str(row), **asdict(row)}


def _trace_source(source: str, explicit_root: Path | None, as_json: bool) -> None:
    from pipeline_assets.build.rows.follow import follow_source, source_files
    from pipeline_assets.build.rows.row_stores import RowStores

    def files() -> Iterator[Path]:  # read only if the current folder lacks the file
        yield from source_files(Lineage(terminal.data_root(None, explicit_root)))

    row = parse_row_address(source, files())
    stores = RowStores(SYSTEMS.kinds, Lineage(terminal.data_root(None, explicit_root)))
    followed = follow_source(stores, row)
    warn_of_unsearchable(stores)
    groups: dict[str, Any] = {"snapshots": [], "corpora": []}
    for entry in followed:
        groups.setdefault(entry.store.display_names.json_key, []).append(followed_json(entry))
    lines = [to_one_line(str(row)), *itertools.chain.from_iterable(map(_followed_lines, followed))]
    terminal.print_answer(as_json, {"source": _source_row_json(row), **groups}, lines)


def _followed_lines(followed: "FollowedRow") -> Iterator[str]:
    labels, fate, part = followed.store.display_names, followed.fate, followed.part
    yield f"{labels.artifact:10}{fate.artifact.folder}"
    if part is None:
        yield to_one_line(f"          {fate.summary}")
        return
    answer = ", which contains it as an answer" if fate.outcome == "merged" else ""
    yield f"{labels.row:10}{to_one_line(part.id)}{answer}"
    yield f"shard     {part.shard} row {part.shard_row:,}"
    for store, downstream in followed.downstream:
        yield to_one_line(f"{store.display_names.artifact:8}  {downstream.artifact.folder}: {downstream.summary}")
    if not followed.downstream:
        yield "          no artifact depends on it"


def followed_json(followed: "FollowedRow") -> dict[str, Any]:
    """Convert a row's fate in its artifact, and its fates downstream, to JSON values."""
    groups: dict[str, Any] = {}
    for store, fate in followed.downstream:
        groups.setdefault(store.display_names.json_key, []).append(_fate_json(fate))
    doc_id = None if followed.part is None else followed.part.id
    return {**_fate_json(followed.fate), "digest": followed.fate.artifact.manifest.digest, "doc_id": doc_id, **groups}


def _fate_json(fate: "Fate") -> dict[str, Any]:
    outcome = {"folder": fate.artifact.folder, "outcome": fate.outcome, "detail": fate.detail}
    return {**outcome, **fate.place, **fate.facts}
