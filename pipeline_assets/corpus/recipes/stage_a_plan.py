"""The plan of a stage A recipe: of hub sources from listing and footers, of files here from their sizes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total
from pipeline_assets.corpus.planning.memory import snapshot_memory
from pipeline_assets.corpus.planning.rates import at_work, fetch_seconds
from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan, TargetPlan
from pipeline_assets.corpus.planning.snapshot_forecast import forecast_snapshot
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.recipes.stage_a_sources import HubSource, NormalizedSource, Source
from pipeline_assets.corpus.sampling.row_groups import rank
from pipeline_assets.corpus.snapshot.drawn_lines import block_ranges
from pipeline_assets.corpus.snapshot.plan import bytes_to_fetch, has_lines, list_rows, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.inventory import Holding

Figures = dict[str, Estimate]
_BASIS = "sizes of the files"
_TEXT_OF_FILE = (0.2, 0.7, 1.0)  # of plain files: the rest is other columns, markup, rows that go
_DOCUMENT_BYTES = Estimate(300, 3_000, 20_000, "the amount, and pages of any length")
_TEXT_OF_PACKED = (0.8, 3.0, 9.0)  # of compressed ones, and Parquet
_STORED_OF_TEXT = Estimate(0.15, 0.4, 0.8, _BASIS)  # zstd of Document lines, levels 1 to 22
_SIGNATURES_OF_TEXT = Estimate(0.5, 1.1, 3.0, "words are longer or shorter")
_UNIQUE = Estimate(0.3, 0.9, 1.0, "duplicates are known by looking for them")
_CLEAN = Estimate(0, 0.99, 1.0, "leaks are known by looking for them")
_KEPT = Estimate(0, 0.8, 1.0, "filters are known by asking them")
_PACKED = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".7z", ".parquet")
_FILTER_BYTES_PER_S = 60e6  # of text, by one worker, see benchmarks/README.md
_DEDUP_BYTES_PER_S = 50e6  # likewise, with writing what stays
_DECONTAMINATION_BYTES_PER_S = 35e6  # likewise
_BYTES_PER_TOKEN = Estimate(2.5, 4.4, 5.5, "languages and kinds of text")


def plan_stage_a(recipe: StageARecipe, held: Sequence[Holding], hub: HubFiles, settings: PlanSettings) -> RecipePlan:
    """
    Args:
        held: the state of the recipe's artifacts, as `holdings` tells it; what is current costs nothing.
    Raises:
        UsageError: a source's folder or files are not there, or nothing is sealed where one is found normalised.
        InputError: from the hub, or the tokenizer that packs can't be loaded.
    """
    recipe.check_local_files(settings.root)
    before = hub.traffic.bytes
    by_role = {holding.target.role: holding for holding in held}
    figures: dict[str, Figures] = {}
    texts = []
    for source in recipe.sources:
        normalized = recipe.normalized(source)
        roles = [target.role for target in recipe.targets_of(source)]
        if roles and all(by_role[role].is_there for role in roles):
            manifest = by_role[roles[-1]].manifest
            assert manifest is not None
            texts.append(exactly(manifest.identity.counts["text_bytes"], "the sealed source"))
            continue
        of_raw, of_normalized, text = _planned(recipe, source, by_role, hub, settings)
        if (raw := recipe.raw(source)) is not None:
            figures[raw.role] = of_raw
        figures[normalized.role] = of_normalized
        figures[recipe.filtered(source).role] = _filtered(text, settings)
        texts.append(text.times(_KEPT, text.basis))
    text = total(texts, _BASIS)
    deduplicated = recipe.deduplicated()
    if deduplicated is not None:
        figures[deduplicated.role] = _deduplicated(text, settings)
    signatures = recipe.signatures()
    if signatures is not None:
        figures[signatures.role] = _signed(text, settings)
    for evaluation in recipe.evaluation():
        assert isinstance(evaluation.outside, SourceFolder)
        figures[evaluation.role], _, _ = _of_files(evaluation.outside.below(settings.root).files(), settings)
    decontaminated = recipe.decontaminated()
    if decontaminated is not None:
        figures[decontaminated.role] = _decontaminated(text, settings)
    packed = recipe.packed()
    if packed is not None and recipe.pack is not None:
        figures[packed.role] = _packed(text, recipe.pack, settings)
    figures[recipe.report().role] = _reported(text, settings)
    plans = [
        TargetPlan(holding, {} if holding.is_there else figures.get(role, {})) for role, holding in by_role.items()
    ]
    return RecipePlan(plans, None, [], hub.traffic.bytes - before)


def _planned(
    recipe: StageARecipe, source: Source, held: Mapping[str, Holding], hub: HubFiles, settings: PlanSettings
) -> tuple[Figures, Figures, Estimate]:
    """Figures of the raw and of the normalised source, and how much text it will have."""
    if isinstance(source, NormalizedSource):
        given = read_manifest(settings.root / recipe.normalized(source).folder)
        if given is None:
            fix = "normalise the source first, or correct `outputs.normalized_dir`"
            raise UsageError("nothing is sealed there", recipe.normalized(source).folder, fix)
        return {}, {}, exactly(given.identity.counts["text_bytes"], "the sealed source")
    sealed = held[recipe.normalized(source).role]
    if sealed.is_there and sealed.manifest is not None:
        return {}, {}, exactly(sealed.manifest.identity.counts["text_bytes"], "the sealed source")
    if isinstance(source, HubSource):
        snapshot = source.snapshot(recipe.shard_text_bytes)
        if has_lines(listing := list_rows(hub, snapshot)):
            return _of_lines(hub, snapshot, listing, settings)
        plan = plan_snapshot(hub, snapshot, settings.fetch_threads, settings.engine.log_every_s)
        missing = bytes_to_fetch(hub, snapshot, plan)
        figures = forecast_snapshot(plan, snapshot, missing, settings.record()).figures(
            settings.record(), settings.engine
        )
        fetching = {name: figures.pop(name) for name in ("bytes_fetched", "fetch_seconds") if name in figures}
        return fetching | {"rows": figures["rows"]}, figures, figures["text_bytes"]
    raw = recipe.raw(source)
    assert raw is not None and isinstance(raw.outside, SourceFolder)
    files = raw.outside.below(settings.root).files()
    return _of_files(files, settings)


def _of_lines(
    hub: HubFiles, recipe: SnapshotRecipe, listing: Sequence[HubFile], settings: PlanSettings
) -> tuple[Figures, Figures, Estimate]:
    """The same of JSON lines on a hub, by sizes in the listing: what they hold is known by fetching them."""
    unit, amount = recipe.amount.limit
    ranked = sorted(listing, key=lambda file: rank(recipe.seed, file.path))
    files = ranked[:amount] if unit == "files" else ranked
    size, text = sum(file.size for file in files), total((_text_of(file.path, file.size) for file in files), _BASIS)
    blocks = ((file, block) for file in files for block in block_ranges(file.size))
    missing = exactly(sum(hub.bytes_missing(recipe.dataset, file, *block) for file, block in blocks), "the listing")
    if unit != "files":
        each = Estimate(1, 1, 1, "the amount") if unit == "text_bytes" else _DOCUMENT_BYTES
        asked = exactly(amount, "the amount").times(each)
        low, likely, high = (min(pair) for pair in zip(text.bounds, asked.bounds, strict=True))
        text = Estimate(low, likely, high, each.basis)
        missing = Estimate(0, min(size, text.likely / 2), size, "the amount")
    record = settings.record()
    fetching = {"bytes_fetched": missing.counted()}
    seconds = fetch_seconds(round(missing.likely), record.fetch_rate())
    if seconds is not None:
        fetching["fetch_seconds"] = seconds
    text = text.counted()
    return fetching, _costs(text, text.times(_STORED_OF_TEXT).counted(), record.rates().convert, settings, record), text


def _of_files(files: Sequence[SourceFile], settings: PlanSettings) -> tuple[Figures, Figures, Estimate]:
    size = sum(file.bytes for file in files)
    record = settings.record()
    text = total((_text_of(file.name, file.bytes) for file in files), _BASIS).counted()
    stored = text.times(_STORED_OF_TEXT).counted()
    hashing = {"build_seconds": record.rates().seconds(size / record.rates().write)}
    return hashing, _costs(text, stored, record.rates().convert, settings, record), text


def _text_of(name: str, size: int) -> Estimate:
    is_packed = Path(name).suffix in _PACKED
    return exactly(size, _BASIS).times(Estimate(*(_TEXT_OF_PACKED if is_packed else _TEXT_OF_FILE), _BASIS))


def _filtered(text: Estimate, settings: PlanSettings) -> Figures:
    kept = text.times(_KEPT, text.basis).counted()
    return _costs(kept, kept.times(_STORED_OF_TEXT).counted(), _FILTER_BYTES_PER_S, settings, settings.record())


def _deduplicated(text: Estimate, settings: PlanSettings) -> Figures:
    kept = text.times(_UNIQUE, text.basis).counted()
    return _costs(kept, kept.times(_STORED_OF_TEXT).counted(), _DEDUP_BYTES_PER_S, settings, settings.record())


def _decontaminated(text: Estimate, settings: PlanSettings) -> Figures:
    kept = text.times(_CLEAN, text.basis).counted()
    stored = kept.times(_STORED_OF_TEXT).counted()
    return _costs(kept, stored, _DECONTAMINATION_BYTES_PER_S, settings, settings.record())


def _signed(text: Estimate, settings: PlanSettings) -> Figures:
    kept = text.times(_UNIQUE, text.basis)
    rates = settings.record().rates()
    seconds = kept.likely / (_DEDUP_BYTES_PER_S * at_work(settings.engine.workers))
    stored = kept.times(_SIGNATURES_OF_TEXT).counted()
    return {"bytes": stored, "build_seconds": rates.seconds(rates.start_s + seconds)}


def _packed(text: Estimate, pack: PackRecipe, settings: PlanSettings) -> Figures:
    """Every text is encoded, however little of it is drawn."""
    places = pack.num_seqs * pack.seq_len
    rates = settings.record().rates()
    seconds = text.likely / (rates.encode * at_work(settings.engine.workers))
    padding = 0.5 if pack.strategy == "best_fit" else 1.0
    return {
        "tokens": Estimate(padding * places, places, places, "its rows, but for padding").counted(),
        "bytes": Estimate(
            4 * places, 4.2 * places, 8 * places, "its rows, and what tells where they are from"
        ).counted(),
        "build_seconds": rates.seconds(rates.start_s + seconds),
    }


def _reported(text: Estimate, settings: PlanSettings) -> Figures:
    rates = settings.record().rates()
    seconds = text.likely / (rates.encode * at_work(settings.engine.workers))
    return {
        "tokens": text.over(_BYTES_PER_TOKEN, _BYTES_PER_TOKEN.basis).counted(),
        "build_seconds": rates.seconds(rates.start_s + seconds),
    }


def _costs(
    text: Estimate, stored: Estimate, bytes_per_s: float, settings: PlanSettings, record: TrackRecord
) -> Figures:
    rates = record.rates()
    seconds = text.likely / (bytes_per_s * at_work(settings.engine.workers))
    return {
        "text_bytes": text,
        "bytes": stored,
        "peak_disk_bytes": Estimate(stored.low, stored.likely, 2 * stored.high, stored.basis),
        "peak_memory_bytes": snapshot_memory(settings.engine, round(text.likely), 0),
        "build_seconds": rates.seconds(rates.start_s + seconds),
    }
