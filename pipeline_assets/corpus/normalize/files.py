"""The stage `normalize` for files of Wikipedia extractions, JSON lines, Parquet and text: runs of pieces as shards."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from pipeline_assets.corpus.document import DeriveId
from pipeline_assets.corpus.document_shards import ShardWriter, read_rejects
from pipeline_assets.corpus.licences import LicenceTable, licence_table
from pipeline_assets.corpus.normalize.converted import (
    NO_SUCH_COLUMN,
    WITHOUT_VALUES,
    Converted,
    Row,
    RowMap,
    columns_without_values,
    convert_shards,
    local_doc_id,
    no_derived_id,
    noting_columns,
    write_outcomes,
)
from pipeline_assets.corpus.normalize.sources import FileSource, LocalSource, StackExchangeSource, WikipediaSource
from pipeline_assets.corpus.normalize.threads import convert_site
from pipeline_assets.corpus.readers.columns import Fault, LicensedColumns, SourceLabels
from pipeline_assets.corpus.readers.lines import reject_words, row_words
from pipeline_assets.corpus.readers.local import TEXT_COLUMNS, LocalRecipe, Piece, piece_rows, plan_local
from pipeline_assets.corpus.readers.source_folder import (
    ByteRange,
    SourceFile,
    SourceFolder,
    byte_ranges,
    files_of,
    format_of,
)
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.corpus.readers.wikipedia_pages import PageLedger, count_pages
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.checks import Verdict
from pipeline_assets.corpus.spine.engine import RunSettings, settings_for
from pipeline_assets.corpus.spine.errors import IN_RECIPE, UsageError, key
from pipeline_assets.corpus.spine.ledger import Ledger, Reject
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.worker import Window, grouped_by_size

Read = Callable[[Piece], Iterator[Row]]
TITLE_ONLY = "title_only"
_TIMES_PACKED = 4


@dataclass(frozen=True)
class PieceShard:
    """Consecutive pieces that become one Document shard. `rows` aren't known before they are read."""

    name: str
    pieces: tuple[Piece, ...]
    rows: int = 0


def convert_files(
    building: StagingDir,
    folder: SourceFolder,
    listing: Manifest,
    source: FileSource,
    shard_bytes: int,
    settings: RunSettings,
) -> Converted:
    """The files of a source, by its kind.

    Args:
        folder: where they lie, its path absolute.
        listing: has their names and hashes.

    Raises:
        UsageError: a StackExchange source has more than one file; others from `convert_local`.
        InputError: files are not as they are listed, before or after; others from the readers.
    """
    files, licences = files_of(folder, listing), licence_table()
    settings = settings_for(building, settings, _TIMES_PACKED * sum(file.bytes for file in files))
    match source:
        case WikipediaSource():
            converted = convert_wikipedia(building, files, source, shard_bytes, licences, settings)
        case LocalSource():
            converted = convert_local(building, files, source, shard_bytes, licences, settings)
        case StackExchangeSource():
            if len(files) != 1:
                names = ", ".join(file.name for file in files[:3])
                what = f"{len(files)} files match, and a source is one site: {names}"
                raise UsageError(what, folder.path, "write a source for each of them")
            converted = convert_site(building, files[0], source, shard_bytes, licences, settings)
        case _:
            assert_never(source)
    files_of(folder, listing)  # else they were written to while they were read
    return converted


def convert_local(
    building: StagingDir,
    files: Sequence[SourceFile],
    recipe: LocalRecipe,
    shard_bytes: int,
    licences: LicenceTable,
    settings: RunSettings,
) -> Converted:
    """Files of JSON lines, Parquet or text.

    Raises:
        UsageError: no row has a column of text by the recipe's name.
        UsageError, InputError: from `plan_local` and `read_piece`.
    """
    shards = piece_shards(plan_local(files, recipe, shard_bytes), shard_bytes)
    read = functools.partial(read_piece, recipe=recipe)
    return convert_rows(building, files, shards, read, recipe.source, recipe.columns, licences, settings)


def convert_rows(
    building: StagingDir,
    files: Sequence[SourceFile],
    shards: Sequence[PieceShard],
    read: Read,
    source: str,
    columns: LicensedColumns | None,
    licences: LicenceTable,
    settings: RunSettings,
) -> Converted:
    """Files of rows whose columns a recipe names.

    Args:
        read: Documents and Rejects of a piece, such as `mapped_rows` makes of its rows.
        columns: None where rows have none, but are texts.
    Raises:
        UsageError: no row has a column of text by the recipe's name.
        InputError: from `read`.
    """
    derive_id = functools.partial(local_doc_id, source)
    work = functools.partial(
        normalize_pieces,
        read=read,
        derive_id=derive_id,
        licences=licences,
        zstd_level=settings.zstd_level,
        columns=columns,
    )
    named = convert_shards(building, work, shards, settings)
    counts = total_counts(named.values())
    if columns is not None and not counts.get("documents"):
        _refuse_missing_text(building, list(named.values()), columns.text, files)
    missing = columns_without_values(columns, counts) if columns else []
    return Converted(named, derive_id, {WITHOUT_VALUES: missing} if missing else {}, words=reject_words(files))


def _refuse_missing_text(
    building: StagingDir, receipts: Sequence[Receipt], column: str, files: Sequence[SourceFile]
) -> None:
    """
    Raises:
        UsageError: of rows without a single document, one has no such column (names those it has).
    """
    without = (reject for reject in read_rejects(building, receipts) if reject.detail.startswith(NO_SUCH_COLUMN))
    first = next(without, None)
    if first is not None:
        there = first.detail.removeprefix(NO_SUCH_COLUMN)
        place = row_words(first.file, first.row, next((file for file in files if file.name == first.file), None))
        what = f"no row has a text in a column `{column}`; {place} of {first.file} has {there}"
        fix = f"set {key('columns.text', IN_RECIPE)} to the column that holds the text"
        raise UsageError(what, building.target, fix)


def convert_wikipedia(
    building: StagingDir,
    files: Sequence[SourceFile],
    recipe: WikipediaRecipe,
    shard_bytes: int,
    licences: LicenceTable,
    settings: RunSettings,
) -> Converted:
    """Files of an extraction. Pages in, counted apart, are articles and rejects out.

    Raises:
        InputError: from `read_wikipedia`; there is no page, or pages are lost.
    """
    pieces = [piece for file in files for piece in byte_ranges(file, shard_bytes)]
    shards = piece_shards(pieces, shard_bytes)
    read = functools.partial(_read_pages, recipe=recipe)
    work = functools.partial(
        normalize_pieces,
        read=read,
        derive_id=no_derived_id,
        licences=licences,
        zstd_level=settings.zstd_level,
        counts_pages=True,
    )
    named = convert_shards(building, work, shards, settings)
    page_ledger(total_counts(named.values())).check(building.target)
    return Converted(named, no_derived_id, {}, expected_rejects=frozenset({TITLE_ONLY}), words=reject_words(files))


def page_ledger(counts: Mapping[str, int]) -> PageLedger:
    """Pages against what became of them."""
    ledger = Ledger.of(counts)
    return PageLedger(counts.get("pages", 0), ledger.out, ledger.all_rejected)


def read_piece(piece: Piece, recipe: LocalRecipe) -> Iterator[Row]:
    """A Document or a Reject for every row that begins in the piece, in file order.

    Raises:
        InputError: the file can't be trusted: cut off, damaged, changed since it was planned.
    """
    columns = TEXT_COLUMNS if format_of(piece.file.name) == "text" else recipe.columns
    assert columns is not None, "plan_local checks it"
    return mapped_rows(piece, piece_rows(piece, recipe), columns, recipe)


def mapped_rows(
    piece: Piece, rows: Iterable[tuple[int, dict[str, Any] | Fault]], columns: LicensedColumns, labels: SourceLabels
) -> Iterator[Row]:
    """(place, row or fault) of a piece as Documents and Rejects."""
    name = piece.file.name
    document = RowMap(columns, labels, name, functools.partial(local_doc_id, labels.source)).document
    for place, row in rows:
        yield Reject(name, place, row.reason, row.detail) if isinstance(row, Fault) else document(row, place)


def _read_pages(piece: Piece, recipe: WikipediaRecipe) -> Iterator[Row]:
    assert isinstance(piece, ByteRange)
    return read_wikipedia(piece, recipe)


def piece_shards(pieces: Iterable[Piece], shard_bytes: int) -> list[PieceShard]:
    """Runs of pieces, each closed by the one that brings it to `shard_bytes`; compressed files count fourfold."""
    groups = grouped_by_size(pieces, _unpacked_bytes, shard_bytes)
    return [PieceShard(f"{number:05d}", tuple(group)) for number, group in enumerate(groups)]


def normalize_pieces(
    shard: PieceShard,
    window: Window,
    folder: BuildFolder,
    read: Read,
    derive_id: DeriveId,
    licences: LicenceTable,
    zstd_level: int,
    columns: LicensedColumns | None = None,
    counts_pages: bool = False,
) -> Receipt:
    """One shard of files. Counts: as `ShardWriter`, and `rows` read.

    Args:
        columns: named by a recipe, of which it is noted whether they are there.
        counts_pages: of a Wikipedia extraction, whether `pages` are counted too, by their first lines alone.
        window: has no part in this: rows aren't known before they are read.
    Raises:
        InputError: from the reader.
    """
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for piece in shard.pieces:
            rows = noting_columns(read(piece), columns, derive_id, writer) if columns else read(piece)
            writer.count("rows", write_outcomes(rows, writer, derive_id, licences))
            if counts_pages and isinstance(piece, ByteRange):
                writer.count("pages", count_pages([piece]))
    return writer.receipt()


def _unpacked_bytes(piece: Piece) -> int:
    is_packed = isinstance(piece, ByteRange) and piece.stop is None
    return piece.bytes * (_TIMES_PACKED if is_packed else 1)


def pages_add_up(normalized: Artifact) -> Verdict:
    """Pages of a Wikipedia extraction, counted by their first lines alone, are articles and rejects."""
    counts = normalized.manifest.identity.counts
    if "pages" not in counts:
        return Verdict(True, "it is no Wikipedia extraction", applies=False)
    rejects = normalized.manifest.identity.ledger.all_rejected
    ledger = PageLedger(counts["pages"], counts["documents"], rejects)
    return Verdict(ledger.adds_up, str(ledger), {"pages": ledger.pages, "articles": ledger.articles})
