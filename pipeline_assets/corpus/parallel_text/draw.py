"""Seeded draw of a sample: k sentence pairs of a translation set, in one pass."""

import datetime
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.corpus.parallel_text import sample
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Pair, canonical_text, pair_uid
from pipeline_assets.corpus.parallel_text.translation_files import TranslationFile, read_translation_rows
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.row_positions import reject_formatter
from pipeline_assets.corpus.removals import FORGOTTEN, NO_REMOVALS, Removals, RowKeys
from pipeline_assets.corpus.reservoir import Reservoir, new_reservoir
from pipeline_assets.spine import durable
from pipeline_assets.spine.argument_types import check_arguments, plain_integers
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.ledger import Ledger, check_rejects
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.staging import StagingDir

_MAX_REJECTS = 10_000
_DEFAULT_SETTINGS = RunSettings()


@dataclass(frozen=True)
class DrawResult:
    """Drawn pairs, and counts and rejects of all rows that were read."""

    pairs: Sequence[Pair]
    ledger: Ledger
    rejects: Sequence[Reject]


def draw_pairs(
    files: Sequence[TranslationFile],
    recipe: sample.SampleRecipe,
    settings: RunSettings = _DEFAULT_SETTINGS,
    removals: Removals = NO_REMOVALS,
) -> DrawResult:
    """Draw `recipe.k` pairs in one pass, or all pairs if fewer exist.

    The result depends on the order of the files. A row that the algorithm selects is dropped if it is on the removal
    list or, with `duplicates: within`, if it equals a pair in the reservoir. Raise InputError if over 10,000 rows are
    unreadable.
    """
    reservoir: Reservoir[Pair] = new_reservoir(recipe.algorithm, recipe.k, recipe.seed)
    rows, uids, dropped, rejects = 0, set[str](), Counter[str](), list[Reject]()
    progress = Progress("sample", len(files), "files", settings.log_every_s)
    for file in files:
        for position, row in read_translation_rows(file, recipe.languages, recipe.weight_column):
            rows += 1
            if isinstance(row, Fault):
                rejects.append(row.to_reject(file.name, position))
                if len(rejects) > _MAX_REJECTS:
                    what = f"more than {_MAX_REJECTS:,} rows cannot be read; the first is {rejects[0]}"
                    raise InputError(what, file.name, "check these rows, or remove the file")
                continue
            weight = recipe.weigh(row)
            if isinstance(weight, str):
                dropped[weight] += 1
            elif reservoir.advance(weight):
                uid = pair_uid(recipe.languages, canonical_text(row.src), canonical_text(row.tgt))
                is_forgotten = removals.matches(RowKeys(uid, (row.src, row.tgt)))
                if is_forgotten or (recipe.duplicates == "within" and uid in uids):
                    dropped[FORGOTTEN if is_forgotten else "duplicate"] += 1
                    reservoir.skip()
                else:
                    replaced = reservoir.insert(Pair(uid, row.src, row.tgt, file.name, position), weight)
                    if replaced is not None:
                        uids.discard(replaced.uid)
                    uids.add(uid)
        progress.add(1)
    rejected = Counter(reject.reason for reject in rejects)
    if not_drawn := rows - len(reservoir.items) - dropped.total() - len(rejects):
        dropped["not_drawn"] = not_drawn
    ledger = Ledger(rows, len(reservoir.items), dict(sorted(dropped.items())), dict(sorted(rejected.items())))
    return DrawResult(reservoir.items, ledger, rejects)


def write_sample(
    staging: StagingDir,
    files: Sequence[TranslationFile],
    recipe: sample.SampleRecipe,
    source: sample.SampleSource,
    sampled_at: datetime.datetime,
    settings: RunSettings = _DEFAULT_SETTINGS,
    removals: Removals = NO_REMOVALS,
) -> BuildResult:
    """Draw and write a sample, its metadata and rejects.

    Raise UsageError for too few pairs, InputError for too many rejects.
    """
    drawn = draw_pairs(files, recipe, settings, removals)
    data, meta = _sample_files(drawn, files, recipe, source, sampled_at, staging.target)
    content = [
        replace(staging.write(sample.SAMPLE_FILE, data), rows=recipe.k),
        write_rows(staging.path(REJECTS_FILE), REJECTS_FILE, drawn.rejects, settings.zstd_level),
    ]
    counts = {"ledger": meta.ledger.to_json(), "pairs": dict(meta.split_sizes)}
    decisions = {"filters_sha256": meta.filters_sha256, "order": "split (train, val, test), then uid"}
    return BuildResult(content, counts, decisions, labels=[staging.write(sample.SAMPLE_META_FILE, meta.to_bytes())])


@check_arguments
def materialize(
    k: int = 120,
    seed: int = 42,
    splits: Sequence[int] = (96, 12, 12),
    filters: Mapping[str, object] | None = MappingProxyType({}),
    *,
    files: Sequence[TranslationFile],
    languages: Sequence[str],
    source: sample.SampleSource,
    folder: Path | str,
    replace: bool = False,
    **options: object,
) -> Path:
    """Draw a sample into a folder outside any data root, for notebooks.

    Return the path of the sample's manifest.jsonl. A sample is frozen: for an equal request, the stored sample is
    returned, and no file is read again, unless `replace` is set. `files` are read in their order; `source` describes
    them in the sample's metadata. The other arguments are values of `SampleRecipe`; `filters` has those keys of
    `PairFilters` that differ from their defaults, or is None for no filters.

    Raises:
        UsageError: A value is invalid or of a wrong type, the sample in the folder differs from the request, there are
            too few pairs, or the folder is in a sealed artifact.
        InputError: Too many rows are rejected.
    """
    for name, items, count in (("languages", languages, 2), ("splits", splits, 3)):
        if isinstance(items, str) or len(items) != count:
            raise UsageError(f"must have {count} items, got {items!r}", name, "correct it")
    if isinstance(files, str) or not all(isinstance(file, TranslationFile) for file in files):
        raise UsageError(f"must have items of TranslationFile, got {files!r}", "files", "correct it")
    folder = Path(folder)
    request = {"k": k, "seed": seed, "filters": None if filters is None else dict(filters), **options}
    request["languages"] = dict(zip(("src", "tgt"), languages, strict=True))
    request["splits"] = dict(zip(SPLITS, splits, strict=True))
    recipe = sample.SampleRecipe.from_mapping(plain_integers(request), "materialize")
    manifest = folder / sample.SAMPLE_FILE
    if not replace and manifest.exists() and manifest.with_name(sample.SAMPLE_META_FILE).exists():
        differences = sample.read_sample(manifest).describe_differences(recipe, source, [file.name for file in files])
        if differences:
            fix = "choose another folder, or pass replace=True to draw the sample again"
            raise UsageError(f"the frozen sample differs: {'; '.join(differences)}", manifest, fix)
        return manifest
    sample.check_notebook_folder(folder)
    drawn, now = draw_pairs(files, recipe), datetime.datetime.now(datetime.UTC)
    data, meta = _sample_files(drawn, files, recipe, source, now, folder)
    durable.make_folder(folder)
    durable.remove(folder / sample.SAMPLE_META_FILE)  # written last, so a sample with metadata is complete
    durable.write_durably(manifest, data)
    durable.write_durably(folder / sample.SAMPLE_META_FILE, meta.to_bytes())
    return manifest


def _sample_files(
    drawn: DrawResult,
    files: Sequence[TranslationFile],
    recipe: sample.SampleRecipe,
    source: sample.SampleSource,
    sampled_at: datetime.datetime,
    where: Path,
) -> tuple[bytes, sample.SampleMeta]:
    """Return the bytes of manifest.jsonl, and the content of MANIFEST.meta.json."""
    pairs, rows = drawn.pairs, drawn.ledger.rows_in
    check_rejects(len(drawn.rejects), rows, recipe.max_reject_fraction, drawn.rejects, where, reject_formatter(()))
    if len(pairs) < recipe.k:
        fates = ", ".join(f"{count:,} {reason}" for _, reason, count in drawn.ledger.other_outcomes()) or "none dropped"
        fix = "write weights from 1e-9 to 1e9, as numbers, " * (
            "no_weight" in drawn.ledger.dropped and recipe.weight != "chars"
        )
        fix += "loosen the filters, or add files"
        if not pairs:
            raise UsageError(f"no pair among {pluralize(rows, 'row')} ({fates})", RecipeKey("source"), fix)
        what = f"must be at most {len(pairs):,}, the pairs among {pluralize(rows, 'row')} ({fates}), got {recipe.k:,}"
        raise UsageError(what, RecipeKey("k"), f"request fewer, {fix}")
    meta = sample.requested_meta(recipe, source)
    request = {name: meta[name] for name in ("revision", "seed", "k", "filters_sha256")}
    lines = [
        sample.SampledPair(**msgspec.structs.asdict(pair), split=split, **request)
        for pair, split in zip(pairs, sample.assign_splits(pairs, recipe.splits, recipe.seed), strict=True)
    ]
    lines.sort(key=lambda line: (SPLITS.index(line.split), line.uid, line.file, line.row))
    data, sizes = b"".join(msgspec.json.encode(line) + b"\n" for line in lines), Counter(line.split for line in lines)
    return data, sample.SampleMeta(
        **meta,
        files=tuple(file.name for file in files),
        rows_seen=rows,
        ledger=drawn.ledger,
        split_sizes={split: sizes[split] for split in SPLITS},
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        sampled_at=sampled_at.isoformat(timespec="seconds"),
    )
