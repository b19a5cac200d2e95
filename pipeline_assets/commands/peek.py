"""The command `peek`, which shows a row as a trainer reads it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands import terminal
from pipeline_assets.corpus.harmony.message import Role
from pipeline_assets.corpus.harmony.parse import ParsedMessage
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.visible import VISIBLE_TABLE, to_one_line
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.rows.row_values import Row
    from pipeline_assets.build.rows.store import RowStore

_MAX_CHARACTERS = 2_000
_LOSS_MARK, _MARGIN = "▌ ", "  "
_COLOURS_BY_ROLE = {Role.USER: "blue", Role.ASSISTANT: "cyan", Role.TOOL: "yellow"}


def peek(
    folder: Annotated[Path, typer.Argument(help="Folder of a split, packed set, corpus or rows.")],
    row: Annotated[int | None, typer.Option(help="Sequence, row or document number; from 0, default 0.")] = None,
    token: Annotated[int | None, typer.Option(help="Position in the token file, from 0; shows its row.")] = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Show a row as a trainer reads it, or a document.

    Example: corpusmill peek data/megatron/healing_text_v1/train --row 7
    """
    from pipeline_assets.build.rows.row_stores import open_rows

    if row is not None and token is not None:
        raise UsageError("--row excludes --token", folder, "pass one of them")
    require_manifest(folder)
    with forbid_replacement(folder):
        store = open_rows(folder, SYSTEMS.kinds)
        content = store.row_at(row or 0 if token is None else store.row_of_token(token))
    terminal.print_answer(as_json, _row_json(store, content), _row_lines(store, content))


def _row_json(store: "RowStore", row: "Row") -> dict[str, Any]:
    folder, parts = store.artifact.folder, [asdict(part) | {"doc_id": part.id} for part in row.parts]
    if store.mixes_documents:
        segments = [{key: part[key] for key in ("source", "doc_id", "start", "tokens", "text")} for part in parts]
        return {"folder": folder, "row": row.number, "segments": segments, "padding": row.padding}
    document = {key: parts[0][key] for key in ("doc_id", "shard", "shard_row", "tokens", "text")}
    messages = store.messages(row.parts[0])
    loss = {} if messages is None else {"loss_spans": [message.body for message, counts in messages if counts]}
    return {"folder": folder, "row": row.number, "first_token": row.first_token, **document, **loss}


def _row_lines(store: "RowStore", row: "Row") -> Iterator[terminal.Line]:
    if store.mixes_documents:
        segments = pluralize(len(row.parts), "segment")
        yield f"row {row.number:,}: {segments}, {pluralize(row.padding, 'token')} of padding"
    for part in row.parts:
        if store.mixes_documents:
            last = part.start + (part.tokens or 0) - 1
            yield f"\n{part.source} {to_one_line(part.id)}, tokens {part.start:,} to {last:,} of the document\n"
        else:
            tokens = "" if part.tokens is None else f", {pluralize(part.tokens, 'token')}"
            tokens += "" if row.first_token is None else f" from {row.first_token:,}"
            yield f"row {row.number:,}: {to_one_line(part.id)}{tokens}\n{part.shard} row {part.shard_row:,}\n"
        messages = store.messages(part)
        if messages:
            yield f"{_LOSS_MARK}counts in the loss\n"
            yield from _conversation_lines(part.text, messages)
            continue
        yield part.text[:_MAX_CHARACTERS].translate(VISIBLE_TABLE)
        if len(part.text) > _MAX_CHARACTERS:
            yield f"\n… {len(part.text) - _MAX_CHARACTERS:,} more characters; --json gives all"


def _conversation_lines(text: str, messages: Sequence[tuple[ParsedMessage, bool]]) -> Iterator[terminal.Line]:
    """Yield the lines of a conversation; mark the messages that count in the loss."""
    # Lines are tuples, because the terminal colours a plain string if its first word is a state, such as `failed`.
    for (message, _, span, body), counts in messages:
        colour, content = _COLOURS_BY_ROLE.get(message.role, "magenta"), text[body.start : body.stop]
        lines = content[:_MAX_CHARACTERS].translate(VISIBLE_TABLE).split("\n") if content else []
        if len(content) > _MAX_CHARACTERS:
            lines.append(f"… {len(content) - _MAX_CHARACTERS:,} more characters; --json gives all")
        yield from _markup_lines(text[span.start : body.start], colour)
        yield from (((_LOSS_MARK + line, "green"),) if counts else (_MARGIN, line) for line in lines)
        yield from _markup_lines(text[body.stop : span.stop], colour)
    yield from _markup_lines(text[span.stop :], colour)  # a chat template may write more after the last body


def _markup_lines(text: str, colour: str) -> Iterator[terminal.Line]:
    """Yield markup as lines, without a line break at its start or its end."""
    for line in text.removeprefix("\n").removesuffix("\n").translate(VISIBLE_TABLE).split("\n") if text else ():
        yield _MARGIN, (line, colour)
