"""Draws a sample and writes it down: as an artifact, whose pass goes on after a cut, or in a notebook's folder."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from pipeline_assets.corpus.parallel_text.cursor import keep_cursor, kept_cursor, new_cursor
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, SeenUids
from pipeline_assets.corpus.parallel_text.rows import TranslationFile
from pipeline_assets.corpus.parallel_text.sample_manifest import MANIFEST, MANIFEST_META, SampleSource, sampled
from pipeline_assets.corpus.parallel_text.sample_recipe import SampleRecipe
from pipeline_assets.corpus.parallel_text.sampler import draw
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress

REJECTS = "rejects.jsonl"
_CHUNK_ROWS = 1_000_000


def write_sample(
    building: StagingDir,
    files: Sequence[TranslationFile],
    recipe: SampleRecipe,
    source: SampleSource,
    sampled_at: datetime.datetime,
    rows: int | None = None,
    chunk_rows: int = _CHUNK_ROWS,
    log_every_s: float = 10.0,
) -> BuildResult:
    """Both files, and the rejects. A pass that was cut goes on from where it was last kept, each `chunk_rows` rows.

    Args:
        files: in the order in which they are read; another order gives another sample.
        rows: of all files, if somebody knows; progress tells rows then, else files.
    Raises:
        UsageError, InputError: fewer than k pairs can be drawn; or as `draw`.
    """
    cursor, seen = kept_cursor(building, recipe, rows or 0)
    progress = Progress("sample", rows or len(files), "rows" if rows else "files", log_every_s)
    done = cursor.rows if rows else cursor.file
    progress.add_done_before(done)
    for bits in draw(files, recipe, cursor, seen, chunk_rows):
        keep_cursor(building, cursor, bits, recipe)
        before, done = done, cursor.rows if rows else cursor.file
        progress.add(done - before)
    data, meta = sampled(cursor, recipe, source, sampled_at)
    rejects = b"".join(msgspec.json.encode(reject) + b"\n" for reject in cursor.rejects)
    content = [
        replace(building.write(MANIFEST, data), rows=recipe.k),
        replace(building.write(REJECTS, rejects), rows=len(cursor.rejects)),
    ]
    counts = {"ledger": meta.ledger.to_json(), "pairs": dict(meta.split_sizes)}
    decisions = {"filters_sha256": meta.filters_sha256, "order": "split (train, val, test), then uid"}
    return BuildResult(content, counts, decisions, labels=[building.write(MANIFEST_META, meta.to_bytes())])


def materialize(
    k: int = 120,
    seed: int = 42,
    splits: tuple[int, int, int] = (96, 12, 12),
    filters: Mapping[str, object] | None = MappingProxyType({}),
    *,
    files: Sequence[TranslationFile],
    languages: tuple[str, str],
    source: SampleSource,
    folder: Path,
    **others: object,
) -> Path:
    """For notebooks: the manifest of a sample in a folder of its own, drawn at once.

    Args:
        splits: parts for train, val and test.
        filters: None for none; else what differs from the usual ones.
        others: keys of `SampleRecipe`: algorithm, duplicates, weight.
    Raises:
        UsageError, InputError: as `write_sample`; a value that no recipe may have.
    """
    asked = {"k": k, "seed": seed, "filters": None if filters is None else dict(filters), **others}
    asked["languages"] = dict(zip(("src", "tgt"), languages, strict=True))
    asked["splits"] = dict(zip(SPLITS, splits, strict=True))
    recipe = SampleRecipe.of(asked, "materialize")
    cursor = new_cursor(recipe)
    for _ in draw(files, recipe, cursor, SeenUids(), _CHUNK_ROWS):
        pass
    data, meta = sampled(cursor, recipe, source, datetime.datetime.now(datetime.UTC))
    durable.make_folder(folder)
    durable.write_durably(folder / MANIFEST, data)
    durable.write_durably(folder / MANIFEST_META, meta.to_bytes())
    return folder / MANIFEST
