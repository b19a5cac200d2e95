"""Nemotron: distilled datasets → Harmony rows → deduplicated → pools for scoring."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK, artifact_check, context_check
from pipeline_assets.build.pins import source_pin, split_pin
from pipeline_assets.build.pins.model_pin import ScoringSection, list_hub_inputs, template_files
from pipeline_assets.build.pins.raw_pin import pin_kind
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.rows import conversations
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.decontamination.recipe import DECONTAMINATION_STAGE, DecontaminationSection
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.nemotron import row_checks, sections
from pipeline_assets.corpus.nemotron.dataset_section import DatasetSection, SplitSource
from pipeline_assets.corpus.nemotron.hf_layout import HF_LAYOUT_STAGE, lay_out
from pipeline_assets.corpus.nemotron.inventory import INVENTORY_STAGE, take_inventory
from pipeline_assets.corpus.nemotron.pool_report import POOL_REPORT_STAGE, preview_pools, report_on_pools
from pipeline_assets.corpus.nemotron.pools import build_pools
from pipeline_assets.corpus.nemotron.pools_recipe import POOLS_STAGE, PoolsRecipe, SealedPools, describe_quotas
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE, RowsRecipe, rows_recipe
from pipeline_assets.corpus.nemotron.splits import dataset_of_partition, partition_key
from pipeline_assets.corpus.normalize.sources import check_folders
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.corpus.publishing.dataset_card import CardContent, collect_splits_and_sources, dataset_card
from pipeline_assets.corpus.publishing.publish import preview_publication, publish_sealed
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE
from pipeline_assets.corpus.scoring.recipe import MIN_BATCH_TOKENS
from pipeline_assets.corpus.scoring.subset_recipe import SubsetsRecipe
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.systems import early_checks
from pipeline_assets.systems.coverage_check import coverage_within_inventory
from pipeline_assets.systems.evaluation import decontaminate, evaluation_targets
from pipeline_assets.systems.model_checks import check_models
from pipeline_assets.systems.scoring import SCORING_KINDS, score_targets, template_targets


class NemotronRecipe(Recipe):
    """Recipe of distilled datasets; the artifacts of a missing section are not built.

    Attributes:
        sealed_pools: Pools of other recipes, which are scored in addition to the pools of `datasets`.
    """

    system: Literal["nemotron"]
    scan: sections.Scan | None = None
    rows: RowsRecipe | None = None
    deduplicate: sections.DeduplicateRecipe | None = None
    decontamination: DecontaminationSection | None = None
    pools: PoolsRecipe | None = None
    publish: sections.PublishRecipe | None = None
    scoring: ScoringSection | None = None
    subsets: SubsetsRecipe | None = None
    hf_layout: sections.HubLayoutSection | None = None
    datasets: Annotated[tuple[DatasetSection, ...], pydantic.Field(strict=False)] = ()
    sealed_pools: Annotated[tuple[SealedPools, ...], pydantic.Field(strict=False)] = ()

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[RecipeProblem]:
        yield from sections.check_sections(values)
        if root is not None:
            yield from check_folders(values, root)

    def warnings(self) -> Iterator[str]:
        yield from super().warnings()
        yield from sections.recipe_warnings(self.datasets, self.rows, self.publish)
        if self.scoring is not None and self.scoring.batch_tokens < MIN_BATCH_TOKENS:
            yield f"scoring.batch_tokens is {self.scoring.batch_tokens}; it counts tokens, not rows of a batch"

    def final_targets(self) -> list[Target]:
        rows, inventories, scored = list[Target](), list[Target](), dict[str, Target]()
        for section, split in self.all_splits():
            raw, inventory = self._raw_target(section, split), list[Target]()
            if self.scan is not None:
                inventory.append(INVENTORY.target(self.name, self.scan.content(), [raw], partition=raw.partition))
            inventories += inventory
            scored[str(raw.partition)] = raw
            if self.rows is not None:
                content = section.output_content(split) | {"rows": self.rows.content_without_tokenizer()}
                sources = [raw, *(self._raw_target(*seeds) for seeds in section.seed_splits())]
                sources += template_targets(self.name, self.rows.chat_template)
                named: dict[str, Any] = {"tokenizer": self.rows.tokenizer_content, "checked_against": tuple(inventory)}
                rows.append(NORMALIZED_SHARDS.target(self.name, content, sources, partition=raw.partition, **named))
        targets = [*(rows or inventories)]
        if self.deduplicate is not None:
            kept = deduplicated_targets(self.name, rows, self.deduplicate, self.decontamination)
            targets += kept
            if self.pools is not None:
                pooled = pool_targets(self.name, kept, self.pools, self.publish)
                targets += pooled
                pools = {target.partition: target for target in pooled if target.kind.name == CANDIDATE_POOLS.name}
                scored = {split: pools[dataset_of_partition(split)] for split in scored}
        for sealed in self.sealed_pools:
            scored |= {f"{sealed.dataset}/{split}": external_pools(sealed) for split in sealed.splits}
        if self.scoring is not None:
            targets += score_targets(self.name, scored, self.scoring, self.subsets)
        if self.hf_layout is not None:
            layout, datasets = self.hf_layout.content(), group_by_dataset(rows).items()
            targets += [HF_LAYOUT.target(self.name, layout, shards, partition=name) for name, shards in datasets]
        return targets

    def check_prerequisites(self, root: Path, targets: Sequence[Target] | None = None) -> None:
        targets = self.targets() if targets is None else targets
        early_checks.check_inputs(targets, root)
        check_models(targets, root)
        near = self.deduplicate.near if self.deduplicate else None
        early_checks.check_faiss_installed(near, "deduplicate", targets, root)
        early_checks.check_evaluation_sets(self.decontamination, targets, root)

    def _raw_target(self, section: SplitSource, split: str) -> Target:
        patterns = {name: list(files) for name, files in section.files.items() if name == split}
        content: dict[str, Any] = {"dataset": section.dataset, "split": split, "files": patterns}
        partition = partition_key(section.dataset, split)
        if section.path is None:
            return RAW.target(self.name, content | {"revision": section.revision}, partition=partition)
        folder = split_pin.SplitFolder(Path(section.path), split, patterns)
        return RAW.target(self.name, content, partition=partition, external_inputs=folder)

    def all_splits(self) -> list[tuple[DatasetSection, str]]:
        """List (dataset section, split name) for all splits, in recipe order."""
        return [(section, split) for section in self.datasets for split in section.splits]

    def revisions(self) -> list[tuple[str, str]]:
        return [revision for section in self.datasets for revision in section.revisions()]


def external_pools(section: SealedPools) -> Target:
    """Return the target of pools that another recipe built and this recipe scores."""
    folder, dataset = Path(section.folder), section.dataset
    return CANDIDATE_POOLS.target(dataset, {}, partition=dataset, folder=folder, is_external=True, copy_name=None)


def deduplicated_targets(
    name: str, rows: Sequence[Target], rules: sections.DeduplicateRecipe, decontamination: DecontaminationSection | None
) -> list[Target]:
    """Return a target of deduplicated rows for each split of normalized rows.

    `decontamination` drops rows whose prompts contain an item of an evaluation set; None skips this step.
    """
    near, kept = rules.prompt_dedup_recipe(), list[Target]()
    scopes: dict[str | None, list[Target]] = {}
    for target in rows:
        scopes.setdefault(rules.scope_for(str(target.partition)), []).append(target)
    for scope, splits in scopes.items():
        prompts: list[Target] = []
        for split in splits:
            content = {"split": split.partition, "min_completion_tokens": rules.min_completion_tokens}
            prompts.append(PROMPTS.target(name, content, [split, *prompts], partition=split.partition))
        steps = [splits, prompts]
        if decontamination is not None:
            evaluation = evaluation_targets(decontamination, name, Path("nemotron", name, "evaluation"))
            content = decontamination.output_content()
            clean = [DECONTAMINATED.target(name, content, [p, *evaluation], partition=p.partition) for p in prompts]
            steps.append(clean)
        decided = [] if near is None else [NEAR_DUPLICATES.target(name, {"dedup": near}, steps[-1], partition=scope)]
        for split, *step in zip(*steps, strict=True):
            content = {"split": split.partition, "near_duplicates": None if near is None else rules.near_duplicates}
            kept.append(DEDUPLICATED.target(name, content, [split, *step, *decided], partition=split.partition))
    return kept


def pool_targets(
    recipe_name: str, row_targets: Sequence[Target], section: PoolsRecipe, publish: sections.PublishRecipe | None
) -> list[Target]:
    """Return the targets of each dataset's pools, then of the report and publications."""
    datasets, content = group_by_dataset(row_targets), {"pools": section.content()}
    pools = [CANDIDATE_POOLS.target(recipe_name, content, splits, partition=name) for name, splits in datasets.items()]
    targets = [*pools, POOL_REPORT.target(recipe_name, {}, pools)]
    if publish is not None:
        for name, pool in zip(datasets, pools, strict=True):
            targets.append(PUBLISHED_POOLS.target(recipe_name, publish.recipe_content(name), [pool], partition=name))
    return targets


def group_by_dataset(split_targets: Sequence[Target]) -> dict[str, list[Target]]:
    """Group targets of splits by the name of their dataset."""
    datasets: dict[str, list[Target]] = {}
    for target in split_targets:
        datasets.setdefault(dataset_of_partition(str(target.partition)), []).append(target)
    return datasets


RAW = pin_kind(
    "nemotron/raw",
    split_pin.SPLIT_STAGE,
    """Files of a split, pinned by their hashes: of a hub dataset at the recipe's commit, or of a local folder.

    They are found by the dataset's card, otherwise by their names. The files are not copied.""",
    split_pin.find_hub_split,
    split_pin.restore_split_folder,
)


def _take_inventory(job: Job) -> BuildResult:
    [raw], [pin], max_rows = job.target.upstream, job.upstream, job.recipe["max_rows"]
    with split_pin.split_files(raw, job.run, job.staging, max_rows) as files:
        return take_inventory(job.staging, files, pin.manifest.identity, max_rows, job.run.settings)


INVENTORY = Kind(
    "nemotron/inventory",
    INVENTORY_STAGE,
    file_builder(_take_inventory),
    """Census of a split's rows: columns, types by role, tags, and the share of rows with each kind of metadata.

    Counts all rows or a sample, as JSON and as a page. Unusable rows are stored as rejects with their reasons.""",
    checks=(FILES_CHECK, LEDGER_CHECK),
    preview=row_checks.preview_columns,
    planner=Planner(list_hub_inputs),
)


def _normalise(job: Job) -> BuildResult:
    from pipeline_assets.corpus.nemotron.normalise_split import normalise_split, row_origin  # loads the tokenizer

    [raw, *others], [pin, *_], recipe, run = job.target.upstream, job.upstream, job.recipe, job.run
    rules = rows_recipe(recipe, job.target.tokenizer)
    origin = row_origin(pin.manifest.identity, recipe["subset"], recipe["domain"])
    seeds = [other for other in others if other.kind.name == RAW.name]
    with split_pin.split_files(raw, run, job.staging, rules.max_rows) as files, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(split_pin.split_files(seed, run, job.staging, None)) for seed in seeds]
        prompts = [*zip(recipe.get("prompts", ()), opened, strict=True)]
        chat = stack.enter_context(template_files(others[len(seeds) :], rules.chat_template, run, job.staging))
        return normalise_split(job.staging, files, origin, rules, run.settings, job.removals, prompts, chat)


NORMALIZED_SHARDS = Kind(
    "nemotron/normalized_shards",
    NORMALISE_STAGE,
    file_builder(_normalise),
    """Rows of a split as rendered texts, with metadata, quality and exact token counts, in one schema.

    Each row has its file, row and commit. Rows without a text are stored as rejects with their reasons.""",
    formats=frozenset({"parquet"}),
    row_store_class=conversations.ConversationRows,
    planner=Planner(list_hub_inputs),
    applies_removals=True,
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        *map(artifact_check, (row_checks.texts_parse, row_checks.tokens_round_trip)),
        context_check(coverage_within_inventory, is_blocking=False),
    ),
)


def _gather_prompts(job: Job) -> BuildResult:
    from pipeline_assets.corpus.nemotron.prompts import PromptRules, gather_prompts

    [rows, *earlier] = job.upstream
    system = rows_recipe(rows.manifest.identity.recipe, rows.manifest.identity.tokenizer).system_content
    rules = PromptRules(job.recipe["split"], system, job.recipe["min_completion_tokens"])
    return gather_prompts(job.staging, rows, earlier, rules, job.run.settings)


PROMPTS = Kind(
    "nemotron/prompts",
    sections.PROMPTS_STAGE,
    file_builder(_gather_prompts),
    """Prompts of a split's usable rows as Documents, and dropped rows with reasons.

    Dropped are rows with invalid Harmony, a short completion, calls that do not fit their tools, or repeated text.""",
    formats=frozenset({"jsonl"}),
    row_store_class=conversations.PromptRows,
    checks=(FILES_CHECK, LEDGER_CHECK),
)


DECONTAMINATED = Kind(
    "nemotron/decontaminated",
    DECONTAMINATION_STAGE,
    file_builder(lambda job: decontaminate(job, PROMPTS, may_be_empty=True)),
    "Prompts of a split without items of evaluation sets; each dropped prompt is listed with the item's position.",
    formats=frozenset({"jsonl"}),
    row_store_class=conversations.DecontaminatedPrompts,
    planner=Planner(source_pin.list_missing_inputs),
    checks=(FILES_CHECK, LEDGER_CHECK),
)


def _find_near_duplicates(job: Job) -> BuildResult:
    from pipeline_assets.corpus.dedup.dedup_corpus import dedup_corpus

    recipe = DedupRecipe.from_content(job.recipe["dedup"])
    return dedup_corpus(job.staging, job.upstream_by_name(), recipe, job.run.settings)


NEAR_DUPLICATES = Kind(
    "nemotron/near_duplicates",
    DEDUP_STAGE,
    file_builder(_find_near_duplicates),
    "Near duplicates among the prompts of a split, a dataset or all datasets: decisions and similar pairs.",
    formats=frozenset({"jsonl", "parquet"}),
    row_store_class=conversations.DeduplicatedPrompts,
    checks=(FILES_CHECK, LEDGER_CHECK),
)


def _deduplicate(job: Job) -> BuildResult:
    from pipeline_assets.corpus.nemotron.deduplicate import deduplicate_split

    [rows, prompts, *_], drops = job.upstream, job.recipe["near_duplicates"] == "drop"
    clean, near = (next(iter(job.upstream_by_name(kind).values()), None) for kind in (DECONTAMINATED, NEAR_DUPLICATES))
    return deduplicate_split(job.staging, rows, prompts, clean, near, job.recipe["split"], drops, job.run.settings)


DEDUPLICATED = Kind(
    "nemotron/deduplicated",
    sections.DEDUPLICATED_STAGE,
    file_builder(_deduplicate),
    """Kept rows of a split; near duplicates are tagged, or dropped if the recipe requests it.

    Dropped rows are stored with their reasons.""",
    formats=frozenset({"parquet"}),
    row_store_class=conversations.KeptConversations,
    checks=(FILES_CHECK, LEDGER_CHECK),
)


def _build_pools(job: Job) -> BuildResult:
    splits = {name.partition("/")[2]: rows for name, rows in job.upstream_by_name().items()}
    return build_pools(job.staging, splits, PoolsRecipe.from_content(job.recipe["pools"]), job.run.settings)


CANDIDATE_POOLS = Kind(
    "nemotron/candidate_pools",
    POOLS_STAGE,
    file_builder(_build_pools),
    """Rows of a dataset that are worth scoring, in a folder for each purpose; a row may be in several.

    Requires all splits of the dataset. Removing a row changes one file of each pool that contains it.""",
    formats=frozenset({"parquet"}),
    labels=(CARD_FILE,),
    row_store_class=conversations.PoolRows,
    planner=Planner(describe_limits=describe_quotas),
    checks=(FILES_CHECK, LEDGER_CHECK, artifact_check(row_checks.pools_have_rows, is_blocking=False)),
)


POOL_REPORT = Kind(
    "nemotron/pool_report",
    POOL_REPORT_STAGE,
    file_builder(lambda job: report_on_pools(job.staging, job.upstream_by_name(), job.run.settings)),
    "Sizes, shared rows and contents of the pools of all datasets. Requires all datasets.",
    labels=(REPORT_HTML,),
    preview=preview_pools,
    checks=(FILES_CHECK,),
)


def _publish(job: Job) -> BuildResult:
    [pools], recipe = job.upstream, sections.PublishRecipe.from_content(job.recipe)
    hub = job.run.require_hub("the publication") if job.run.publishes else None
    return publish_sealed(job.staging, pools, hub, recipe, replaces=job.run.replace)


PUBLISHED_POOLS = Kind(
    "nemotron/published_pools",
    sections.PUBLISH_STAGE,
    file_builder(_publish),
    """Pools of a dataset, published as a hub dataset with a config for each pool, and verified by reading them back.

    The token is the user's HF_TOKEN. An interrupted publication continues in the next run.""",
    formats=frozenset({"huggingface"}),
    preview=preview_publication,
    checks=(FILES_CHECK,),
)


def _lay_out(job: Job) -> BuildResult:
    name, splits = job.target.folder.name, job.upstream
    card = CardContent(name, name, *collect_splits_and_sources(splits), [split.manifest for split in splits])
    return lay_out(job.staging, splits, dataset_card(card) if job.recipe["readme"] else None)


HF_LAYOUT = Kind(
    "nemotron/hf_layout",
    HF_LAYOUT_STAGE,
    file_builder(_lay_out),
    "Normalized rows of a dataset with a card, in the folder layout of a hub dataset. Requires all its splits.",
    formats=frozenset({"parquet"}),
    labels=(CARD_FILE,),
    row_store_class=conversations.LayoutRows,
    checks=(FILES_CHECK,),
)
RECIPE = NemotronRecipe
KINDS = (
    *(RAW, INVENTORY, NORMALIZED_SHARDS, PROMPTS, DECONTAMINATED, NEAR_DUPLICATES),
    *(DEDUPLICATED, CANDIDATE_POOLS, POOL_REPORT, PUBLISHED_POOLS, HF_LAYOUT, *SCORING_KINDS),
)
