"""Nemotron: splits of the datasets at a commit → their files → what their rows are → texts → folders for a hub."""

from collections.abc import Iterator

import dagster as dg

from pipeline_assets.checks import checks_of
from pipeline_assets.corpus.nemotron.preview import preview_columns, preview_coverage, preview_rows
from pipeline_assets.corpus.preview import preview_inputs
from pipeline_assets.corpus.recipes import nemotron_kinds
from pipeline_assets.corpus.recipes.nemotron import NemotronRecipe
from pipeline_assets.corpus.recipes.nemotron_dataset import DatasetSection
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.partitions import NEMOTRON_DATASETS, NEMOTRON_SPLITS
from resources.corpus_store import CorpusStore
from resources.hub import Hub

_DATASET_OF_SPLIT = {key: key.partition("/")[0] for key in NEMOTRON_SPLITS.get_partition_keys()}


@dg.asset(
    key_prefix="nemotron",
    group_name="nemotron",
    kinds={"huggingface", "file"},
    partitions_def=NEMOTRON_SPLITS,
    code_version=str(nemotron_kinds.RAW.stage.version),
)
def raw(context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub) -> dg.MaterializeResult:
    """The files of a split, each by its hash: of a hub dataset at the recipe's commit, or of a folder here.

    The dataset's card says which they are, else their names. Nothing is copied.
    """
    recipe, section, split = _chosen(context, store)
    return store.build(context, recipe.raw(section, split), preview_inputs, hub.files(store.root))


@dg.asset(
    key_prefix="nemotron",
    group_name="nemotron",
    deps=[raw],
    partitions_def=NEMOTRON_SPLITS,
    output_required=False,
    code_version=str(nemotron_kinds.INVENTORY.stage.version),
)
def inventory(context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub) -> Iterator[dg.MaterializeResult]:
    """What the rows of a split are: columns, types by role, tags, and the share of rows that have which metadata.

    Of all rows, or of a sample as the recipe asks. Bad rows are kept aside with their reasons.
    """
    recipe, section, split = _chosen(context, store)
    target = recipe.inventory(section, split)
    if target is None:
        context.log.info("the recipe has no section `scan`")
    else:
        yield store.build(context, target, preview_columns, hub.files(store.root))


@dg.asset(
    key_prefix="nemotron",
    group_name="nemotron",
    deps=[inventory],
    output_required=False,
    code_version=str(nemotron_kinds.METADATA_COVERAGE.stage.version),
)
def metadata_coverage(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """The inventories of all splits as one table. Waits until every split of the recipe has its own."""
    target = store.recipe(NemotronRecipe).metadata_coverage()
    if target is None:
        context.log.info("the recipe has no section `scan`")
    elif not store.waits(context, target):
        yield store.build(context, target, preview_coverage)


@dg.asset(
    key_prefix="nemotron",
    group_name="nemotron",
    kinds={"parquet"},
    deps=[raw],
    partitions_def=NEMOTRON_SPLITS,
    output_required=False,
    code_version=str(nemotron_kinds.NORMALIZED_SHARDS.stage.version),
)
def normalized_shards(
    context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub
) -> Iterator[dg.MaterializeResult]:
    """Rows of a split as Harmony texts, with metadata, quality and exact token counts, in one schema.

    Each names the file, the row and the commit that it is from; rows that give no text are kept aside with reasons.
    """
    recipe, section, split = _chosen(context, store)
    target = recipe.normalized_shards(section, split)
    if target is None:
        context.log.info("the recipe has no section `rows`")
    else:
        yield store.build(context, target, preview_rows, hub.files(store.root))


@dg.asset(
    key_prefix="nemotron",
    group_name="nemotron",
    kinds={"parquet"},
    deps=[
        dg.AssetDep(normalized_shards, partition_mapping=dg.StaticPartitionMapping(_DATASET_OF_SPLIT)),
    ],
    partitions_def=NEMOTRON_DATASETS,
    output_required=False,
    code_version=str(nemotron_kinds.HF_LAYOUT.stage.version),
)
def hf_layout(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """The normalised rows of a dataset in one folder, as a hub has them, with its card. Waits for all its splits."""
    recipe = store.recipe(NemotronRecipe)
    section = recipe.dataset(context.partition_key)
    if section is None:
        names = ", ".join(sorted({str(target.partition).partition("/")[0] for target in recipe.targets()}))
        raise dg.Failure(description=f"choose a dataset of recipe {recipe.name}: {names}", allow_retries=False)
    target = recipe.hub_folder(section)
    if target is None:
        context.log.info("the recipe has no section `hf_layout`")
    elif not store.waits(context, target):
        yield store.build(context, target)


def _chosen(context: dg.AssetExecutionContext, store: CorpusStore) -> tuple[NemotronRecipe, DatasetSection, str]:
    """The recipe, and its split that the partition names."""
    recipe = store.recipe(NemotronRecipe)
    key = context.partition_key if context.has_partition_key else None
    chosen = recipe.split(key) if key is not None else None
    if chosen is None:
        names = ", ".join(str(recipe.raw(*one).partition) for one in recipe.all_splits())
        raise dg.Failure(description=f"choose a partition of recipe {recipe.name}: {names}", allow_retries=False)
    return recipe, *chosen


def _targets(store: CorpusStore) -> list[Target]:
    return list(store.recipe(NemotronRecipe).targets())


ASSETS = [raw, inventory, metadata_coverage, normalized_shards, hf_layout]

CHECKS = [
    *(checks_of(asset, _targets) for asset in (raw, inventory, metadata_coverage, hf_layout)),
    checks_of(normalized_shards, _targets, after=[inventory]),
]
