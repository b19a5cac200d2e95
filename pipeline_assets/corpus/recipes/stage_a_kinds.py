"""How the artifacts of stage A are made."""

from collections.abc import Sequence
from pathlib import Path

from pipeline_assets.corpus.corpus_report import REPORT_STAGE, SourceSteps, report_on
from pipeline_assets.corpus.decontamination.evaluation_set import EvaluationSet
from pipeline_assets.corpus.decontamination.evidence import DECONTAMINATION_STAGE
from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE, DecontaminationRecipe, EvaluationRecipe
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, SIGNATURES_STAGE
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.settings import DedupSettings, share_of
from pipeline_assets.corpus.filters.dropped import FILTER_STAGE
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.normalize.converted import NORMALIZE_STAGE, Converted, NormalizeSettings, finish
from pipeline_assets.corpus.normalize.file_pieces import convert_local, convert_wikipedia
from pipeline_assets.corpus.normalize.group_manifest import write_group_manifest
from pipeline_assets.corpus.normalize.hub_rows import convert_hub_rows
from pipeline_assets.corpus.normalize.named_columns import named_columns_have_values
from pipeline_assets.corpus.normalize.page_audit import pages_add_up
from pipeline_assets.corpus.normalize.raw_source import RAW_STAGE, raw_of_folder, raw_of_hub
from pipeline_assets.corpus.preview import preview_inputs, preview_report
from pipeline_assets.corpus.readers.source_files import SourceFile
from pipeline_assets.corpus.readers.source_folder import SourceFolder, files_of, folder_of
from pipeline_assets.corpus.readers.stackexchange.archive import check_readable
from pipeline_assets.corpus.recipes.kind import FILES, LEDGER, Kind, by_files, check, check_beside
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.recipes.stage_a_packing import PACKED
from pipeline_assets.corpus.recipes.stage_a_sources import (
    FileSource,
    HubSource,
    LocalSource,
    StackExchangeSource,
    WikipediaSource,
    source_of,
)
from pipeline_assets.corpus.rows.documents import DecontaminatedRows, DeduplicatedRows, FilteredRows, SourceRows
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.provenance import Stopwatch
from pipeline_assets.corpus.spine.target import Content, Target


def _build_raw(target: Target, run: Run) -> Artifact:
    """Seals what a source or an evaluation set is made of; nothing but its manifest is written."""
    if target.is_sealed(run.root):
        return open_artifact(run.root / target.folder)
    stopwatch = Stopwatch()
    if target.outside is None:
        source, shard_text_bytes = source_of(target.recipe)
        assert isinstance(source, HubSource)
        hub, snapshot = run.hub_for("this source"), source.snapshot(shard_text_bytes)
        content = raw_of_hub(hub, snapshot, run.fetch_threads, run.engine.log_every_s)
    else:
        assert isinstance(target.outside, SourceFolder)
        if target.recipe.get("kind") == "stackexchange":
            _check_dumps(target.outside.below(run.root))
        content = raw_of_folder(target.outside, run.root, run.naming(target.partition).engine)
    return target.seal_members(run.root, content, run.provenance(), stopwatch, run.replace)


def _check_dumps(folder: SourceFolder) -> None:
    """
    Raises:
        InputError: a dump can't be read; said before an hour of hashing, not after.
    """
    for file in folder.files():
        check_readable(file.path)


def _make_normalized(building: Building, target: Target, run: Run) -> Content:
    source, shard_text_bytes = source_of(target.recipe)
    [raw_target] = target.upstream
    raw = open_artifact(run.root / raw_target.folder)
    own = NormalizeSettings(run.engine, run.zstd_level, run.fetch_threads)
    if isinstance(source, HubSource):
        recipe = source.snapshot(shard_text_bytes)
        converted = convert_hub_rows(
            building, raw, run.hub_for("this source"), recipe, source.columns, licence_table(), own
        )
    else:
        assert isinstance(raw_target.outside, SourceFolder)
        folder = raw_target.outside.below(run.root)
        converted = _convert_files(building, files_of(folder, raw.manifest), folder, source, shard_text_bytes, own)
        files_of(folder, raw.manifest)  # else they were written to while they were read
    return finish(building, converted, source.max_reject_fraction, own)


def _convert_files(
    building: Building,
    files: Sequence[SourceFile],
    folder: SourceFolder,
    source: FileSource,
    shard_text_bytes: int,
    own: NormalizeSettings,
) -> Converted:
    licences = licence_table()
    match source:
        case WikipediaSource():
            return convert_wikipedia(building, files, source, shard_text_bytes, licences, own)
        case LocalSource():
            return convert_local(building, files, source, shard_text_bytes, licences, own)
        case StackExchangeSource():
            return _convert_site(building, files, folder, source, shard_text_bytes, own)


def _convert_site(
    building: Building,
    files: Sequence[SourceFile],
    folder: SourceFolder,
    source: StackExchangeSource,
    shard_text_bytes: int,
    own: NormalizeSettings,
) -> Converted:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.normalize.threads import convert_site
    from pipeline_assets.corpus.readers.stackexchange.thread_document import Site
    from pipeline_assets.corpus.readers.stackexchange.threads import ThreadRules

    if len(files) != 1:
        what = f"{len(files)} files match, and a source is one site: {', '.join(file.name for file in files[:3])}"
        raise UsageError(what, folder.path, "write a source for each of them")
    site = Site(source.host, files[0].name, source.source, source.domain)
    rules = ThreadRules(source.min_question_score, source.min_answer_score, source.min_answers)
    return convert_site(building, files[0], site, rules, shard_text_bytes, licence_table(), own)


def _make_filtered(building: Building, target: Target, run: Run) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.filters.filter_corpus import CorpusFilter, filter_corpus

    [normalized] = target.upstream
    rules = CorpusFilter(
        FilterRecipe.from_content(target.recipe["filters"]), frozenset(target.recipe["refuse_licences"])
    )
    return filter_corpus(building, open_artifact(run.root / normalized.folder), rules, run.engine, run.zstd_level)


def _make_deduplicated(building: Building, target: Target, run: Run) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.dedup.dedup_corpus import dedup_corpus

    upstream = [(one.kind, one.partition or one.name, open_artifact(run.root / one.folder)) for one in target.upstream]
    sources = {name: artifact for kind, name, artifact in upstream if kind != SIGNATURES.name}
    seen = {name: artifact for kind, name, artifact in upstream if kind == SIGNATURES.name}
    recipe = DedupRecipe.from_content(target.recipe["dedup"])
    return dedup_corpus(building, sources, recipe, _dedup_settings(run), seen)


def _make_signatures(building: Building, target: Target, run: Run) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.dedup.signature_store import sign_corpus

    deduplicated = open_artifact(run.root / target.upstream[0].folder)
    recipe = DedupRecipe.from_content(deduplicated.manifest.identity.recipe["dedup"])
    return sign_corpus(building, deduplicated, recipe, _dedup_settings(run))


def _dedup_settings(run: Run) -> DedupSettings:
    share_bytes = share_of(run.memory_bytes, run.engine.workers)
    return DedupSettings(run.engine, run.zstd_level, share_bytes, run.faiss_gpu)


def _make_decontaminated(building: Building, target: Target, run: Run) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.decontamination.decontaminate_corpus import decontaminate_corpus

    listed = [source for source in target.upstream if source.kind == EVALUATION.name]
    sources = {
        source.partition or source.name: open_artifact(run.root / source.folder)
        for source in target.upstream
        if source.kind != EVALUATION.name
    }
    sections = map(EvaluationRecipe.from_content, target.recipe["evaluation"])
    evaluation = [_evaluation_set(section, source, run.root) for section, source in zip(sections, listed, strict=True)]
    rules = DecontaminationRecipe.from_content(target.recipe["decontamination"])
    return decontaminate_corpus(building, sources, evaluation, rules, run.engine, run.zstd_level)


def _evaluation_set(section: EvaluationRecipe, source: Target, root: Path) -> EvaluationSet:
    assert isinstance(source.outside, SourceFolder)
    return EvaluationSet(section, open_artifact(root / source.folder).manifest, source.outside.below(root))


def _make_report(building: Building, target: Target, run: Run) -> Content:
    assert target.tokenizer is not None
    sources = [
        _steps(source, run.root) for source in target.upstream if source.kind in (NORMALIZED.name, FILTERED.name)
    ]
    of_all = {source.kind: source.folder for source in target.upstream}
    made_of_all = (
        open_artifact(run.root / of_all[kind.name]) if kind.name in of_all else None
        for kind in (DEDUPLICATED, DECONTAMINATED, PACKED)
    )
    return report_on(building, sources, target.tokenizer["sha256"], licence_table(), run.engine, *made_of_all)


def _steps(source: Target, root: Path) -> SourceSteps:
    """A source of a report: filtered, or as it was normalised."""
    name, artifact = source.partition or source.name, open_artifact(root / source.folder)
    if source.kind == NORMALIZED.name:
        return SourceSteps(name, artifact, None)
    return SourceSteps(name, open_artifact(root / source.upstream[0].folder), artifact)


def removals_within_caps(deduplicated: Artifact, target: Target, root: Path) -> Verdict:
    """Of no source more documents went than the recipe's `max_removed` allows."""
    if target.demand is None:
        return Verdict(True, "the recipe has no caps", applies=False)
    return target.demand.judge(deduplicated.manifest)


RAW = Kind(
    "stage_a/raw",
    RAW_STAGE,
    _build_raw,
    """The files of a source, each by its hash: of a hub dataset at the recipe's commit, or of a folder here.

    Nothing is copied; bytes of a hub are fetched into the cache.""",
    formats=frozenset({"huggingface", "file"}),
    outside=folder_of,
    preview=preview_inputs,
)
NORMALIZED = Kind(
    "stage_a/normalized",
    NORMALIZE_STAGE,
    by_files(_make_normalized),
    """Documents of a source, in one schema: text, where it came from, its licence and what that rests on.

    Bad rows are kept aside with their reasons; every doc_id is there once.""",
    formats=frozenset({"jsonl"}),
    rows=SourceRows,
    beside=write_group_manifest,
    checks=(FILES, LEDGER, check(pages_add_up), check(named_columns_have_values, is_blocking=False)),
)
FILTERED = Kind(
    "stage_a/filtered",
    FILTER_STAGE,
    by_files(_make_filtered),
    "The Documents of a source that its filters keep; of each other one, why it is dropped and what was measured.",
    formats=frozenset({"jsonl"}),
    rows=FilteredRows,
    checks=(FILES, LEDGER),
)
DEDUPLICATED = Kind(
    "stage_a/deduplicated",
    DEDUP_STAGE,
    by_files(_make_deduplicated),
    """Documents of all sources that are nobody's duplicate; a decision for each other one, and all pairs that are near.

    Waits until every source of the recipe is filtered.""",
    formats=frozenset({"jsonl", "parquet"}),
    rows=DeduplicatedRows,
    checks=(FILES, LEDGER, check_beside(removals_within_caps)),
)
SIGNATURES = Kind(
    "stage_a/signatures",
    SIGNATURES_STAGE,
    by_files(_make_signatures),
    "What later corpora are compared by to the documents that stay: hashes, bands and sets of shingles, no text.",
    formats=frozenset({"parquet"}),
)
EVALUATION = Kind(
    "stage_a/evaluation",
    EVALUATION_STAGE,
    _build_raw,
    "The files of an evaluation set, each by its hash; nothing is copied.",
    formats=frozenset({"file"}),
    outside=folder_of,
    preview=preview_inputs,
)
DECONTAMINATED = Kind(
    "stage_a/decontaminated",
    DECONTAMINATION_STAGE,
    by_files(_make_decontaminated),
    """Documents of all sources without items of the evaluation sets; of each that had some, which, and where.

    Waits until every source of the recipe is filtered, all are deduplicated if it asks for that, and every evaluation
    set is there.""",
    formats=frozenset({"jsonl"}),
    rows=DecontaminatedRows,
    checks=(FILES, LEDGER),
)
REPORT = Kind(
    "stage_a/report",
    REPORT_STAGE,
    by_files(_make_report),
    """What all sources hold by source, domain and licence, what became of their rows, what was packed, whom to name.

    Waits until all that the recipe asks for is there.""",
    preview=preview_report,
)
KINDS = (RAW, NORMALIZED, FILTERED, DEDUPLICATED, SIGNATURES, EVALUATION, DECONTAMINATED, PACKED, REPORT)


def signatures_of(deduplicated: Target, folder: Path, recipe: DedupRecipe, export_as: str | None = None) -> Target:
    """The signature store of a deduplicated corpus, which was made by this recipe."""
    return Target(
        kind=SIGNATURES.name,
        name=folder.name,
        folder=folder,
        stage=SIGNATURES.stage,
        recipe={"signatures": recipe.signatures()},
        upstream=(deduplicated,),
        export_as=export_as,
    )


def seen_store(folder: Path) -> Target:
    """A signature store that lies there, made by whatever recipe."""
    return Target(SIGNATURES.name, folder.name, folder, SIGNATURES.stage, {}, partition=folder.name, is_given=True)
