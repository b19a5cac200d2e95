"""What became of a row of a source, or of a document, in every artifact below a data root."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.rows.source_row import (
    AnyRow,
    FileRow,
    SourceListing,
    SourceRow,
    file_of,
    name_of,
    why_not_read,
)
from pipeline_assets.corpus.rows.store import Fate, Line, Part, RowStore, reason_of
from pipeline_assets.corpus.rows.trace import rows_of
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact, read_manifest
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Reject
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.systems.registry import KINDS


@dataclass(frozen=True)
class Followed:
    """A document, or a row that became none, in what was read from its source, and in all that was made of that.

    Attributes:
        fate, part: in the store of what reads the source; no part where no document is there.
        rejects: rows of its id that were rejected there; of a row of a source nothing is looked for.
        below: what became of it further on, in the order in which artifacts were made of one another, then by folder.
    """

    store: RowStore
    fate: Fate
    part: Part | None
    rejects: Sequence[Reject] = ()
    below: Sequence[tuple[RowStore, Fate]] = ()


def follow_source(lineage: Lineage, source: AnyRow) -> list[Followed]:
    """What became of a source row, in everything below the data root that was read from a source that lists its file.
    Raises InputError where no source does, or none that something was made from, or an artifact is damaged.
    """
    if lineage.unreadable:
        raise next(iter(lineage.unreadable.values()))
    listings = list(_listings(lineage))
    listing_it = [(one, file) for one in listings if (file := file_of(one.manifest, source, lineage.root)) is not None]
    found = [
        _follow(lineage, store, SourceListing(one, store.artifact, lineage.root), file, source)
        for one, file in listing_it
        for store in _readers(lineage, one)
    ]
    if found:
        return found
    if listing_it:
        what = f"{listing_it[0][0].folder} lists this file, and no documents were made from it yet"
        raise InputError(what, source.file, "build its recipe with `corpusmill run`")
    known = sorted({name_of(one.manifest, lineage.root) for one in listings})
    fix = f"those there are of {', '.join(known)}" if known else "give the data root of a build with --data"
    raise InputError(f"no source below {lineage.root} lists this file", source.file, fix)


def follow_document(lineage: Lineage, row_id: str) -> Iterator[Followed]:
    """Every document of an id that was read from a source below the data root, and what became of it. Raises InputError
    where an artifact there is damaged.
    """
    for folder, one in lineage.sealed.items():
        kind = KINDS.get(one.kind)
        if kind is None or kind.rows is None or not kind.rows.reads_sources:
            continue
        store = kind.rows(open_artifact(folder), lineage)
        rejects = [reject for reject in store.rejects() if reject.detail == row_id]
        numbers = store.find(row_id)
        if numbers:
            yield _followed(lineage, store, numbers[0], "document", rejects)
        elif rejects:
            yield Followed(store, Fate(store.artifact, "rejected", reason_of(rejects[0])), None, rejects)


def _listings(lineage: Lineage) -> Iterator[Artifact]:
    """What lists files that rows are read from."""
    for folder, one in lineage.sealed.items():
        has_files = any(entry.bytes is not None for entry in one.identity.inputs)
        if has_files and one.identity.stage.name != EVALUATION_STAGE.name:
            manifest = read_manifest(folder)
            if manifest is not None:
                yield Artifact(folder, manifest)


def _readers(lineage: Lineage, listing: Artifact) -> Iterator[RowStore]:
    """What was read from the files that a manifest lists: itself, or made from it under its own name."""
    digest = listing.manifest.digest
    made = [folder for folder, one in lineage.made_of(digest) if lineage.place_of(digest, one.name) == listing.folder]
    for folder in (listing.folder, *made):
        store = rows_of(open_artifact(folder), lineage)
        if store is not None and store.reads_sources:
            yield store


def _follow(lineage: Lineage, store: RowStore, listing: SourceListing, file: str, source: AnyRow) -> Followed:
    def gone(outcome: str, detail: str) -> Followed:
        return Followed(store, Fate(store.artifact, outcome, detail), None)

    if isinstance(source, FileRow) and source.line is not None:
        here = listing.row(file, source.row)
        if isinstance(here, FileRow) and here.has_changed:
            fix = f"name a row by the bytes before it then, {source.path}#ROW, or run the recipe again"
            raise InputError("it has changed since it was read: its lines are others now", source.path, fix)
    is_read_in_part = any("row_groups" in entry for entry in listing.artifact.manifest.identity.inputs)
    if isinstance(source, SourceRow) and is_read_in_part:
        unread = why_not_read(listing.entry(file), source.row)
        if unread is not None:
            return gone("not_read", unread)
    found = store.find_source(file, source.row)
    if found is not None:
        number, is_part = found
        return _followed(lineage, store, number, "merged" if is_part else "document")
    aside = store.set_aside(file, source.row)
    if aside is not None:
        return gone(aside[0], reason_of(aside[1]))
    ledger = store.artifact.manifest.identity.ledger
    rules = " or ".join(f"`{rule}`" for rule in ledger.dropped) or "a rule that the ledger doesn't name"
    if is_read_in_part or (ledger.dropped and source.row < ledger.rows_in):
        return gone("dropped", f"by {rules}")
    if ledger.dropped:
        return gone("no_row", f"the file has rows 0 to {ledger.rows_in - 1:,}")
    place_told = "a row is named by its `source_row`: in files of lines the bytes before it"
    return gone("no_row", f"none begins there; {place_told}")


def _followed(lineage: Lineage, store: RowStore, number: int, outcome: str, rejects: Sequence[Reject] = ()) -> Followed:
    line = Line(store, number)
    part = line.part()
    place = {"shard": part.shard, "shard_row": part.shard_row}
    fate = Fate(store.artifact, outcome, place=place, row=number)
    return Followed(store, fate, part, rejects, [*_below(lineage, line), *_unknown(lineage)])


def _unknown(lineage: Lineage) -> Iterator[tuple[RowStore, Fate]]:
    """Of what was made of nothing but artifacts that have no rows and are gone, nobody can say what it read."""
    for folder, one in lineage.sealed.items():
        if not one.upstream or any(entry.digest in lineage for entry in one.upstream):
            continue
        kinds = [KINDS.get("/".join(entry.name.split("/")[:2])) for entry in one.upstream]
        if all(kind is not None and kind.rows is None for kind in kinds):
            store = rows_of(open_artifact(folder), lineage)
            if store is not None and not store.reads_sources:
                gone = one.upstream[0]
                yield store, Fate(store.artifact, "unknown", f"its {gone.name} {gone.digest} is gone")


def _below(lineage: Lineage, line: Line) -> Iterator[tuple[RowStore, Fate]]:
    """What became of a line in all that was made of its artifact, each once, wherever it came by."""
    waiting, seen = [line], set[Path]()
    while waiting:
        line = waiting.pop(0)
        part = line.part()
        for store in _made_of(lineage, line.store.artifact):
            fate = store.fate(part) if store.artifact.folder not in seen else None
            if fate is not None:
                seen.add(store.artifact.folder)
                yield store, fate
                if fate.row is not None and not store.holds_tokens:
                    waiting.append(Line(store, fate.row))


def _made_of(lineage: Lineage, artifact: Artifact) -> Iterator[RowStore]:
    """What was made of an artifact under its own name and has rows; beyond what has none, what was made of that."""
    for folder, one in lineage.made_of(artifact.manifest.digest):
        if lineage.place_of(artifact.manifest.digest, one.name) not in (artifact.folder, None):
            continue
        made = open_artifact(folder)
        store = rows_of(made, lineage)
        if store is not None:
            yield store
        else:
            yield from _made_of(lineage, made)
