"""Healing: FineWeb-Edu at a pinned commit → Document shards → Megatron train and valid splits."""

from collections.abc import Iterator

import dagster as dg

from pipeline_assets.checks import checks_of
from pipeline_assets.corpus.preview import preview_documents, preview_selection, preview_split
from pipeline_assets.corpus.recipes import healing_kinds
from pipeline_assets.corpus.recipes.healing import HealingRecipe
from pipeline_assets.corpus.sampling.split import SPLITS
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.partitions import MEGATRON_SPLITS
from resources.corpus_store import CorpusStore
from resources.hub import Hub


@dg.asset(
    key_prefix="healing",
    group_name="healing",
    kinds={"huggingface", "jsonl"},
    code_version=str(healing_kinds.FINEWEB_EDU_SNAPSHOT.stage.version),
)
def fineweb_edu_snapshot(context: dg.AssetExecutionContext, store: CorpusStore, hub: Hub) -> dg.MaterializeResult:
    """Documents of FineWeb-Edu at the recipe's commit, sampled by row group over all dumps.

    Each document names the file and row it came from. Rows that fail a rule are counted, bad rows are kept aside.
    """
    target = store.recipe(HealingRecipe).fineweb_edu_snapshot()
    return store.build(context, target, preview_documents, hub.files(store.root))


@dg.asset(
    key_prefix="healing",
    group_name="healing",
    deps=[fineweb_edu_snapshot],
    code_version=str(healing_kinds.HEALING_TEXT_MANIFEST.stage.version),
)
def healing_text_manifest(context: dg.AssetExecutionContext, store: CorpusStore) -> dg.MaterializeResult:
    """Which shards of the snapshot the healing set is made of, each hashed again, and what holds for all of them."""
    return store.build(context, store.recipe(HealingRecipe).healing_text_manifest(), preview_selection)


@dg.asset(
    key_prefix="healing",
    group_name="healing",
    kinds={"megatron"},
    deps=[healing_text_manifest],
    partitions_def=MEGATRON_SPLITS,
    code_version=str(healing_kinds.MEGATRON_SPLIT.stage.version),
)
def megatron_split(context: dg.AssetExecutionContext, store: CorpusStore) -> dg.MaterializeResult:
    """Megatron token files of one split: o200k Harmony ids, one sequence a document, cut at the token budget."""
    split = next((split for split in SPLITS if context.has_partition_key and split == context.partition_key), None)
    if split is None:
        raise dg.Failure(description=f"choose a partition: {' or '.join(SPLITS)}", allow_retries=False)
    return store.build(context, store.recipe(HealingRecipe).megatron_split(split), preview_split)


@dg.asset(
    key_prefix="healing",
    group_name="healing",
    deps=[healing_text_manifest, megatron_split],
    output_required=False,
    code_version=str(healing_kinds.MEGATRON_DATASET.stage.version),
)
def megatron_dataset(context: dg.AssetExecutionContext, store: CorpusStore) -> Iterator[dg.MaterializeResult]:
    """Both splits under one digest: what a training run names. Waits until train and valid are there."""
    target = store.recipe(HealingRecipe).megatron_dataset()
    if not store.waits(context, target):
        yield store.build(context, target)


def _targets(store: CorpusStore) -> list[Target]:
    return store.recipe(HealingRecipe).targets()


ASSETS = [fineweb_edu_snapshot, healing_text_manifest, megatron_split, megatron_dataset]

CHECKS = [checks_of(asset, _targets) for asset in ASSETS]
