"""Healing: FineWeb-Edu at a pinned commit → Document shards → Megatron train and valid splits."""

from collections.abc import Iterator

import dagster as dg

from pipeline_assets.checks import check_of
from pipeline_assets.corpus.megatron_audit import (
    ids_in_range,
    index_reads_back,
    no_document_in_both_splits,
    no_valid_text_in_train,
    token_budget_met,
    valid_fraction_is_plausible,
)
from pipeline_assets.corpus.preview import preview_documents, preview_selection, preview_split
from pipeline_assets.corpus.recipes import healing_kinds
from pipeline_assets.corpus.recipes.healing import HealingRecipe
from pipeline_assets.corpus.recipes.systems import files_match_manifest
from pipeline_assets.corpus.sampling.split import SPLITS
from pipeline_assets.corpus.spine.audit import ledger_adds_up
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
    recipe = store.recipe(HealingRecipe)
    splits = {split: recipe.megatron_split(split) for split in SPLITS}
    missing = [split for split, target in splits.items() if target.state(store.root)[0] != "current"]
    if missing:
        context.log.info(f"not sealed yet: {', '.join(missing)} is missing or stale")
        return
    yield store.build(context, recipe.megatron_dataset())


def _targets(store: CorpusStore) -> list[Target]:
    return store.recipe(HealingRecipe).targets()


ASSETS = [fineweb_edu_snapshot, healing_text_manifest, megatron_split, megatron_dataset]

CHECKS = [
    *(check_of(asset, files_match_manifest, _targets, blocking=True) for asset in ASSETS),
    *(check_of(asset, ledger_adds_up, _targets, blocking=True) for asset in (fineweb_edu_snapshot, megatron_split)),
    check_of(megatron_split, index_reads_back, _targets, blocking=True),
    check_of(megatron_split, ids_in_range, _targets, blocking=True),
    check_of(megatron_split, token_budget_met, _targets),
    check_of(megatron_dataset, no_document_in_both_splits, _targets),
    check_of(megatron_dataset, valid_fraction_is_plausible, _targets),
    check_of(megatron_dataset, no_valid_text_in_train, _targets, severity=dg.AssetCheckSeverity.WARN),
]
