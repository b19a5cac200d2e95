"""Stage A: sources of five kinds → Documents of one schema → filtered → deduplicated → decontaminated → packed, and a
report.
"""

from collections.abc import Iterator

import dagster as dg

from pipeline_assets.checks import checks_of
from pipeline_assets.corpus.normalize.group_manifest import write_group_manifest
from pipeline_assets.corpus.preview import preview_documents, preview_inputs, preview_packed, preview_report
from pipeline_assets.corpus.recipes import stage_a_kinds
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.recipes.stage_a_packing import PACKED
from pipeline_assets.corpus.recipes.stage_a_sources import Source
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.partitions import STAGE_A_EVALUATION_SETS, STAGE_A_SOURCES
from resources.corpus_store import CorpusStore
from resources.hub import Hub


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"huggingface", "file"},
    partitions_def=STAGE_A_SOURCES,
    output_required=False,
    code_version=str(stage_a_kinds.RAW.stage.version),
)
def raw(context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub) -> Iterator[dg.MaterializeResult]:
    """The files of a source, each by its hash: of a hub dataset at the recipe's commit, or of a folder here.

    Nothing is copied; bytes of a hub are fetched into the cache.
    """
    recipe, source = _chosen(context, store)
    target = recipe.raw(source)
    if target is None:
        context.log.info(f"{source.source} is normalised already, in {recipe.normalized(source).folder}")
        return
    yield store.build(context, target, preview_inputs, hub.files(store.root))


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"jsonl"},
    deps=[raw],
    partitions_def=STAGE_A_SOURCES,
    output_required=False,
    code_version=str(stage_a_kinds.NORMALIZED.stage.version),
)
def normalized(context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub) -> Iterator[dg.MaterializeResult]:
    """Documents of a source, in one schema: text, where it came from, its licence and what that rests on.

    Bad rows are kept aside with their reasons; every doc_id is there once.
    """
    recipe, source = _chosen(context, store)
    target = recipe.normalized(source)
    if target.is_given:
        context.log.info(f"{source.source} is normalised already, in {target.folder}")
        return
    result = store.build(context, target, preview_documents, hub.files(store.root))
    write_group_manifest(store.open(target))
    yield result


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"jsonl"},
    deps=[normalized],
    partitions_def=STAGE_A_SOURCES,
    code_version=str(stage_a_kinds.FILTERED.stage.version),
)
def filtered(context: dg.AssetExecutionContext, store: CorpusStore) -> dg.MaterializeResult:
    """The Documents of a source that its filters keep; of each other one, why it is dropped and what was measured."""
    recipe, source = _chosen(context, store)
    return store.build(context, recipe.filtered(source), preview_documents)


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"jsonl", "parquet"},
    deps=[filtered],
    output_required=False,
    code_version=str(stage_a_kinds.DEDUPLICATED.stage.version),
)
def deduplicated(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """Documents of all sources that are nobody's duplicate; a decision for each other one, and all pairs that are near.

    Waits until every source of the recipe is filtered.
    """
    target = store.recipe(StageARecipe).deduplicated()
    if target is None:
        context.log.info("the recipe has no section `dedup`")
    elif not store.waits(context, target):
        yield store.build(context, target, preview_documents)


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"parquet"},
    deps=[deduplicated],
    output_required=False,
    code_version=str(stage_a_kinds.SIGNATURES.stage.version),
)
def signatures(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """What later corpora are compared by to the documents that stay: hashes, bands and sets of shingles, no text."""
    target = store.recipe(StageARecipe).signatures()
    if target is None:
        context.log.info("the recipe doesn't ask for signatures (outputs.signatures)")
    elif not store.waits(context, target):
        yield store.build(context, target)


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"file"},
    partitions_def=STAGE_A_EVALUATION_SETS,
    code_version=str(stage_a_kinds.EVALUATION.stage.version),
)
def evaluation(context: dg.AssetExecutionContext, store: CorpusStore) -> dg.MaterializeResult:
    """The files of an evaluation set, each by its hash; nothing is copied."""
    recipe = store.recipe(StageARecipe)
    targets = {target.partition: target for target in recipe.evaluation()}
    if context.partition_key not in targets:
        names = ", ".join(map(str, targets)) or "none"
        what = f"{context.partition_key} is no evaluation set of recipe {recipe.name}; it has {names}"
        raise dg.Failure(description=what, allow_retries=False)
    return store.build(context, targets[context.partition_key], preview_inputs)


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"jsonl"},
    deps=[filtered, deduplicated, evaluation],
    output_required=False,
    code_version=str(stage_a_kinds.DECONTAMINATED.stage.version),
)
def decontaminated(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """Documents of all sources without items of the evaluation sets; of each that had some, which, and where.

    Waits until every source of the recipe is filtered, all are deduplicated if it asks for that, and every evaluation
    set is there.
    """
    target = store.recipe(StageARecipe).decontaminated()
    if target is None:
        context.log.info("the recipe has no section `decontamination`")
    elif not store.waits(context, target):
        yield store.build(context, target, preview_documents)


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    kinds={"numpy"},
    deps=[filtered, deduplicated, decontaminated],
    output_required=False,
    code_version=str(PACKED.stage.version),
)
def packed(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """Rows of tokens of one length, drawn of all sources by weight, and what tells where each token is from.

    Waits until all that it is drawn from is there.
    """
    target = store.recipe(StageARecipe).packed()
    if target is None:
        context.log.info("the recipe has no section `pack`")
    elif not store.waits(context, target):
        yield store.build(context, target, preview_packed)


@dg.asset(
    key_prefix="stage_a",
    group_name="stage_a",
    deps=[filtered, deduplicated, decontaminated, packed],
    output_required=False,
    code_version=str(stage_a_kinds.REPORT.stage.version),
)
def report(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """What all sources hold by source, domain and licence, what became of their rows, what was packed, whom to name.

    Waits until every source of the recipe is filtered, and all are deduplicated, decontaminated and packed if it asks
    for that.
    """
    target = store.recipe(StageARecipe).report()
    if not store.waits(context, target):
        yield store.build(context, target, preview_report)


def _chosen(context: dg.AssetExecutionContext, store: CorpusStore) -> tuple[StageARecipe, Source]:
    """The recipe, and its source that the partition names. Partitions are those of all recipes of the data root."""
    recipe = store.recipe(StageARecipe)
    key = context.partition_key if context.has_partition_key else None
    source = recipe.source(key) if key is not None else None
    if source is None:
        names = ", ".join(source.source for source in recipe.sources)
        what = f"choose a partition of recipe {recipe.name}: {names}"
        others = [other.name for other in store.recipes(StageARecipe) if key is not None and other.source(key)]
        if others:
            what += f"; {key} is a source of {', '.join(others)}: to build it, set stage_a_recipe in the launchpad"
        raise dg.Failure(description=what, allow_retries=False)
    return recipe, source


def _targets(store: CorpusStore) -> list[Target]:
    return list(store.recipe(StageARecipe).all_targets())


ASSETS = [raw, normalized, filtered, deduplicated, signatures, evaluation, decontaminated, packed, report]

CHECKS = [checks_of(asset, _targets) for asset in ASSETS]
