"""Stage `normalize` for the output files of wikiextractor."""

import functools
from collections.abc import Sequence

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.normalize.converted import ConvertedSource, no_derived_id, write_outcomes
from pipeline_assets.corpus.normalize.stage import PieceShard, convert_pieces, piece_shards
from pipeline_assets.corpus.readers.row_positions import reject_formatter
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, split_byte_ranges
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.corpus.readers.wikipedia_pages import count_pages
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView, total_counts


def convert_wikipedia(
    staging: StagingDir, files: Sequence[SourceFile], recipe: WikipediaRecipe, shard_bytes: int, settings: RunSettings
) -> ConvertedSource:
    """Convert wikiextractor's output files; raise InputError if they contain no page."""
    work = functools.partial(normalize_wikipedia_shard, recipe=recipe, zstd_level=settings.zstd_level)
    pieces = (piece for file in files for piece in split_byte_ranges(file, shard_bytes))
    named = convert_pieces(staging, piece_shards(pieces, shard_bytes), work, settings)
    if not total_counts(named.values()).get("pages"):
        fix = "extract again: wikiextractor finds pages only where each element of the dump is on a line of its own"
        raise InputError("the extraction contains no page", staging.target, fix)
    return ConvertedSource(
        named,
        no_derived_id,
        is_expected_reject=lambda reject: reject.reason == "title_only",
        reject_formatter=reject_formatter(files),
    )


def normalize_wikipedia_shard(
    shard: PieceShard, window: Window, folder: StagingView, recipe: WikipediaRecipe, zstd_level: int
) -> Receipt:
    """Convert one shard of wikiextractor's files.

    The receipt has the counts of `ShardWriter`, and two independent counts of pages: `rows`, the pages that were read,
    and `pages`, the lines that begin a page.
    """
    with ShardWriter(folder, shard.name, zstd_level) as writer:
        for piece in shard.pieces:
            assert isinstance(piece, ByteRange)
            rows = read_wikipedia(piece, recipe)
            writer.count("rows", write_outcomes(rows, writer, no_derived_id, licence_table()))
            writer.count("pages", count_pages(piece))
    return writer.receipt()


def pages_add_up(normalized: Artifact) -> Verdict:
    """Check that each Wikipedia page became an article, or was rejected or dropped."""
    identity = normalized.manifest.identity
    if "pages" not in identity.counts:
        return Verdict(True, "not a Wikipedia extraction", applies=False)
    pages, articles, rejects = identity.counts["pages"], identity.counts["documents"], identity.ledger.total_rejected
    because = f"{pluralize(pages, 'page')} in = {pluralize(articles, 'article')} + {rejects:,} rejected"
    dropped = identity.ledger.dropped
    because += "".join(f" + {count:,} {reason}" for reason, count in dropped.items())
    passed = 0 < pages == articles + rejects + sum(dropped.values())
    return Verdict(passed, because, {"pages": pages, "articles": articles})
