"""Fates of source rows and documents, such as `dropped`, in all artifacts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.row_values import Fate, Part, reject_summary
from pipeline_assets.build.rows.source_listing import SourceListing, input_file_name, source_name, unread_reason
from pipeline_assets.build.rows.source_row import AnySourceRow, HubRow, LocalRow
from pipeline_assets.build.rows.store import RowStore, UpstreamRow
from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.readers.row_positions import has_numbered_rows
from pipeline_assets.corpus.readers.source_folder import input_folder_path
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.rejects import Reject


@dataclass(frozen=True)
class FollowedRow:
    """A source row or document, with its fates in a corpus and downstream."""

    store: RowStore  # rows of the corpus that was read from the source files
    fate: Fate  # fate in this corpus
    part: Part | None  # document in this corpus; None if no document came from the source row
    rejects: Sequence[Reject] = ()  # with the document's id in this corpus; empty if a source row is followed
    downstream: Sequence[tuple[RowStore, Fate]] = ()  # fates in downstream artifacts, nearest first; unknown last


def follow_source(stores: RowStores, source_row: AnySourceRow) -> list[FollowedRow]:
    """Follow a source row into all artifacts that are derived from its file.

    Raise UsageError if no source lists the file, and InputError if no corpus was built from the file (scored pools are
    not corpora), or if an artifact is damaged.
    """
    lineage = stores.lineage
    if lineage.manifest_errors:
        raise next(iter(lineage.manifest_errors.values()))
    listings = list(_find_listings(lineage))
    names_in_listings = ((listing, input_file_name(listing.manifest, source_row, lineage.root)) for listing in listings)
    matches = [(listing, file) for listing, file in names_in_listings if file is not None]
    followed = [
        _follow_in_corpus(stores, store, SourceListing(listing, store.artifact, lineage.root), file, source_row)
        for listing, file in matches
        for store in _find_corpora(stores, listing)
    ]
    if followed:
        return followed
    for folder in (folder for listing, _ in matches for folder, _ in lineage.downstream(listing.manifest.digest)):
        if stores.for_artifact(open_artifact(folder)) is not None:
            what = "rows of scored pools are only traced backwards"
            raise InputError(what, source_row.file, f"trace rows of {folder} with --row")
    if matches:
        what = f"{matches[0][0].folder} lists this file, but no documents were built from it yet"
        raise InputError(what, source_row.file, "build its recipe with `corpusmill run`")
    names = sorted({source_name(listing.manifest, lineage.root) for listing in listings})
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    fix = f"known sources: {', '.join(names[:5])}{more}" if names else "pass the data root of a build with --data"
    raise UsageError(f"no source below {lineage.root} lists this file", source_row.file, fix)


def source_files(lineage: Lineage) -> Iterator[Path]:
    """Yield the paths of the files of local sources."""
    for listing in _find_listings(lineage):
        folder = input_folder_path(listing.manifest, lineage.root)
        if folder is not None:
            yield from (folder / entry["name"] for entry in listing.manifest.identity.inputs)


def follow_document(stores: RowStores, row_id: str) -> Iterator[FollowedRow]:
    """Follow the document `row_id` downstream from each corpus read from source files.

    If a corpus has the id only in rejected rows, the result lists these rejects. Corpora without the id are skipped.
    """
    for store in stores.source_row_stores():
        rejects = [reject for reject in store.rejects() if reject.detail == row_id]
        numbers = store.find(row_id)
        if numbers:
            yield _follow_downstream(stores, store, numbers[0], "document", rejects)
        elif rejects:
            yield FollowedRow(store, Fate(store.artifact, "rejected", reject_summary(rejects[0])), None, rejects)


def _find_listings(lineage: Lineage) -> Iterator[Artifact]:
    """Yield the artifacts that list input files, except evaluation sets."""
    for folder, manifest in lineage.manifests.items():
        has_files = any("bytes" in entry for entry in manifest.identity.inputs)
        if has_files and manifest.identity.stage.name != EVALUATION_STAGE.name:
            yield Artifact(folder, manifest)


def _find_corpora(stores: RowStores, listing: Artifact) -> Iterator[RowStore]:
    """Yield the corpora that were read from the files of a listing."""
    lineage, digest = stores.lineage, listing.manifest.digest
    folders = [
        folder
        for folder, entry in lineage.downstream(digest)
        if lineage.folder_for(digest, entry.name) == listing.folder
    ]
    for folder in (listing.folder, *folders):
        store = stores.for_artifact(open_artifact(folder))
        if store is not None and store.reads_sources:
            yield store


def _follow_in_corpus(
    stores: RowStores, store: RowStore, listing: SourceListing, file: str, source_row: AnySourceRow
) -> FollowedRow:
    def lost_row(outcome: str, detail: str) -> FollowedRow:
        return FollowedRow(store, Fate(store.artifact, outcome, detail), None)

    if isinstance(source_row, LocalRow) and source_row.line is not None:
        current = listing.row_address(file, source_row.row)
        if isinstance(current, LocalRow) and current.has_changed:
            what = "file changed after it was read; its line numbers are no longer valid"
            fix = f"write {source_row.path}#ROW with the bytes before the row in the old file, or run the recipe again"
            raise InputError(what, source_row.path, fix)
    is_read_in_part = any("row_groups" in entry for entry in listing.artifact.manifest.identity.inputs)
    if isinstance(source_row, HubRow) and is_read_in_part:
        unread = unread_reason(listing.file_entry(file), source_row.row)
        if unread is not None:
            return lost_row("not_read", unread)
    match = store.find_by_source(file, source_row.row)
    if match is not None:
        number, is_part = match
        return _follow_downstream(stores, store, number, "merged" if is_part else "document")
    reject = store.find_reject(file, source_row.row)
    if reject is not None:
        return lost_row(reject[0], reject_summary(reject[1]))
    ledger = store.artifact.manifest.identity.ledger
    rules = " or ".join(f"`{rule}`" for rule in ledger.dropped) or "a rule that the ledger does not name"
    is_numbered = is_read_in_part or has_numbered_rows(file)
    if is_read_in_part or (ledger.dropped and (not is_numbered or source_row.row < ledger.rows_in)):
        return lost_row("dropped", f"by {rules}{'' if is_numbered else ', if a row begins at this byte'}")
    if ledger.dropped:
        return lost_row("no_row", f"the source has {pluralize(ledger.rows_in, 'row')}")
    hint = "`source_row` names a row, in files of lines by the bytes before it"
    return lost_row("no_row", f"no row begins there; {hint}")


def _follow_downstream(
    stores: RowStores, store: RowStore, row_number: int, outcome: str, rejects: Sequence[Reject] = ()
) -> FollowedRow:
    """Return a corpus row, its fate `outcome` in the corpus, and its fates downstream."""
    row = UpstreamRow(store, row_number)
    part = row.part()
    place = {"shard": part.shard, "shard_row": part.shard_row}
    fate = Fate(store.artifact, outcome, place=place, row_number=row_number)
    return FollowedRow(store, fate, part, rejects, [*_downstream_fates(stores, row), *_unknown_fates(stores)])


def _unknown_fates(stores: RowStores) -> Iterator[tuple[RowStore, Fate]]:
    """Yield the fate `unknown` for artifacts that cannot be linked to their corpora.

    All inputs of such an artifact are missing, and are of kinds without rows. If the kind of a missing input has rows,
    `find_unsearchable` reports the artifact instead.
    """
    lineage = stores.lineage
    for folder, summary in lineage.manifests.items():
        upstream = summary.identity.upstream
        if not upstream or any(entry["digest"] in lineage for entry in upstream):
            continue
        kinds = [stores.kinds.get("/".join(entry["name"].split("/")[:2])) for entry in upstream]
        if all(kind is not None and kind.row_store_class is None for kind in kinds):
            store = stores.for_artifact(open_artifact(folder))
            if store is not None and not store.reads_sources:
                missing = upstream[0]
                detail = f"its upstream {missing['name']} {missing['digest']} is missing"
                yield store, Fate(store.artifact, "unknown", detail)


def _downstream_fates(stores: RowStores, row: UpstreamRow) -> Iterator[tuple[RowStore, Fate]]:
    """Yield a row's fate in each downstream artifact once, nearest artifacts first."""
    queue, seen = [row], set[Path]()
    while queue:
        row = queue.pop(0)
        part = row.part()
        for store in _downstream_stores(stores, row.store.artifact):
            fate = store.fate(part) if store.artifact.folder not in seen else None
            if fate is not None:
                seen.add(store.artifact.folder)
                yield store, fate
                if fate.row_number is not None and not store.holds_tokens:
                    queue.append(UpstreamRow(store, fate.row_number))


def _downstream_stores(stores: RowStores, artifact: Artifact) -> Iterator[RowStore]:
    """Yield the row stores of the nearest downstream artifacts that have rows."""
    lineage = stores.lineage
    for folder, entry in lineage.downstream(artifact.manifest.digest):
        if lineage.folder_for(artifact.manifest.digest, entry.name) not in (artifact.folder, None):
            continue
        downstream = open_artifact(folder)
        store = stores.for_artifact(downstream)
        if store is not None:
            yield store
        else:
            yield from _downstream_stores(stores, downstream)
