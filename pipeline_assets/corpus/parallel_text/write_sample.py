"""Draws a sample and writes it down: as an artifact, whose pass goes on after a cut, or in a notebook's folder."""

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.corpus.parallel_text.cursor import Cursor, keep_cursor, kept_cursor, new_cursor
from pipeline_assets.corpus.parallel_text.pairs import SPLITS
from pipeline_assets.corpus.parallel_text.rows import TranslationFile
from pipeline_assets.corpus.parallel_text.sample_manifest import (
    MANIFEST,
    MANIFEST_META,
    SampledPair,
    SampleMeta,
    SampleSource,
)
from pipeline_assets.corpus.parallel_text.sample_recipe import SampleRecipe
from pipeline_assets.corpus.parallel_text.sampler import draw
from pipeline_assets.corpus.parallel_text.seen_uids import SeenUids
from pipeline_assets.corpus.parallel_text.splits import assign_splits
from pipeline_assets.corpus.readers.lines import row_words
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare
from pipeline_assets.corpus.spine.ledger import Reject, check_rejects
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress

_CHUNK_ROWS, _SETTINGS = 1_000_000, RunSettings()


def write_sample(
    building: StagingDir,
    files: Sequence[TranslationFile],
    recipe: SampleRecipe,
    source: SampleSource,
    sampled_at: datetime.datetime,
    rows: int | None = None,
    chunk_rows: int = _CHUNK_ROWS,
    settings: RunSettings = _SETTINGS,
) -> BuildResult:
    """Both files, and the rejects. A pass that was cut goes on from where it was last kept, each `chunk_rows` rows.

    Args:
        files: in the order in which they are read; another order gives another sample.
        rows: of all files, if somebody knows; progress tells rows then, else files.
    Raises:
        UsageError, InputError: fewer than k pairs can be drawn; or as `draw`.
    """
    cursor, seen = kept_cursor(building, recipe, rows or 0)
    progress = Progress("sample", rows or len(files), "rows" if rows else "files", settings.log_every_s)
    done = cursor.rows if rows else cursor.file
    progress.add_done_before(done)
    for bits in draw(files, recipe, cursor, seen, chunk_rows):
        keep_cursor(building, cursor, bits, recipe)
        before, done = done, cursor.rows if rows else cursor.file
        progress.add(done - before)
    try:
        data, meta = _sampled(cursor, recipe, source, sampled_at, building.target)
    except InputError:
        building.discard()  # the pass has ended: nothing is left to go on with
        raise
    rejects = [asdict(reject) for reject in cursor.rejects]
    content = [
        replace(building.write(MANIFEST, data), rows=recipe.k),
        write_rows(building.path(REJECTS_FILE), REJECTS_FILE, rejects, settings.zstd_level),
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
    data, meta = _sampled(cursor, recipe, source, datetime.datetime.now(datetime.UTC), folder)
    durable.make_folder(folder)
    durable.write_durably(folder / MANIFEST, data)
    durable.write_durably(folder / MANIFEST_META, meta.to_bytes())
    return folder / MANIFEST


def _sampled(
    cursor: Cursor, recipe: SampleRecipe, source: SampleSource, sampled_at: datetime.datetime, where: Path
) -> tuple[bytes, SampleMeta]:
    """A sample whose pass has ended: the manifest, and what is told of it.

    Raises:
        InputError, UsageError: too many rejects; fewer than k pairs.
    """
    check_rejects(len(cursor.rejects), cursor.rows, recipe.max_reject_fraction, cursor.rejects, where, _words)
    ledger, held = cursor.ledger(), cursor.reservoir.items
    if len(held) < recipe.k:
        gone = ", ".join(f"{count:,} {reason}" for _, reason, count in ledger.fates()) or "none left out"
        what = f"it is {recipe.k:,}, and {cursor.rows:,} rows have {len(held):,} pairs to draw from ({gone})"
        raise UsageError(what, bare("k"), "ask for fewer, loosen the filters, or give more files")
    told = {"revision": source.revision, "seed": recipe.seed, "k": recipe.k, "filters_sha256": recipe.filters_sha256}
    lines = [
        msgspec.convert({**msgspec.structs.asdict(pair), "split": split, **told}, SampledPair)
        for pair, split in zip(held, assign_splits(held, recipe.splits, recipe.seed), strict=True)
    ]
    lines.sort(key=lambda line: (SPLITS.index(line.split), line.uid, line.file, line.row))
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    splits = [line.split for line in lines]
    content: dict[str, Any] = recipe.content()
    meta = {
        **msgspec.structs.asdict(source),
        **content["languages"],
        **{name: content[name] for name in ("k", "seed", "algorithm", "filters", "duplicates", "weight")},
        "filters_sha256": recipe.filters_sha256,
        "rows_seen": cursor.rows,
        "ledger": ledger.to_json(),
        "split_sizes": {split: splits.count(split) for split in SPLITS},
        "manifest_sha256": hashlib.sha256(data).hexdigest(),
        "sampled_at": sampled_at.isoformat(timespec="seconds"),
    }
    return data, msgspec.convert(meta, SampleMeta)


def _words(reject: Reject) -> str:
    return reject.told(row_words(reject.file, reject.row, None))
