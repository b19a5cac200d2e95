"""Stage `normalize` for local files.

Each shard converts consecutive pieces of the files. For Stack Exchange, each shard converts a range of question ids.
"""

import functools
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, assert_never

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.licence_texts import MAX_LICENCE_TEXT_BYTES, identify_licence
from pipeline_assets.corpus.licences import UNKNOWN, LicenceTag, licence_table
from pipeline_assets.corpus.normalize.converted import ConvertedSource, no_derived_id, write_outcomes
from pipeline_assets.corpus.normalize.misnamed_columns import columns_without_values, count_fields_with_values
from pipeline_assets.corpus.normalize.row_converter import DocumentOrReject, RowConverter
from pipeline_assets.corpus.normalize.sources import FileSource, LocalSource, StackExchangeSource, WikipediaSource
from pipeline_assets.corpus.normalize.stage import PieceShard, convert_pieces, convert_shards, piece_shards
from pipeline_assets.corpus.normalize.wikipedia import convert_wikipedia
from pipeline_assets.corpus.readers.local import (
    LocalRecipe,
    Piece,
    begins_file,
    check_first_rows,
    piece_rows,
    plan_local,
)
from pipeline_assets.corpus.readers.row_positions import reject_formatter
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, check_listed_files, open_source
from pipeline_assets.corpus.readers.source_formats import COLUMN_FORMATS
from pipeline_assets.corpus.readers.stackexchange import spill, threads
from pipeline_assets.corpus.readers.stackexchange.archive import is_archive
from pipeline_assets.corpus.readers.unreadable import UNREADABLE, UnreadableFiles, note_unreadable
from pipeline_assets.corpus.readers.whole_files import extractor_versions
from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.engine import COMPRESSION_RATIO, RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView, total_counts

_READABLE_SUFFIX = ".readable"  # of names of shards that are converted again, without unreadable files


def convert_files(
    staging: StagingDir,
    folder: SourceFolder,
    listing: Manifest,
    source: FileSource,
    shard_bytes: int,
    settings: RunSettings,
) -> ConvertedSource:
    """Convert a source's files to Document shards.

    The path of `folder` must be absolute. Raise InputError if a file differs from `listing` when the conversion
    starts or when it ends. Raise UsageError if a Stack Exchange source does not have exactly one file.
    """
    files = check_listed_files(folder, listing)
    match source:
        case WikipediaSource():
            converted = convert_wikipedia(staging, files, source, shard_bytes, settings)
        case LocalSource():
            converted = convert_local(staging, files, source, shard_bytes, settings)
        case StackExchangeSource():
            if len(files) != 1:
                names = ", ".join(file.name for file in files[:3])
                what = f"{len(files)} files match, expected one file of one site: {names}"
                raise UsageError(what, folder.path, "write a source for each file")
            converted = convert_site(staging, files[0], source, shard_bytes, settings)
        case _:
            assert_never(source)
    check_listed_files(folder, listing)  # raises if a file changed while it was read
    return converted


_MAX_NAMED_FILES = 3


def licences_by_folder(files: Iterable[SourceFile]) -> dict[PurePosixPath, LicenceTag]:
    """Map each folder that has licence files to its licence (see `_common_licence`)."""
    licences: defaultdict[PurePosixPath, list[LicenceTag]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.name):
        licences[PurePosixPath(file.name).parent].append(_file_licence(file))
    return {folder: _common_licence(own) for folder, own in licences.items()}


def _common_licence(licences: Sequence[LicenceTag]) -> LicenceTag:
    """Return the licence in a folder's licence files; `unknown` if the files differ."""
    if len({licence.tag for licence in licences}) == 1:
        return licences[0]
    files = [f"{licence.evidence.removeprefix('file: ')} ({licence.tag})" for licence in licences[:_MAX_NAMED_FILES]]
    return LicenceTag(UNKNOWN, f"file: {', '.join(files)}" + ", …" * (len(licences) > _MAX_NAMED_FILES))


def _file_licence(file: SourceFile) -> LicenceTag:
    with open_source(file) as opened:
        try:
            text = io.BufferedReader(opened).read(MAX_LICENCE_TEXT_BYTES + 1)  # type: ignore[type-var]
        except OSError as error:
            raise RetryableError(read_error_text(error), file.path, "restore the file") from None
    evidence = f"file: {file.name}"
    if len(text) > MAX_LICENCE_TEXT_BYTES:
        return LicenceTag(UNKNOWN, evidence)
    return identify_licence(text.decode("utf-8", errors="replace"), evidence)


def convert_local(
    staging: StagingDir, files: Sequence[SourceFile], recipe: LocalRecipe, shard_bytes: int, settings: RunSettings
) -> ConvertedSource:
    """Convert local files; licence files apply to rows that state no licence.

    The decision `extractors` records the versions of the packages that extract text from HTML, DOCX and PDF files.
    """
    licences = licences_by_folder(file for file in files if recipe.is_license_file(file.name))
    files = [file for file in files if not recipe.is_license_file(file.name)]
    unreadable = dict[str, str]()
    shards = piece_shards(plan_local(files, recipe, shard_bytes, unreadable), shard_bytes)
    work = functools.partial(normalize_local, recipe=recipe, folder_licences=licences, zstd_level=settings.zstd_level)
    named = convert_pieces(staging, shards, functools.partial(work, unreadable_reasons=dict(unreadable)), settings)
    notes = [receipt.notes.get(UNREADABLE, {}) for receipt in named.values()]
    found = {name: why for note in reversed(notes) for name, why in note.items()}  # the first reason of each file
    if found:  # no row of such a file is kept, in any shard
        unreadable |= found
        again = [shard for shard in shards if any(piece.file.name in found for piece in shard.pieces)]
        renamed = [replace(shard, name=f"{shard.name}{_READABLE_SUFFIX}") for shard in again]
        readable = convert_pieces(staging, renamed, functools.partial(work, unreadable_reasons=unreadable), settings)
        named |= {name.removesuffix(_READABLE_SUFFIX): receipt for name, receipt in readable.items()}
    counts = total_counts(named.values())
    if recipe.columns is not None and not counts.get("documents"):
        check_first_rows(files, recipe.columns)
    decisions: dict[str, Any] = {**columns_without_values(recipe.columns, counts)} if recipe.columns else {}
    if extractors := extractor_versions(recipe.detect_format(file.name) for file in files):
        decisions["extractors"] = extractors

    def is_expected(reject: Reject) -> bool:
        is_text = recipe.detect_format(reject.file) not in COLUMN_FORMATS
        is_empty = is_text and (reject.reason, reject.detail) == ("empty_text", "")
        return is_empty or (reject.reason == UNREADABLE and not recipe.is_one_document(reject.file))

    sizes = {file.name: file.bytes for file in files}
    lost = {name: unreadable[name] for name in sizes if name in unreadable and not recipe.is_one_document(name)}
    unreadable_files = UnreadableFiles(lost, sum(map(sizes.__getitem__, lost)), sum(sizes.values()), len(sizes))
    formatter = reject_formatter(files)
    return ConvertedSource(
        named, recipe.derive_id, decisions, is_expected, reject_formatter=formatter, unreadable_files=unreadable_files
    )


def normalize_local(
    shard: PieceShard,
    window: Window,
    folder: StagingView,
    recipe: LocalRecipe,
    folder_licences: Mapping[PurePosixPath, LicenceTag],
    zstd_level: int,
    unreadable_reasons: Mapping[str, str],
) -> Receipt:
    """Convert one shard of local files; the count `rows` is the number of rows read.

    `unreadable_reasons` maps known unreadable files to reasons. Each such file becomes one reject, in the shard that
    has its first piece. If the receipt's notes list other unreadable files, the caller must convert the shard again.
    """
    fields_with_values, found = set[str](), dict[str, str]()
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for piece in shard.pieces:
            rows: Iterable[DocumentOrReject] = read_piece(piece, recipe, folder_licences, fields_with_values, found)
            if (reason := unreadable_reasons.get(name := piece.file.name)) is not None:
                rows = [Reject(name, 0, UNREADABLE, reason)] if begins_file(piece) else []
            writer.count("rows", write_outcomes(rows, writer, recipe.derive_id, licence_table()))
        count_fields_with_values(fields_with_values, writer)
    receipt = writer.receipt()
    return replace(receipt, notes={**receipt.notes, UNREADABLE: found}) if found else receipt


def read_piece(
    piece: Piece,
    recipe: LocalRecipe,
    folder_licences: Mapping[PurePosixPath, LicenceTag] | None = None,
    fields_with_values: set[str] | None = None,
    unreadable_reasons: dict[str, str] | None = None,
) -> Iterator[DocumentOrReject]:
    """Yield a Document or Reject for every row that begins in the piece, in order.

    `folder_licences` maps folders to licences. A row without a licence gets the licence of the nearest folder above its
    file, or the recipe's if no folder has one. Document fields that get a value are added to `fields_with_values`. If
    the file cannot be read, the reason is added to `unreadable_reasons`; without this dict, InputError is raised.
    """
    name, licences = piece.file.name, folder_licences or {}
    parents = PurePosixPath(name).parents
    folder_licence = next((licences[parent] for parent in parents if parent in licences), None)
    converter = RowConverter(recipe.row_columns(name), recipe, name, folder_licence, fields_with_values)
    with note_unreadable(piece.file, unreadable_reasons):
        for position, row in piece_rows(piece, recipe):
            yield converter.to_document(row, position)


def convert_site(
    staging: StagingDir, file: SourceFile, recipe: threads.SiteRecipe, bucket_bytes: int, settings: RunSettings
) -> ConvertedSource:
    """Convert a site's dump: sort posts by question, then join each thread's posts."""
    size = file.bytes if is_archive(file.path) else file.bytes // COMPRESSION_RATIO

    def limited_settings(shards: Sequence[object]) -> RunSettings:
        return limit_workers(staging, settings, [size // len(shards)] * len(shards) if shards else [])

    parts = spill.plan_spill(file.path)
    spilled = list(run_stage("spill", spill.spill_rows, parts, staging, limited_settings(parts)))
    buckets = spill.plan_buckets(staging, spilled, bucket_bytes)
    work = functools.partial(normalize_bucket, file=file.name, recipe=recipe, zstd_level=settings.zstd_level)
    named = convert_shards(staging, work, buckets, limited_settings(buckets))
    before, after = total_counts(spilled), total_counts(named.values())
    if before["spilled"] != after.get("rows", 0):
        what = f"the reader wrote {after.get('rows', 0):,} of {before['spilled']:,} posts"
        raise InputError(what, file.path, "report this file: the reader has a bug")
    dropped = {dropped_key(reason): count for reason, count in Ledger.from_counts(before).dropped.items()}
    return ConvertedSource(
        named,
        no_derived_id,
        is_expected_reject=lambda reject: reject.reason == "no_question",  # an answer to a deleted question
        unsharded_counts=dropped | {"rows": before["rows"] - before["spilled"]},
    )


def normalize_bucket(
    bucket: spill.Bucket, window: Window, folder: StagingView, file: str, recipe: threads.SiteRecipe, zstd_level: int
) -> Receipt:
    """Convert the threads of one bucket.

    The receipt has the counts of `ShardWriter`, and also `rows` (posts read) and `merged` (answers in Documents).
    """
    with ShardWriter(folder, bucket.name, zstd_level) as writer:
        outcomes = _count_merged_answers(threads.read_threads(bucket, file, recipe, window), writer)
        writer.count("rows", write_outcomes(outcomes, writer, no_derived_id, licence_table()))
        writer.count("rows", writer.counts.get("merged", 0))
    return writer.receipt()


def _count_merged_answers(outcomes: Iterator[threads.Outcome], writer: ShardWriter) -> Iterator[threads.Outcome]:
    for outcome in outcomes:
        if isinstance(outcome, Document):
            writer.count("merged", len(outcome.meta.columns()["answers"]))
        yield outcome
