"""Nemotron: splits of the datasets at a commit → their files → what their rows are, and what metadata they cover."""

from collections.abc import Iterator

import dagster as dg

from pipeline_assets.checks import check_of
from pipeline_assets.corpus.nemotron.preview import preview_columns, preview_coverage
from pipeline_assets.corpus.preview import preview_inputs
from pipeline_assets.corpus.recipes import nemotron_kinds
from pipeline_assets.corpus.recipes.nemotron import DatasetSection, NemotronRecipe
from pipeline_assets.corpus.spine.audit import files_match_manifest, ledger_adds_up
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.partitions import NEMOTRON_SPLITS
from resources.corpus_store import CorpusStore
from resources.hub import Hub


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
    code_version=str(nemotron_kinds.INVENTORY.stage.version),
)
def inventory(context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub) -> dg.MaterializeResult:
    """What the rows of a split are: columns, types by role, tags, and the share of rows that have which metadata.

    Of all rows, or of a sample as the recipe asks. Bad rows are kept aside with their reasons.
    """
    recipe, section, split = _chosen(context, store)
    return store.build(context, recipe.inventory(section, split), preview_columns, hub.files(store.root))


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
    missing = [str(one.partition) for one in target.upstream if one.state(store.root)[0] != "current"]
    if missing:
        context.log.info(f"not there yet: {', '.join(missing)}")
        return
    yield store.build(context, target, preview_coverage)


def _chosen(context: dg.AssetExecutionContext, store: CorpusStore) -> tuple[NemotronRecipe, DatasetSection, str]:
    """The recipe, and its split that the partition names."""
    recipe = store.recipe(NemotronRecipe)
    key = context.partition_key if context.has_partition_key else None
    chosen = recipe.split(key) if key is not None else None
    if chosen is None:
        names = ", ".join(str(target.partition) for target in recipe.metadata_coverage().upstream)
        raise dg.Failure(description=f"choose a partition of recipe {recipe.name}: {names}", allow_retries=False)
    return recipe, *chosen


def _targets(store: CorpusStore) -> list[Target]:
    return list(store.recipe(NemotronRecipe).targets())


ASSETS = [raw, inventory, metadata_coverage]

CHECKS = [
    *(check_of(asset, files_match_manifest, _targets, blocking=True) for asset in (inventory, metadata_coverage)),
    check_of(inventory, ledger_adds_up, _targets, blocking=True),
]
