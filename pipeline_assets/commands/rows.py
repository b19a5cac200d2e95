"""trace, peek, why, show: from a token or a document to its source row and back, what a reader gets, what it copies."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from pipeline_assets.commands import terminal
from pipeline_assets.corpus.harmony.message import Role
from pipeline_assets.corpus.harmony.parse import ParsedMessage
from pipeline_assets.spine.artifact import require_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import forbid_replacement
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.visible import IN_ONE_LINE, VISIBLE
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.rows.source_row import AnyRow
    from pipeline_assets.build.rows.store import Fate, Part, Row, RowStore, Source
    from pipeline_assets.build.rows.trace import FollowedRow, TracedRow
    from pipeline_assets.corpus.dedup.decision import DocumentGroup, Member
    from pipeline_assets.corpus.document import Document

_FOLDER = "Folder of a Megatron split, a packed set, a corpus, or normalised rows."
_SHOWN_CHARACTERS, _BEGINNING = 2_000, 300
_MAX_SHOWN_DROPPED = 5
MARK, _MARGIN = "▌ ", "  "
_COLOURS = {Role.USER: "blue", Role.ASSISTANT: "cyan", Role.TOOL: "yellow"}


def trace(
    folder: Annotated[Path | None, typer.Argument(help=_FOLDER)] = None,
    token: Annotated[int | None, typer.Option(help="Position in tokens.bin or input_ids.mmap, from 0.")] = None,
    doc_id: Annotated[str | None, typer.Option(help="Id of a document, or of a normalised row.")] = None,
    row: Annotated[int | None, typer.Option(help="Sequence of a split, else row or document, from 0.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Row of a source, REPO@COMMIT:PATH#ROW, PATH#ROW or PATH:LINE; no FOLDER.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Print the source's record alone, byte for byte, fetched if need be.")
    ] = False,
    data: terminal.OptionalRoot = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Example: corpusmill trace data/megatron/healing_text_v1/train --token 9"""
    from pipeline_assets.build.rows.row_stores import open_rows
    from pipeline_assets.build.rows.source_row import parse_row
    from pipeline_assets.build.rows.trace import trace_id, trace_row, trace_token

    asked = [option for option in (token, doc_id, row) if option is not None]
    if source is not None:
        if folder is not None or asked:
            raise UsageError("a source row is looked up in the data root", "--source", "give it alone or with --data")
        _trace_source(parse_row(source), terminal.data_root(None, data), as_json)
        return
    if folder is None:
        fix = "give the folder of a split, set or corpus and --token, --doc-id or --row, or --source alone"
        raise UsageError("nothing to trace", "trace", fix)
    if len(asked) != 1:
        what = "several things to trace" if asked else "nothing to trace"
        raise UsageError(what, folder, "give exactly one of --token, --doc-id, --row")
    root = terminal.data_root(folder, data)
    with forbid_replacement(folder):
        require_manifest(folder)
        store = open_rows(folder, SYSTEMS.kinds, Lineage(root))
        if token is not None:
            found = [trace_token(store, token)]
        else:
            found = trace_id(store, doc_id) if doc_id is not None else trace_row(store, row or 0)
        if record:
            from pipeline_assets.build.rows.source_row import read_record
            from pipeline_assets.build.run import open_hub

            for one in found:
                content = read_record(one.text.source.rows[0], open_hub(root, os.environ))
                if sys.stdout.isatty():
                    terminal.echo(content.decode(errors="replace"))
                else:
                    typer.echo(content)
            return
        lines = [line for one in found for line in (*_traced_lines(one), "")]
    told = [_traced_json(one) for one in found]
    terminal.answer(as_json, told if store.holds_several else told[0], lines[:-1])


def _traced_lines(found: "TracedRow") -> Iterator[str]:
    text, labels, token = found.text, found.text.store.labels, found.token
    if token is not None:
        byte = token.byte_offset
        if token.is_end_of_document:
            place = "the end of text that closes the document" + ("" if byte is None else f", after byte {byte:,}")
        else:
            place = f"number {token.number:,} of its document"
            place += "" if byte is None else f", at byte {byte:,} of the text, line {token.line:,}"
        yield f"token     {token.position:,}: id {token.id}, {place}"
    for row, part in found.places:
        yield from _place_lines(found, row, part)
    yield from (f"drawn     {draw['told']}" for draw in found.figures.get("draws", ()))
    around = text.beginning if token is None else f"{token.before}»{token.text}«{token.after}"
    source, *answers = text.source.rows
    figures = "".join(
        f", {value:,} {name.replace('_', ' ')}" for name, value in found.figures.items() if name != "draws"
    )
    from pipeline_assets.build.rows.source_row import format_place

    line = format_place(source)
    lines = [
        f"{labels.row:10}{text.part.id}",
        f"shard     {text.store.artifact.folder / text.part.shard} row {text.part.shard_row:,}",
        *([] if text.part.tokens is None else [f"tokens    {text.part.tokens:,}{''.join(figures)}"]),
        *(f"made of   {file} row {row:,}" for file, row in text.derivation),
        f"source    {source}",
        f"          {text.source.digest}",
        *([] if line.startswith("row ") else [f"          {line}"]),
        *(f"answer    {answer}" for answer in answers),
        f"licence   {_licence(text.source)}",
        f"{labels.beginning if token is None else 'text':10}{around}",
    ]
    yield from (line.translate(IN_ONE_LINE) for line in lines)


def _licence(source: "Source") -> str:
    return f"{source.license_tag} ({source.license_evidence})"


def _place_lines(found: "TracedRow", row: "Row", part: "Part") -> Iterator[str]:
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


def _traced_json(found: "TracedRow") -> dict[str, Any]:
    text = found.text
    source, *answers = text.source.rows
    places = [
        {
            "row": row.number,
            "first_token": None if row.first_token is None else row.first_token + part.column,
            **{key: getattr(part, key) for key in ("column", "start", "tokens")},
        }
        for row, part in found.places
    ]
    return {
        "folder": found.store.artifact.folder,
        **places[0],
        "places": places,
        "token": found.token,
        "corpus": text.store.artifact.folder,
        "corpus_digest": text.store.artifact.manifest.digest,
        "doc_id": text.part.id,
        "shard": text.part.shard,
        "shard_row": text.part.shard_row,
        "made_of": [{"file": file, "row": row} for file, row in text.derivation],
        "source": _row_json(source),
        "answers": [_row_json(answer) for answer in answers],
        "source_digest": text.source.digest,
        "license_tag": text.source.license_tag,
        "license_evidence": text.source.license_evidence,
        "beginning": text.beginning,
        **found.figures,
    }


def _row_json(row: "AnyRow") -> dict[str, Any]:
    return {"name": str(row), **asdict(row)}


def _trace_source(wanted: "AnyRow", root: Path, as_json: bool) -> None:
    from pipeline_assets.build.rows.row_stores import RowStores
    from pipeline_assets.build.rows.trace import follow_source

    found = follow_source(RowStores(SYSTEMS.kinds, Lineage(root)), wanted)
    groups: dict[str, Any] = {"snapshots": [], "corpora": []}
    for one in found:
        groups.setdefault(one.store.labels.group, []).append(_followed_json(one))
    lines = [str(wanted), *(line for one in found for line in _followed_lines(one))]
    terminal.answer(as_json, {"source": _row_json(wanted), **groups}, lines)


def _followed_lines(found: "FollowedRow") -> Iterator[str]:
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


def _followed_json(found: "FollowedRow") -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for store, fate in found.below:
        groups.setdefault(store.labels.group, []).append(_fate_json(fate))
    doc_id = None if found.part is None else found.part.id
    return {**_fate_json(found.fate), "digest": found.fate.artifact.manifest.digest, "doc_id": doc_id, **groups}


def _fate_json(fate: "Fate") -> dict[str, Any]:
    told = {"folder": fate.artifact.folder, "outcome": fate.outcome, "detail": fate.detail}
    return {**told, **fate.place, **fate.describe}


def peek(
    folder: Annotated[Path, typer.Argument(help=_FOLDER)],
    row: Annotated[
        int | None, typer.Option(help="Sequence of a split, else row or document, from 0; default: 0.")
    ] = None,
    token: Annotated[int | None, typer.Option(help="The sequence or row that holds this token.")] = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Example: corpusmill peek data/megatron/healing_text_v1/train --row 7"""
    from pipeline_assets.build.rows.row_stores import open_rows
    from pipeline_assets.build.rows.row_stores import peek as peek_at

    if row is not None and token is not None:
        raise UsageError("two places to look at", folder, "give --row or --token")
    require_manifest(folder)
    with forbid_replacement(folder):
        store = open_rows(folder, SYSTEMS.kinds)
        seen = peek_at(store, row, token)
    terminal.answer(as_json, _seen_json(store, seen), _seen_lines(store, seen))


def _seen_json(store: "RowStore", seen: "Row") -> dict[str, Any]:
    folder, parts = store.artifact.folder, [asdict(part) | {"doc_id": part.id} for part in seen.parts]
    if store.holds_several:
        segments = [{key: part[key] for key in ("source", "doc_id", "start", "tokens", "text")} for part in parts]
        return {"folder": folder, "row": seen.number, "segments": segments, "padding": seen.padding}
    own = {key: parts[0][key] for key in ("doc_id", "shard", "shard_row", "tokens", "text")}
    messages = store.messages(seen.parts[0])
    loss = {} if messages is None else {"loss_spans": [message.body for message, counts in messages if counts]}
    return {"folder": folder, "row": seen.number, "first_token": seen.first_token, **own, **loss}


def _seen_lines(store: "RowStore", seen: "Row") -> Iterator[terminal.Line]:
    if store.holds_several:
        yield f"row {seen.number:,}: {len(seen.parts):,} segments, {seen.padding:,} tokens of padding"
    for part in seen.parts:
        if store.holds_several:
            yield f"\n{part.source} {part.id}, tokens {part.start:,} to {part.start + (part.tokens or 0) - 1:,} of it\n"
        else:
            tokens = "" if part.tokens is None else f", {part.tokens:,} tokens"
            tokens += "" if seen.first_token is None else f" from {seen.first_token:,} on"
            yield f"row {seen.number:,}: {part.id}{tokens}\n{part.shard} row {part.shard_row:,}\n"
        messages = store.messages(part)
        if messages:
            yield f"{MARK}counts in the loss\n"
            yield from conversation_lines(part.text, messages, _SHOWN_CHARACTERS)
            continue
        yield part.text[:_SHOWN_CHARACTERS].translate(VISIBLE)
        if len(part.text) > _SHOWN_CHARACTERS:
            yield f"\n… {len(part.text) - _SHOWN_CHARACTERS:,} more characters; --json gives all"


def why(
    doc_id: Annotated[str, typer.Argument(help="Id of a document.")],
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> bool:
    """Exit status 1: no source has such an id.

    Example: corpusmill stage-a why wikipedia:en:12 --data out
    """
    from pipeline_assets.build.rows.row_stores import RowStores
    from pipeline_assets.build.rows.trace import follow_document

    if not doc_id:
        raise UsageError("the id is empty", "DOC_ID", "give the id of a document: `trace` and `peek` show ids")
    found = list(follow_document(RowStores(SYSTEMS.kinds, Lineage(terminal.existing_root(data))), doc_id))
    if not found and not as_json:
        terminal.echo(f"no source below {data} has a document {doc_id!r}", err=True)
    content = [_followed_json(one) | {"rejects": one.rejects} for one in found]
    terminal.answer(as_json, content, (line.translate(IN_ONE_LINE) for one in found for line in _why_lines(one)))
    return bool(found)


def _why_lines(found: "FollowedRow") -> Iterator[str]:
    folder, part = found.fate.artifact.folder, found.part
    if part is not None:
        yield f"{folder}/{part.shard} row {part.shard_row}"
        try:
            source = cast("Source", found.store.origin(part))
            yield f"  from     {source.file} {_place(found, part.source, source.file, source.rows[0].row)}"
            yield f"  licence  {_licence(source)}"
        except InputError as gone:
            yield f"  from     {gone.what}"
        yield f"  text     {len(part.text):,} characters: {part.text[:_BEGINNING]}"
    for reject in found.rejects:
        yield f"{folder}"
        yield f"  rejected  {reject.describe(_place(found, folder.name, reject.file, reject.row))}"
    for _, fate in found.below:
        yield f"{fate.artifact.folder}"
        yield from (f"  {line}" for line in fate.lines or [fate.words])
    if part is not None and not found.below:
        yield "  nothing was made of it"


def _place(found: "FollowedRow", source: str, file: str, row: int) -> str:
    """Where in its file a row of a source is, in words; its line where the file is still here."""
    from pipeline_assets.build.rows.source_row import format_place
    from pipeline_assets.corpus.readers.row_positions import format_row

    with contextlib.suppress(InputError):  # what it was made from is gone
        return format_place(found.store.listing(source).row(file, row))
    return format_row(file, row, None)


def show(
    doc_id: Annotated[str, typer.Argument(help="Id of a document, kept or gone.")],
    data: terminal.Root = Path("data"),
    every: Annotated[bool, typer.Option("--all", help=f"All that went, not the first {_MAX_SHOWN_DROPPED}.")] = False,
    as_json: terminal.AsJson = False,
) -> bool:
    """Exit status 1: no deduplicated corpus has it.

    Example: corpusmill dedup show wikipedia:en:12 --data out
    """
    from pipeline_assets.corpus.dedup.decision import groups_with_document

    lineage = Lineage(terminal.existing_root(data))
    groups = list(groups_with_document(lineage, doc_id))
    if not groups and not as_json:
        terminal.echo(f"no deduplicated corpus below {data} has a document {doc_id!r}", err=True)
    lines = (line for group in groups for line in _group_lines(lineage, group, doc_id, every))
    terminal.answer(as_json, [_group_json(group) for group in groups], lines)
    return bool(groups)


def _group_json(group: "DocumentGroup") -> dict[str, Any]:
    kept = group.kept
    return {
        "folder": group.corpus.folder,
        "kept_in": None if kept is None else kept.corpus.folder,
        "seen_in": group.seen_in,
        "kept": {"doc_id": group.kept_id} if kept is None else kept.decision,
        "gone": [member.decision for member in group.dropped],
    }


def _group_lines(lineage: Lineage, group: "DocumentGroup", doc_id: str, every: bool) -> Iterator[str]:
    from pipeline_assets.corpus.dedup.decision import read_document, word_diff

    yield f"{group.corpus.folder}: {1 + len(group.dropped):,} documents, one stays"
    kept = None
    if group.kept is None:
        gone = f"its corpus is not below {lineage.root}"
        yield f"kept  {group.kept_id}  (seen before, in the store {group.seen_in}; {gone})"
    else:
        document = read_document(lineage, group.kept)
        kept = document.text
        seen = f"  (seen before, in {group.kept.corpus.folder})" if group.seen_in is not None else ""
        yield f"kept  {_decided(lineage, group.kept, document)}{seen}"
        yield _beginning(kept)
    asked_first = sorted(group.dropped, key=lambda member: member.decision.doc_id != doc_id)
    shown = asked_first if every else asked_first[:_MAX_SHOWN_DROPPED]
    for member in shown:
        one, document = member.decision, read_document(lineage, member)
        yield f"{one.decision.replace('_', ' ')}  {_decided(lineage, member, document)}"
        yield f"  similarity {one.similarity:.4f}, {one.containment:.1%} of its shingles are in the one that stays"
        if one.copy_of is not None and one.copy_of != group.kept_id:
            yield f"  the same words as {one.copy_of}"
        if kept is None:
            yield _beginning(document.text)
        else:
            yield "  " + " ".join(word_diff(kept, document.text)).translate(VISIBLE)
    if len(shown) < len(asked_first):
        yield f"and {len(asked_first) - len(shown):,} more (--all)"


def _beginning(text: str) -> str:
    return f"  {text[:_BEGINNING].translate(IN_ONE_LINE)}"


def _decided(lineage: Lineage, member: "Member", document: "Document") -> str:
    from pipeline_assets.build.rows.source_row import find_listing, format_place

    one, meta = member.decision, document.meta
    try:
        row = find_listing(lineage, member.corpus, one.source).row(meta.source_file, meta.source_row)
        place = f"{row.file} {format_place(row)}"
    except InputError:  # what the corpus was made from is gone
        place = f"{one.shard} row {one.row:,}"
    return f"{one.doc_id}  ({one.source}, {place})".translate(IN_ONE_LINE)


def conversation_lines(
    text: str, messages: Sequence[tuple[ParsedMessage, bool]], most_characters: int
) -> Iterator[terminal.Line]:
    """The lines of each body between those of its control tokens: the mark stands before all of a body that counts in
    the loss, and before nothing else. An empty body has no line. No word of them is taken for a state: they are parts.

    Args:
        messages: of the text, each with whether its body counts.
        most_characters: of a body that are shown.
    """
    for (message, _, span, body), counts in messages:
        colour, said = _COLOURS.get(message.role, "magenta"), text[body.start : body.stop]
        shown = said[:most_characters].translate(VISIBLE).split("\n") if said else []
        if len(said) > most_characters:
            shown.append(f"… {len(said) - most_characters:,} more characters; --json gives all")
        yield _MARGIN, (text[span.start : body.start].translate(VISIBLE), colour)
        yield from (((MARK + line, "green"),) if counts else (_MARGIN, line) for line in shown)
        yield _MARGIN, (text[body.stop : span.stop], colour)
