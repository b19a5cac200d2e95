"""The stage `normalize` for buckets of Stack Exchange posts."""

import functools
from collections.abc import Iterator

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import ShardWriter
from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.normalize.converted import (
    Converted,
    convert_shards,
    no_derived_id,
    write_outcomes,
)
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.readers.stackexchange.spill import Bucket, plan_buckets, plan_spill, spill_rows
from pipeline_assets.corpus.readers.stackexchange.threads import Outcome, SiteRecipe, read_threads
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Ledger, dropped_key
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.worker import Window

NO_QUESTION = "no_question"  # an answer to a question that was deleted


def normalize_bucket(
    bucket: Bucket,
    window: Window,
    folder: BuildFolder,
    file: str,
    recipe: SiteRecipe,
    licences: LicenceTable,
    zstd_level: int,
) -> Receipt:
    """One bucket. Counts: as `ShardWriter`, `rows`, which are posts, and `merged`, answers in their question's text."""
    with ShardWriter(folder, bucket.name, zstd_level) as writer:
        outcomes = _counting_answers(read_threads(bucket, file, recipe, window), writer)
        writer.count("rows", write_outcomes(outcomes, writer, no_derived_id, licences))
        writer.count("rows", writer.counts.get("merged", 0))
    return writer.receipt()


def convert_site(
    building: StagingDir,
    file: SourceFile,
    recipe: SiteRecipe,
    bucket_bytes: int,
    licences: LicenceTable,
    settings: RunSettings,
) -> Converted:
    """A site's dump in two passes: rows sorted by question into runs, then a bucket of questions at a time.

    Raises:
        InputError: from the passes, or posts are lost on the way.
    """
    spilled = list(run_stage("spill", spill_rows, plan_spill(file.path, "posts"), building, settings))
    buckets = plan_buckets(building, spilled, "threads", bucket_bytes)
    work = functools.partial(
        normalize_bucket, file=file.name, recipe=recipe, licences=licences, zstd_level=settings.zstd_level
    )
    named = convert_shards(building, work, buckets, settings)
    before, after = total_counts(spilled), total_counts(named.values())
    if before["spilled"] != after.get("rows", 0):
        what = f"{before['spilled']:,} posts were read, {after.get('rows', 0):,} came out"
        raise InputError(what, file.path, "report the file: the reader is wrong")
    others = {dropped_key(reason): count for reason, count in Ledger.of(before).dropped.items()}
    uncounted = others | {"rows": before["rows"] - before["spilled"]}
    return Converted(named, no_derived_id, {}, frozenset({NO_QUESTION}), uncounted)


def _counting_answers(outcomes: Iterator[Outcome], writer: ShardWriter) -> Iterator[Outcome]:
    for outcome in outcomes:
        if isinstance(outcome, Document):
            writer.count("merged", len(outcome.meta.columns()["answers"]))
        yield outcome
