"""Rows of any artifact: opened, shown, traced back to the rows of files that their texts came from, and followed from a
source row, or a document, into every artifact below a data root.

Traced tokens are held against the text, encoded again. Memory: an index, the row, and one block of each file on the
way.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.build.rows import source_row
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.store import (
    Fate,
    Part,
    Row,
    RowStore,
    Source,
    UpstreamRow,
    encode_document,
    reject_summary,
)
from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.artifact import Artifact, open_artifact, read_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.ledger import Reject
from pipeline_assets.spine.lineage import Lineage

_TOKENS_AROUND = 24
_SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class Token:
    """One token of a token file.

    Attributes:
        position: in the file, from 0.
        number: in its document, from 0.
        text: its own, as `before` and `after`, the text of the tokens around it in its document; bytes that are part of
            a character only are replacement characters.
        byte_offset: where it begins in the UTF-8 of the document's text; the end of the document lies behind its last
            byte. None where the tokenizer doesn't tell.
        line: of the document's text, from 1, on which it begins. None where the tokenizer doesn't tell.
        hex: its bytes; empty for the end, which stands for none; None where the tokenizer doesn't tell.
    """

    position: int
    number: int
    id: int
    text: str
    is_end_of_document: bool
    before: str
    after: str
    byte_offset: int | None
    line: int | None
    hex: str | None


@dataclass(frozen=True)
class Text:
    """Where the text of a document lies: in the artifact that was asked, or in the corpus that it was made from; and
    files of further artifacts that this was made of, each with the row in it, back to the first one.
    """

    store: RowStore
    part: Part
    source: Source
    derivation: tuple[tuple[Path, int], ...] = ()

    @property
    def beginning(self) -> str:
        """How it begins; of a conversation, what is asked first."""
        return self.store.beginning(self.part.text)[:_SHOWN_CHARACTERS]


@dataclass(frozen=True)
class TracedRow:
    """A document of an artifact back to its source: its parts that were asked for, each with its row; its text; the
    token that was asked for, if one was; and what else is to be said of it, as JSON has it.
    """

    store: RowStore
    places: Sequence[tuple[Row, Part]]
    text: Text
    token: Token | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


def trace_row(store: RowStore, number: int) -> list[TracedRow]:
    """Where the parts of a row came from, in their order. Raises UsageError where there is no such row; InputError
    where what it was made from is gone, or says another thing, or a file is damaged.
    """
    row = store.row_at(number)
    return [_traced(store, [(row, part)], None, not store.holds_several) for part in row.parts]


def trace_token(store: RowStore, position: int) -> TracedRow:
    """Where one token of a token file came from. Errors as `trace_row`."""
    row = store.row_at(store.row_of_token(position))
    column = position - (row.first_token or 0)
    part = next((one for one in row.parts if one.column <= column < one.column + (one.tokens or 0)), None)
    if part is None:
        tokens, first = len(row.ids) if row.ids is not None else 0, row.first_token or 0
        what = f"token {position:,} is padding: row {row.number:,} has {tokens:,} tokens of documents"
        raise UsageError(what, store.artifact.folder, f"give {first:,} to {first + tokens - 1:,}")
    return _traced(store, [(row, part)], position, not store.holds_several)


def trace_id(store: RowStore, row_id: str) -> list[TracedRow]:
    """Where a document came from, and every place where it is; several where sources have one id. Errors as
    `trace_row`.
    """
    places: dict[str, list[tuple[Row, Part]]] = {}
    for number in store.find(row_id):
        row = store.row_at(number)
        for part in row.parts:
            if part.id == row_id:
                places.setdefault(part.source, []).append((row, part))
    if not places:
        what, fix = store.missing_message(row_id)
        raise UsageError(what, store.artifact.folder, fix)
    return [_traced(store, of_source, None, True) for of_source in places.values()]


def _traced(store: RowStore, places: Sequence[tuple[Row, Part]], position: int | None, with_figures: bool) -> TracedRow:
    text = _row_text(store, places[0][1])
    token, tokenizer = None, store.tokenizer
    if tokenizer is not None:
        ids = encode_document(tokenizer, text.part.text)
        for row, part in places:
            tokens = part.tokens or 0
            own = row.ids[part.column : part.column + tokens] if row.ids is not None else ids[:0]
            if not np.array_equal(own, ids[part.start : part.start + tokens]):
                what = (
                    f"row {row.number:,} doesn't hold the tokens of document {part.id!r} from column {part.column:,} on"
                )
                raise InputError(what, store.artifact.folder, "run `corpusmill verify --upstream` on it")
        if position is not None:
            [(row, part)] = places
            number = part.start + position - (row.first_token or 0) - part.column
            token = _token(tokenizer, ids, number, position)
    return TracedRow(store, places, text, token, store.figures(places[0][1]) if with_figures else {})


def _row_text(store: RowStore, part: Part) -> Text:
    """Where the text of a part lies, and where that came from. Raises InputError where another document is upstream."""
    home, own, row_id = store, part, store.upstream_id(part)
    made_of: list[tuple[Path, int]] = []
    origin = store.origin(part)
    while isinstance(origin, UpstreamRow):
        made_from = origin.part()
        where = origin.store.artifact.folder / made_from.shard
        if made_from.id != row_id:
            what = f"row {part.shard_row} is document {made_from.id!r}, {store.artifact.folder} has {part.id!r} from it"
            raise InputError(what, where, "run `corpusmill verify` on both")
        if home.holds_tokens:
            home, own = origin.store, made_from
        else:
            made_of.append((where, made_from.shard_row))
        origin = origin.store.origin(made_from)
    return Text(home, own, origin, tuple(made_of))


def _token(tokenizer: Tokenizer, ids: NDArray[np.int32], number: int, position: int) -> Token:
    """The token of a document with this number, which the token file has at this position."""
    is_end, byte_offset, line, own = number == len(ids) - 1, None, None, None
    if isinstance(tokenizer, Encoder):
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


@dataclass(frozen=True)
class FollowedRow:
    """A document, or a row that became none, in what was read from its source, and in all that was made of that.

    Attributes:
        fate, part: in the store of what reads the source; no part where no document is there.
        rejects: rows of its id that were rejected there; of a row of a source nothing is looked for.
        downstream: Its fates in downstream artifacts, in build order, then by folder.
    """

    store: RowStore
    fate: Fate
    part: Part | None
    rejects: Sequence[Reject] = ()
    downstream: Sequence[tuple[RowStore, Fate]] = ()


def follow_source(stores: RowStores, source: source_row.AnyRow) -> list[FollowedRow]:
    """What became of a source row, in everything below the data root that was read from a source that lists its file.
    Raises InputError where no source does, or none that something was made from, or an artifact is damaged.
    """
    lineage = stores.lineage
    if lineage.unreadable:
        raise next(iter(lineage.unreadable.values()))
    listings = list(_listings(lineage))
    listing_it = [
        (one, file)
        for one in listings
        if (file := source_row.input_file_name(one.manifest, source, lineage.root)) is not None
    ]
    found = [
        _follow(stores, store, source_row.SourceListing(one, store.artifact, lineage.root), file, source)
        for one, file in listing_it
        for store in _readers(stores, one)
    ]
    if found:
        return found
    if listing_it:
        what = f"{listing_it[0][0].folder} lists this file, and no documents were made from it yet"
        raise InputError(what, source.file, "build its recipe with `corpusmill run`")
    known = sorted({source_row.source_name(one.manifest, lineage.root) for one in listings})
    fix = f"those there are of {', '.join(known)}" if known else "give the data root of a build with --data"
    raise InputError(f"no source below {lineage.root} lists this file", source.file, fix)


def follow_document(stores: RowStores, row_id: str) -> Iterator[FollowedRow]:
    """Every document of an id that was read from a source below the data root, and what became of it. Raises InputError
    where an artifact there is damaged.
    """
    for folder, one in stores.lineage.sealed.items():
        kind = stores.kinds.get(one.kind)
        if kind is None or kind.rows is None or not kind.rows.reads_sources:
            continue
        store = kind.rows(open_artifact(folder), stores.lineage)
        rejects = [reject for reject in store.rejects() if reject.detail == row_id]
        numbers = store.find(row_id)
        if numbers:
            yield _followed(stores, store, numbers[0], "document", rejects)
        elif rejects:
            yield FollowedRow(store, Fate(store.artifact, "rejected", reject_summary(rejects[0])), None, rejects)


def _listings(lineage: Lineage) -> Iterator[Artifact]:
    """What lists files that rows are read from."""
    for folder, one in lineage.sealed.items():
        has_files = any("bytes" in entry for entry in one.identity.inputs)
        if has_files and one.identity.stage.name != EVALUATION_STAGE.name:
            manifest = read_manifest(folder)
            if manifest is not None:
                yield Artifact(folder, manifest)


def _readers(stores: RowStores, listing: Artifact) -> Iterator[RowStore]:
    """What was read from the files that a manifest lists: itself, or made from it under its own name."""
    lineage, digest = stores.lineage, listing.manifest.digest
    made = [
        folder for folder, one in lineage.downstream(digest) if lineage.folder_for(digest, one.name) == listing.folder
    ]
    for folder in (listing.folder, *made):
        store = stores.for_artifact(open_artifact(folder))
        if store is not None and store.reads_sources:
            yield store


def _follow(
    stores: RowStores, store: RowStore, listing: source_row.SourceListing, file: str, source: source_row.AnyRow
) -> FollowedRow:
    def report_loss(outcome: str, detail: str) -> FollowedRow:
        return FollowedRow(store, Fate(store.artifact, outcome, detail), None)

    if isinstance(source, source_row.FileRow) and source.line is not None:
        here = listing.row(file, source.row)
        if isinstance(here, source_row.FileRow) and here.has_changed:
            fix = f"name a row by the bytes before it then, {source.path}#ROW, or run the recipe again"
            raise InputError("it has changed since it was read: its lines are others now", source.path, fix)
    is_read_in_part = any("row_groups" in entry for entry in listing.artifact.manifest.identity.inputs)
    if isinstance(source, source_row.SourceRow) and is_read_in_part:
        unread = source_row.unread_reason(listing.file_entry(file), source.row)
        if unread is not None:
            return report_loss("not_read", unread)
    found = store.find_source(file, source.row)
    if found is not None:
        number, is_part = found
        return _followed(stores, store, number, "merged" if is_part else "document")
    aside = store.find_reject(file, source.row)
    if aside is not None:
        return report_loss(aside[0], reject_summary(aside[1]))
    ledger = store.artifact.manifest.identity.ledger
    rules = " or ".join(f"`{rule}`" for rule in ledger.dropped) or "a rule that the ledger doesn't name"
    if is_read_in_part or (ledger.dropped and source.row < ledger.rows_in):
        return report_loss("dropped", f"by {rules}")
    if ledger.dropped:
        return report_loss("no_row", f"the file has rows 0 to {ledger.rows_in - 1:,}")
    place_told = "a row is named by its `source_row`: in files of lines the bytes before it"
    return report_loss("no_row", f"none begins there; {place_told}")


def _followed(
    stores: RowStores, store: RowStore, number: int, outcome: str, rejects: Sequence[Reject] = ()
) -> FollowedRow:
    line = UpstreamRow(store, number)
    part = line.part()
    place = {"shard": part.shard, "shard_row": part.shard_row}
    fate = Fate(store.artifact, outcome, place=place, row=number)
    return FollowedRow(store, fate, part, rejects, [*_downstream_fates(stores, line), *_unknown_fates(stores)])


def _unknown_fates(stores: RowStores) -> Iterator[tuple[RowStore, Fate]]:
    """Of what was made of nothing but artifacts that have no rows and are gone, nobody can say what it read."""
    lineage = stores.lineage
    for folder, one in lineage.sealed.items():
        upstream = one.identity.upstream
        if not upstream or any(entry["digest"] in lineage for entry in upstream):
            continue
        kinds = [stores.kinds.get("/".join(entry["name"].split("/")[:2])) for entry in upstream]
        if all(kind is not None and kind.rows is None for kind in kinds):
            store = stores.for_artifact(open_artifact(folder))
            if store is not None and not store.reads_sources:
                gone = upstream[0]
                yield store, Fate(store.artifact, "unknown", f"its {gone['name']} {gone['digest']} is gone")


def _downstream_fates(stores: RowStores, line: UpstreamRow) -> Iterator[tuple[RowStore, Fate]]:
    """What became of a line in all that was made of its artifact, each once, wherever it came by."""
    waiting, seen = [line], set[Path]()
    while waiting:
        line = waiting.pop(0)
        part = line.part()
        for store in _downstream_artifacts(stores, line.store.artifact):
            fate = store.fate(part) if store.artifact.folder not in seen else None
            if fate is not None:
                seen.add(store.artifact.folder)
                yield store, fate
                if fate.row is not None and not store.holds_tokens:
                    waiting.append(UpstreamRow(store, fate.row))


def _downstream_artifacts(stores: RowStores, artifact: Artifact) -> Iterator[RowStore]:
    """What was made of an artifact under its own name and has rows; beyond what has none, what was made of that."""
    lineage = stores.lineage
    for folder, one in lineage.downstream(artifact.manifest.digest):
        if lineage.folder_for(artifact.manifest.digest, one.name) not in (artifact.folder, None):
            continue
        made = open_artifact(folder)
        store = stores.for_artifact(made)
        if store is not None:
            yield store
        else:
            yield from _downstream_artifacts(stores, made)
