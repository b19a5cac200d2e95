"""The stage `normalize` for files of this machine: runs of their pieces as shards, or buckets of a site's threads."""

import functools
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import assert_never

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.licences import LICENCE_TEXT_BYTES, UNKNOWN, Licensed, licence_of_text, licence_table
from pipeline_assets.corpus.normalize.converted import (
    WITHOUT_VALUES,
    Converted,
    Row,
    RowMap,
    columns_without_values,
    convert_shards,
    count_found,
    local_doc_id,
    no_derived_id,
    write_outcomes,
)
from pipeline_assets.corpus.normalize.sources import FileSource, LocalSource, StackExchangeSource, WikipediaSource
from pipeline_assets.corpus.readers import source_folder
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.local import (
    TEXT_COLUMNS,
    LocalRecipe,
    Piece,
    check_first_rows,
    piece_rows,
    plan_local,
)
from pipeline_assets.corpus.readers.row_positions import reject_formatter
from pipeline_assets.corpus.readers.stackexchange import spill, threads
from pipeline_assets.corpus.readers.stackexchange.archive import is_archive
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.corpus.readers.wikipedia_pages import count_pages
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.engine import TIMES_PACKED, RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.files import read_error_text
from pipeline_assets.spine.ledger import Ledger, Reject, dropped_key
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.stage import Window, Work, grouped_by_size
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView, total_counts

_NO_QUESTION = "no_question"  # an answer to a question that was deleted
_TITLE_ONLY = "title_only"


def convert_files(
    building: StagingDir,
    folder: source_folder.SourceFolder,
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
        UsageError: a StackExchange source has more than one file; no row has a column of text by the recipe's name.
        InputError: files are not as they are listed, before or after; posts are lost; others from the readers.
    """
    files = source_folder.selected_files(folder, listing)
    match source:
        case WikipediaSource():
            converted = convert_wikipedia(building, files, source, shard_bytes, settings)
        case LocalSource():
            converted = convert_local(building, files, source, shard_bytes, settings)
        case StackExchangeSource():
            if len(files) != 1:
                names = ", ".join(file.name for file in files[:3])
                what = f"{len(files)} files match, and a source is one site: {names}"
                raise UsageError(what, folder.path, "write a source for each of them")
            converted = convert_site(building, files[0], source, shard_bytes, settings)
        case _:
            assert_never(source)
    source_folder.selected_files(folder, listing)  # else they were written to while they were read
    return converted


@dataclass(frozen=True)
class PieceShard:
    """Consecutive pieces that become one Document shard; `rows` aren't known."""

    name: str
    pieces: tuple[Piece, ...]
    rows: int = 0


def piece_shards(pieces: Iterable[Piece], shard_bytes: int) -> list[PieceShard]:
    """Runs of pieces, each closed by the one that brings it to `shard_bytes`; compressed files count fourfold."""
    groups = grouped_by_size(pieces, _unpacked_bytes, shard_bytes)
    return [PieceShard(f"{number:05d}", tuple(group)) for number, group in enumerate(groups)]


def _unpacked_bytes(piece: Piece) -> int:
    is_packed = isinstance(piece, source_folder.ByteRange) and piece.stop is None
    return piece.bytes * (TIMES_PACKED if is_packed else 1)


def _convert_pieces(
    building: StagingDir, pieces: Iterable[Piece], work: Work[PieceShard], shard_bytes: int, settings: RunSettings
) -> dict[str, Receipt]:
    """Receipts of the shards of a source's pieces, by name, in their order."""
    shards = piece_shards(pieces, shard_bytes)
    sizes = [sum(map(_unpacked_bytes, shard.pieces)) // TIMES_PACKED for shard in shards]
    return convert_shards(building, work, shards, limit_workers(building, settings, sizes))


_SHOWN = 3


def licences_by_folder(files: Iterable[source_folder.SourceFile]) -> dict[PurePosixPath, Licensed]:
    """What the licence files of each folder say.

    Raises:
        InputError: one can't be read, or is not as it was listed.
    """
    said: defaultdict[PurePosixPath, list[Licensed]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.name):
        said[PurePosixPath(file.name).parent].append(_document_licence(file))
    return {folder: _agreed(own) for folder, own in said.items()}


def _agreed(said: Sequence[Licensed]) -> Licensed:
    """What all licence files of a folder say; `unknown` where they differ: they may hold together, or be a choice."""
    if len({one.tag for one in said}) == 1:
        return said[0]
    shown = ", ".join(f"{one.evidence.removeprefix('file: ')} ({one.tag})" for one in said[:_SHOWN])
    return Licensed(UNKNOWN, f"file: {shown}" + ", …" * (len(said) > _SHOWN))


def _document_licence(file: source_folder.SourceFile) -> Licensed:
    with source_folder.open_source(file) as opened:
        try:
            text = io.BufferedReader(opened).read(LICENCE_TEXT_BYTES + 1)  # type: ignore[type-var]
        except OSError as error:
            raise RetryableError(read_error_text(error), file.path, "give back the file") from None
    evidence = f"file: {file.name}"
    if len(text) > LICENCE_TEXT_BYTES:
        return Licensed(UNKNOWN, evidence)
    return licence_of_text(text.decode("utf-8", errors="replace"), evidence)


def convert_local(
    building: StagingDir,
    files: Sequence[source_folder.SourceFile],
    recipe: LocalRecipe,
    shard_bytes: int,
    settings: RunSettings,
) -> Converted:
    """Files of JSON lines, Parquet or text, under the licences that files among them say."""
    columns, derive_id = recipe.columns, functools.partial(local_doc_id, recipe.source)
    licences = licences_by_folder(file for file in files if recipe.is_license_file(file.name))
    files = [file for file in files if not recipe.is_license_file(file.name)]
    work = functools.partial(normalize_local, recipe=recipe, licences=licences, zstd_level=settings.zstd_level)
    named = _convert_pieces(building, plan_local(files, recipe, shard_bytes), work, shard_bytes, settings)
    counts = total_counts(named.values())
    if columns is not None and not counts.get("documents"):
        check_first_rows(files, columns)
    missing = columns_without_values(columns, counts) if columns else []
    decisions = {WITHOUT_VALUES: missing} if missing else {}

    def is_of_an_empty_file(reject: Reject) -> bool:
        return recipe.detect_format(reject.file) == "text" and (reject.reason, reject.detail) == ("empty_text", "")

    return Converted(named, derive_id, decisions, is_of_an_empty_file, words=reject_formatter(files))


def normalize_local(
    shard: PieceShard,
    window: Window,
    folder: StagingView,
    recipe: LocalRecipe,
    licences: Mapping[PurePosixPath, Licensed],
    zstd_level: int,
) -> Receipt:
    """One shard of local files. Counts: as `ShardWriter`, and `rows` read."""
    found, derive_id = set[str](), functools.partial(local_doc_id, recipe.source)
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for piece in shard.pieces:
            rows = read_piece(piece, recipe, licences, found)
            writer.count("rows", write_outcomes(rows, writer, derive_id, licence_table()))
        count_found(found, writer)
    return writer.receipt()


def read_piece(
    piece: Piece,
    recipe: LocalRecipe,
    licences: Mapping[PurePosixPath, Licensed] | None = None,
    found: set[str] | None = None,
) -> Iterator[Row]:
    """A Document or a Reject for every row that begins in the piece, in file order.

    Args:
        licences: what the recipe's licence files say, by folder: that of the file, or the nearest above it, counts.
        found: as in `RowMap`.
    Raises:
        InputError: the file can't be trusted: cut off, damaged, changed since it was planned.
    """
    name = piece.file.name
    columns = TEXT_COLUMNS if recipe.detect_format(name) == "text" else recipe.columns
    assert columns is not None, "plan_local checks it"
    licensed = next((licences[above] for above in PurePosixPath(name).parents if licences and above in licences), None)
    derive_id = functools.partial(local_doc_id, recipe.source)
    document = RowMap(columns, recipe, name, derive_id, licensed, found).document
    for place, row in piece_rows(piece, recipe):
        yield row.to_reject(name, place) if isinstance(row, Fault) else document(row, place)


def convert_wikipedia(
    building: StagingDir,
    files: Sequence[source_folder.SourceFile],
    recipe: WikipediaRecipe,
    shard_bytes: int,
    settings: RunSettings,
) -> Converted:
    """Files of an extraction. Pages in, counted apart, are articles and rejects out."""
    work = functools.partial(normalize_pages, recipe=recipe, zstd_level=settings.zstd_level)
    pieces = (piece for file in files for piece in source_folder.split_byte_ranges(file, shard_bytes))
    named = _convert_pieces(building, pieces, work, shard_bytes, settings)
    if not total_counts(named.values()).get("pages"):
        fix = "extract again: wikiextractor finds pages only where each element of the dump is on a line of its own"
        raise InputError("there is no page in the whole extraction", building.target, fix)
    return Converted(
        named, no_derived_id, {}, lambda reject: reject.reason == _TITLE_ONLY, words=reject_formatter(files)
    )


def normalize_pages(
    shard: PieceShard, window: Window, folder: StagingView, recipe: WikipediaRecipe, zstd_level: int
) -> Receipt:
    """One shard of an extraction. Counts: as `ShardWriter`, `rows` read, and `pages`, by their first lines alone."""
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for piece in shard.pieces:
            assert isinstance(piece, source_folder.ByteRange)
            rows = read_wikipedia(piece, recipe)
            writer.count("rows", write_outcomes(rows, writer, no_derived_id, licence_table()))
            writer.count("pages", count_pages(piece))
    return writer.receipt()


def pages_add_up(normalized: Artifact) -> Verdict:
    """Pages of a Wikipedia extraction, counted by their first lines alone, are articles and rejects."""
    identity = normalized.manifest.identity
    if "pages" not in identity.counts:
        return Verdict(True, "it is no Wikipedia extraction", applies=False)
    pages, articles, rejects = identity.counts["pages"], identity.counts["documents"], identity.ledger.total_rejected
    told = f"{pages:,} pages in = {articles:,} articles + {rejects:,} rejected"
    return Verdict(0 < pages == articles + rejects, told, {"pages": pages, "articles": articles})


def convert_site(
    building: StagingDir,
    file: source_folder.SourceFile,
    recipe: threads.SiteRecipe,
    bucket_bytes: int,
    settings: RunSettings,
) -> Converted:
    """A site's dump in two passes: rows sorted by question into runs, then a bucket of questions at a time."""
    size = file.bytes if is_archive(file.path) else file.bytes // TIMES_PACKED

    def file_settings(shards: Sequence[object]) -> RunSettings:
        return limit_workers(building, settings, [size // len(shards)] * len(shards) if shards else [])

    parts = spill.plan_spill(file.path)
    spilled = list(run_stage("spill", spill.spill_rows, parts, building, file_settings(parts)))
    buckets = spill.plan_buckets(building, spilled, bucket_bytes)
    work = functools.partial(normalize_bucket, file=file.name, recipe=recipe, zstd_level=settings.zstd_level)
    named = convert_shards(building, work, buckets, file_settings(buckets))
    before, after = total_counts(spilled), total_counts(named.values())
    if before["spilled"] != after.get("rows", 0):
        what = f"{before['spilled']:,} posts were read, {after.get('rows', 0):,} came out"
        raise InputError(what, file.path, "report the file: the reader is wrong")
    others = {dropped_key(reason): count for reason, count in Ledger.from_counts(before).dropped.items()}
    uncounted = others | {"rows": before["rows"] - before["spilled"]}
    return Converted(named, no_derived_id, {}, lambda reject: reject.reason == _NO_QUESTION, uncounted)


def normalize_bucket(
    bucket: spill.Bucket, window: Window, folder: StagingView, file: str, recipe: threads.SiteRecipe, zstd_level: int
) -> Receipt:
    """One bucket. Counts: as `ShardWriter`, `rows`, which are posts, and `merged`, answers in their question's text."""
    with ShardWriter(folder, bucket.name, zstd_level) as writer:
        outcomes = _counting_answers(threads.read_threads(bucket, file, recipe, window), writer)
        writer.count("rows", write_outcomes(outcomes, writer, no_derived_id, licence_table()))
        writer.count("rows", writer.counts.get("merged", 0))
    return writer.receipt()


def _counting_answers(outcomes: Iterator[threads.Outcome], writer: ShardWriter) -> Iterator[threads.Outcome]:
    for outcome in outcomes:
        if isinstance(outcome, Document):
            writer.count("merged", len(outcome.meta.columns()["answers"]))
        yield outcome
