"""Healing: FineWeb-Edu at a commit → selected shards → Megatron token files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.build.builders import Job, file_builder, input_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK, artifact_check
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.rows.documents import SnapshotRows
from pipeline_assets.build.rows.splits import SplitRows
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus import megatron_checks as checks
from pipeline_assets.corpus import megatron_split as splits
from pipeline_assets.corpus import training_set
from pipeline_assets.corpus.readers.listing import Forecast, Listing
from pipeline_assets.corpus.snapshot.convert import SNAPSHOT_STAGE, take_snapshot
from pipeline_assets.corpus.snapshot.listing import list_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult


class HealingRecipe(Recipe):
    """Recipe of the healing set: FineWeb-Edu sample, shard selection, token files."""

    system: Literal["healing"]
    snapshot: SnapshotRecipe
    selection: training_set.SelectionRecipe = training_set.SelectionRecipe()
    megatron: splits.MegatronRecipe

    def fineweb_edu_snapshot(self) -> Target:
        """Return the target of the snapshot.

        Its folder depends only on the snapshot's name and commit, so that several recipes can share one snapshot.
        """
        name, revision = self.snapshot.name, self.snapshot.revision
        return FINEWEB_EDU_SNAPSHOT.target(
            f"{name}_{revision}",
            self.snapshot.output_content(),
            folder=Path("corpora", name, revision),
            name_key="snapshot.name",
            intended_use=self._intended_use(),
            copy_name=f"{name}_{revision}.json",
        )

    def healing_text_manifest(self) -> Target:
        """Return the target that selects shards of the snapshot."""
        return HEALING_TEXT_MANIFEST.target(
            self.name,
            {**self.selection.content(), "valid_fraction": self.megatron.valid_fraction},
            [self.fineweb_edu_snapshot()],
            folder=Path("selections", self.name),
            intended_use=self._intended_use(),
            copy_name=f"{self.name}.json",
        )

    def megatron_split(self, split: training_set.Split) -> Target:
        """Return the target of one split's token files."""
        return MEGATRON_SPLIT.target(
            self.name,
            {**self.megatron.content(), "split": split},
            [self.healing_text_manifest()],
            partition=split,
            folder=Path("megatron", self.name, split),
            tokenizer=self.megatron.tokenizer.content(),
            copy_name=f"{self.name}_{split}.json",
        )

    def megatron_dataset(self) -> Target:
        """Return the target of the dataset, whose digest covers both splits."""
        return MEGATRON_DATASET.target(
            self.name,
            self.megatron.content(),
            [self.healing_text_manifest(), *map(self.megatron_split, training_set.SPLITS)],
            folder=Path("megatron", self.name),
            tokenizer=self.megatron.tokenizer.content(),
            copy_name=f"{self.name}_megatron.json",
        )

    def final_targets(self) -> list[Target]:
        return [self.megatron_dataset()]

    def revisions(self) -> list[tuple[str, str]]:
        return [(self.snapshot.dataset, self.snapshot.revision)]

    def _intended_use(self) -> dict[str, Any]:
        return {"recipe": self.name, **self.megatron.describe()}


def _take_snapshot(job: Job) -> BuildResult:
    recipe, hub = SnapshotRecipe.from_output_content(job.recipe), job.run.require_hub("a snapshot")
    return take_snapshot(job.staging, hub, recipe, job.run.settings, job.removals)


def _list_snapshot(target: Target, run: Run) -> Listing:
    recipe, hub = SnapshotRecipe.from_output_content(target.recipe), run.require_hub("a snapshot")
    return list_snapshot(hub, recipe, run.settings)


FINEWEB_EDU_SNAPSHOT = Kind(
    "healing/fineweb_edu_snapshot",
    SNAPSHOT_STAGE,
    file_builder(_take_snapshot),
    """Documents of FineWeb-Edu at the recipe's commit, sampled by row group over all dumps.

    Each document names its input file and row. Rows that fail a rule are counted; bad rows are stored as rejects.""",
    formats=frozenset({"huggingface", "jsonl"}),
    checks=(FILES_CHECK, LEDGER_CHECK),
    row_store_class=SnapshotRows,
    planner=Planner(_list_snapshot),
    applies_removals=True,
)


def _select(job: Job) -> BuildResult:
    [snapshot] = job.upstream
    return training_set.select_shards(snapshot, training_set.TextRecipe.from_content(job.recipe))


HEALING_TEXT_MANIFEST = Kind(
    "healing/healing_text_manifest",
    training_set.SELECTION_STAGE,
    file_builder(_select),
    "Selection of the snapshot's shards that the healing set uses, each hashed again, with their totals.",
    preview=training_set.preview_selection,
    checks=(FILES_CHECK,),
)


def _encode(job: Job) -> BuildResult:
    [selection], [selection_target] = job.upstream, job.target.upstream
    [snapshot], [snapshot_target] = selection.manifest.identity.inputs, selection_target.upstream
    corpus = open_artifact(job.run.root / snapshot_target.folder, snapshot["digest"])
    shards = training_set.read_selection(selection.manifest)
    recipe = splits.MegatronRecipe.from_content({key: value for key, value in job.recipe.items() if key != "split"})
    return splits.build_split(job.staging, corpus, shards, recipe, job.recipe["split"], job.run.settings)


def _budgeted_tokens(recipe: Mapping[str, Any]) -> Forecast:
    budget = training_set.split_budget(recipe["token_budget"], recipe["valid_fraction"], recipe["split"])
    return Forecast(budget, "`megatron.token_budget`")


MEGATRON_SPLIT = Kind(
    "healing/megatron_split",
    splits.SPLIT_STAGE,
    file_builder(_encode),
    "Megatron token files of one split: o200k Harmony ids, one sequence per document, cut at the token budget.",
    formats=frozenset({"megatron"}),
    row_store_class=SplitRows,
    planner=Planner(plan_tokens=_budgeted_tokens),
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        *map(artifact_check, (checks.index_reads_back, checks.ids_in_range, checks.token_budget_met)),
    ),
)


def _join_splits(target: Target, run: Run) -> BuildResult:
    _, *upstream = target.upstream
    opened = {str(split.partition): open_artifact(run.root / split.folder) for split in upstream}
    return splits.describe_dataset(opened, splits.MegatronRecipe.from_content(target.recipe))


MEGATRON_DATASET = Kind(
    "healing/megatron_dataset",
    splits.DATASET_STAGE,
    input_builder(_join_splits),
    "Train and valid splits under one digest, which a training run can name.",
    checks=(
        FILES_CHECK,
        artifact_check(checks.no_document_in_both_splits),
        # Some corpora miss the interval by chance, and a rebuild cannot change that.
        artifact_check(checks.valid_fraction_is_plausible, is_blocking=False),
        artifact_check(checks.no_valid_text_in_train, is_blocking=False),
    ),
)
RECIPE = HealingRecipe
KINDS = (FINEWEB_EDU_SNAPSHOT, HEALING_TEXT_MANIFEST, MEGATRON_SPLIT, MEGATRON_DATASET)
