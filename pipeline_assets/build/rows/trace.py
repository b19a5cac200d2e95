"""Traces of rows, documents and tokens back to their source rows.

Traced tokens are checked: the upstream text is encoded again and compared with the tokens, except for sentence pairs. A
difference, or a missing or damaged artifact, raises InputError. A trace loads only an index, the row, and one block
per upstream file into memory; for sentence pairs, it loads the whole sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.build.rows.row_values import Part, Row
from pipeline_assets.build.rows.source_listing import TextSource
from pipeline_assets.build.rows.store import RowStore, UpstreamRow
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError, UsageError

_TOKENS_AROUND = 24
_SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class Token:
    """Token of a token file.

    `byte_offset`, `line` and `hex` are None if the tokenizer does not report bytes.
    """

    position: int  # in the file, from 0
    number: int  # in its document, from 0
    id: int
    text: str  # with U+FFFD for incomplete characters
    is_end_of_document: bool
    before: str  # texts of the tokens before it in the document
    after: str  # texts of the tokens after it
    byte_offset: int | None  # number of bytes before the token in the document's UTF-8
    line: int | None  # of the document's text, from 1, on which the token starts
    hex: str | None  # bytes of the token; empty for the end-of-document token


@dataclass(frozen=True)
class TracedText:
    """Text of a document; for tokens, the upstream text that was encoded."""

    store: RowStore
    part: Part
    source: TextSource
    derivation: tuple[tuple[Path, int], ...] = ()  # files and rows in further upstream artifacts, nearest first

    @property
    def excerpt(self) -> str:
        """Beginning of the text or, for a conversation, of its first user message."""
        return self.store.excerpt_text(self.part)[:_SHOWN_CHARACTERS]


@dataclass(frozen=True)
class TracedRow:
    """A document of an artifact, traced to its source."""

    store: RowStore
    row_parts: Sequence[tuple[Row, Part]]  # requested parts of the document
    text: TracedText
    token: Token | None = None  # None if a row or document was requested
    facts: Mapping[str, Any] = field(default_factory=dict)


def trace_row(store: RowStore, row_number: int) -> list[TracedRow]:
    """Trace a row's parts to their sources; UsageError if the row is out of range."""
    row = store.row_at(row_number)
    return [_trace(store, [(row, part)], None, not store.mixes_documents) for part in row.parts]


def trace_token(store: RowStore, position: int) -> TracedRow:
    """Trace token `position` of a token file to its source; UsageError for padding."""
    row = store.row_at(store.row_of_token(position))
    column = position - (row.first_token or 0)
    part = next((part for part in row.parts if part.column <= column < part.column + (part.tokens or 0)), None)
    if part is None:
        tokens, first = len(row.token_ids) if row.token_ids is not None else 0, row.first_token or 0
        what = f"token {position:,} is padding: row {row.number:,} has {tokens:,} tokens of documents"
        raise UsageError(what, store.artifact.folder, f"choose {first:,} to {first + tokens - 1:,}")
    return _trace(store, [(row, part)], position, not store.mixes_documents)


def trace_id(store: RowStore, row_id: str) -> list[TracedRow]:
    """Trace all documents with an id; UsageError if there are none.

    For example, each split may have a document with this id.
    """
    parts_by_place: dict[tuple[str, str, int], list[tuple[Row, Part]]] = {}
    for number in store.find(row_id):
        row = store.row_at(number)
        for part in row.parts:
            if part.id == row_id:
                parts_by_place.setdefault((part.source, part.shard, part.shard_row), []).append((row, part))
    if not parts_by_place:
        what, fix = store.missing_message(row_id)
        raise UsageError(what, store.artifact.folder, fix)
    return [_trace(store, row_parts, None, True) for row_parts in parts_by_place.values()]


def _trace(store: RowStore, row_parts: Sequence[tuple[Row, Part]], position: int | None, with_facts: bool) -> TracedRow:
    text = _trace_text(store, row_parts[0][1])
    token, tokenizer = None, store.tokenizer
    if tokenizer is not None:
        ids = np.append(tokenizer.encode([text.part.text]).ids, np.int32(tokenizer.end_of_document_id))
        for row, part in row_parts:
            tokens = part.tokens or 0
            own = row.token_ids[part.column : part.column + tokens] if row.token_ids is not None else ids[:0]
            if not np.array_equal(own, ids[part.start : part.start + tokens]):
                what = f"row {row.number:,} differs from the tokens of document {part.id!r} at column {part.column:,}"
                raise InputError(what, store.artifact.folder, "run `corpusmill verify --upstream` on it")
        if position is not None:
            [(row, part)] = row_parts
            # position in the document = start of the part in it + offset of the token in the part
            number = part.start + position - (row.first_token or 0) - part.column
            token = _describe_token(tokenizer, ids, number, position)
    return TracedRow(store, row_parts, text, token, store.part_facts(row_parts[0][1]) if with_facts else {})


def _trace_text(store: RowStore, part: Part) -> TracedText:
    """Return the text of a part, traced through all upstream artifacts to its source."""
    text_store, text_part, row_id = store, part, store.upstream_id(part)
    derivation: list[tuple[Path, int]] = []
    origin = store.origin(part)
    while isinstance(origin, UpstreamRow):
        upstream = origin.part()
        file = origin.store.artifact.folder / upstream.shard
        if upstream.id != row_id:
            what = f"row {part.shard_row} is document {upstream.id!r}, but {store.artifact.folder} expects {part.id!r}"
            raise InputError(what, file, "run `corpusmill verify` on both")
        if text_store.holds_tokens:
            text_store, text_part = origin.store, upstream
        else:
            derivation.append((file, upstream.shard_row))
        origin = origin.store.origin(upstream)
    return TracedText(text_store, text_part, origin, tuple(derivation))


def _describe_token(tokenizer: Tokenizer, ids: NDArray[np.int32], number: int, position: int) -> Token:
    """Describe the token `ids[number]`, which is at `position` in the token file."""
    is_end, byte_offset, line, own = number == len(ids) - 1, None, None, None
    if isinstance(tokenizer, HarmonyEncoder):
        before = tokenizer.oracle.decode_bytes(ids[:number].tolist())
        byte_offset, line = len(before), 1 + before.count(b"\n")
        own = b"" if is_end else tokenizer.oracle.decode_single_token_bytes(int(ids[number]))
    return Token(
        position=position,
        number=number,
        id=int(ids[number]),
        text=tokenizer.decode(ids[number : number + 1]),
        is_end_of_document=is_end,
        before=tokenizer.decode(ids[max(0, number - _TOKENS_AROUND) : number]),
        after=tokenizer.decode(ids[number + 1 : number + 1 + _TOKENS_AROUND]),
        byte_offset=byte_offset,
        line=line,
        hex=None if own is None else own.hex(),
    )
