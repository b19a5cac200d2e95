"""Nemotron's scores: pools → scores under a language model → training subsets."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK, artifact_check, context_check
from pipeline_assets.build.pins import model_pin, raw_pin, split_pin
from pipeline_assets.build.pins.model_pin import ScoringSection
from pipeline_assets.build.rows.conversations import SubsetRows
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.nemotron.pools import source_split
from pipeline_assets.corpus.nemotron.rows_recipe import ChatTemplateSection
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.corpus.scoring import scores
from pipeline_assets.corpus.scoring.launcher import HubFileSet, ScoreWork
from pipeline_assets.corpus.scoring.pool_selection import Selection, first_template, is_harmony_pool, select_rows
from pipeline_assets.corpus.scoring.recipe import SCORES_STAGE, ScoringRecipe
from pipeline_assets.corpus.scoring.score_report import SCORE_REPORT_STAGE, preview_scores, report_on_scores
from pipeline_assets.corpus.scoring.score_shard import Scorer
from pipeline_assets.corpus.scoring.score_split import local_runner, score_split, write_no_scores
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.corpus.scoring.subset_recipe import SUBSETS_STAGE, SubsetsRecipe
from pipeline_assets.corpus.scoring.subsets import choose_subsets
from pipeline_assets.corpus.tokens.hf_tokenizer import load_model_tokenizer
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import run_unfinished_shards
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.staging import WORK_FOLDER, StagingView
from pipeline_assets.systems.checks import unknown_tokens_within_limit

_RAW_KIND_NAME = "nemotron/raw"


def score_targets(
    recipe_name: str, targets_by_split: Mapping[str, Target], section: ScoringSection, subsets: SubsetsRecipe | None
) -> list[Target]:
    """Return the targets of scores, their report and, if requested, training subsets.

    `targets_by_split` maps each split (`dataset/split`) to the target of the rows to score: candidate pools of the
    dataset, or raw files of the split.
    """
    model = MODEL.target(recipe_name, section.model.pinned_content(), external_inputs=section.model.folder())
    limit = LossLimit(section.max_unknown_fraction)
    nll_targets = []
    for name, target in targets_by_split.items():
        content = section.recipe_content(name.partition("/")[2])
        nll_targets.append(NLL_SCORES.target(recipe_name, content, [target, model], partition=name, count_limit=limit))
    return [*nll_targets, *report_and_subset_targets(recipe_name, nll_targets, subsets)]


def report_and_subset_targets(
    recipe_name: str, nll_targets: Sequence[Target], subsets: SubsetsRecipe | None
) -> list[Target]:
    """Return the targets of the report on scores, and of subsets if requested."""
    pools = {target.upstream[0].role: target.upstream[0] for target in nll_targets}
    upstream = [*nll_targets, *pools.values()]
    targets = [SCORE_REPORT.target(recipe_name, {}, upstream)]
    if subsets is not None:
        targets.append(TRAINING_SUBSETS.target(recipe_name, subsets.content(), upstream))
    return targets


MODEL = raw_pin.pin_kind(
    "nemotron/model",
    model_pin.MODEL_STAGE,
    """Files of the scoring model, pinned by their hashes: of a hub model at a commit, or of a local folder.

    The files are not copied. Models with their own code, or with weights that can run code, are refused.""",
    model_pin.find_hub_model,
    model_pin.restore_model_folder,
)


CHAT_TEMPLATE = replace(
    MODEL,
    name="nemotron/chat_template",
    stage=model_pin.TEMPLATE_STAGE,
    description="Chat template and tokenizer of a model, pinned by their hashes: "
    "on a hub at a commit, or in a local folder.",
)


def template_targets(recipe_name: str, section: ChatTemplateSection | None) -> list[Target]:
    """List the target that pins a chat template; empty if `section` is None."""
    if section is None:
        return []
    if section.path is not None:
        folder = model_pin.ModelFolder(Path(section.path), is_template_only=True)
        return [CHAT_TEMPLATE.target(recipe_name, {}, external_inputs=folder)]
    return [CHAT_TEMPLATE.target(recipe_name, {"name": section.model, "revision": section.revision})]


def _score(job: Job) -> BuildResult:
    [pools, model], [_, pinned] = job.target.upstream, job.upstream
    recipe, run = ScoringRecipe.from_content(job.recipe["scoring"]), job.run
    source, digest = pinned.manifest.identity.recipe, pinned.manifest.digest
    name = f"{source['name']}@{source['revision']}" if "revision" in source else digest
    with contextlib.ExitStack() as opened:
        files = opened.enter_context(_pool_files(pools, job.recipe["split"], run, job.staging))
        if not files:
            if pools.is_external:
                raise missing_split_error(open_artifact(run.root / pools.folder), job.recipe["split"])
            return write_no_scores(job.staging, name, recipe)
        selection = select_rows(files, recipe.max_rows)
        if run.remote_launcher is None:
            folder = opened.enter_context(model_pin.model_folder(model, run, job.staging))
            locks = job.staging.path(f"{WORK_FOLDER}/gpus")
            scorer = Scorer(digest, recipe, folder, run.settings.vocabulary, locks, is_harmony_pool(files.values()))
            run_stage = local_runner(scorer, run.settings)
            return score_split(job.staging, files, selection, name, folder, recipe, run_stage)
        work = _work_of_split(job.target, run, files, selection)
        launcher = opened.enter_context(run.remote_launcher.open_launcher(work, job.staging))
        run_stage = functools.partial(run_unfinished_shards, settings=run.settings, runner=launcher.run)
        result = score_split(job.staging, files, selection, name, name, recipe, run_stage)
        return replace(result, provenance={**result.provenance, **launcher.provenance()})


def describe_work(target: Target, run: Run, folder: StagingView) -> ScoreWork:
    """Describe the work of scoring a target, for an estimate of its cost.

    The rows to score and the pin of the model must be sealed.
    """
    max_rows = ScoringRecipe.from_content(target.recipe["scoring"]).max_rows
    with _pool_files(target.upstream[0], target.recipe["split"], run, folder) as files:
        return _work_of_split(target, run, files, select_rows(files, max_rows))


def _work_of_split(target: Target, run: Run, files: Mapping[str, Path], selection: Selection) -> ScoreWork:
    recipe, model = ScoringRecipe.from_content(target.recipe["scoring"]), target.upstream[1]
    model_pin.raise_if_unsupported(model, run, recipe, first_template(files.values()))
    pools, weights = (_pinned_hub_files(upstream, run) for upstream in target.upstream)
    split = str(target.partition or target.recipe["split"])
    digest = open_artifact(run.root / model.folder).manifest.digest
    return ScoreWork(split, recipe, pools, weights, digest, selection.row_count, selection.text_bytes(files))


def _pinned_hub_files(target: Target, run: Run) -> HubFileSet | None:
    """Return the hub files that a target pins; None for local files and built pools."""
    if target.kind.name not in (_RAW_KIND_NAME, MODEL.name) or target.external_inputs is not None:
        return None
    name, revision, files = raw_pin.read_hub_pin(open_artifact(run.root / target.folder).manifest)
    return HubFileSet(name, revision, {file.path: file for file in files})


def missing_split_error(pools: Artifact, split: str) -> UsageError:
    """Return the error about a split in `sealed_pools` that has no row in the pools."""
    what, found = f"no pool has a row of the split {split}", ", ".join(splits_of_pools(pools)) or "none"
    return UsageError(what, pools.folder, f"omit or correct it in `sealed_pools`; splits with rows: {found}")


def splits_of_pools(pools: Artifact) -> list[str]:
    """List the splits that have rows in the files of pools, sorted."""
    return sorted({source_split(file.path) for file in pools.manifest.identity.files})


@contextlib.contextmanager
def _pool_files(pools_target: Target, split: str, run: Run, folder: StagingView) -> Iterator[dict[str, Path]]:
    """Yield a split's pool files or raw files as {name: path}, for use in the block."""
    if pools_target.kind.name == _RAW_KIND_NAME:
        with split_pin.split_files(pools_target, run, folder, None) as files:
            yield {file.name: file.path for file in files}
        return
    artifact = open_artifact(run.root / pools_target.folder)
    names = [file.path for file in artifact.manifest.identity.files if source_split(file.path) == split]
    yield {name: artifact.path(name) for name in names}


NLL_SCORES = Kind(
    "nemotron/nll_scores",
    SCORES_STAGE,
    file_builder(_score),
    """Likelihood of each row's completion under the model, once per row even if it is in several pools.

    Rows without a score have a reason. A sample is rescored in batches of other sizes to measure the stability.""",
    formats=frozenset({"parquet"}),
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        artifact_check(scores.rows_have_scores),
        context_check(unknown_tokens_within_limit),
        artifact_check(scores.scores_are_stable, is_blocking=False),
    ),
    preview=scores.preview_rows,
    planner=Planner(model_pin.list_hub_inputs),
    dagster_pool="scoring",
)


@contextlib.contextmanager
def scored_splits(upstream: Sequence[Target], run: Run, folder: StagingView) -> Iterator[list[ScoredSplit]]:
    """Yield the scored splits among `upstream`, with paths valid inside the block.

    Raise InputError if the pools have no row of any split.
    """
    with contextlib.ExitStack() as opened:
        splits = []
        for target in (target for target in upstream if target.kind.name == NLL_SCORES.name):
            split = str(target.recipe["split"])
            files = opened.enter_context(_pool_files(target.upstream[0], split, run, folder))
            artifact = open_artifact(run.root / target.folder)
            decisions = artifact.manifest.identity.decisions
            if lost := read_losses(artifact.manifest):
                decisions = {**decisions, "model": decisions["model"] | {"lost_text": str(lost["rows"])}}
            splits.append(ScoredSplit(str(target.partition), artifact.path(scores.SCORES_FILE), files, decisions))
        if not any(split.pool_files for split in splits):
            pools = run.root / upstream[0].upstream[0].folder
            raise InputError("no pool has a row of any split", pools, "relax `deduplicate` or `pools` of the recipe")
        yield splits


def _report(job: Job) -> BuildResult:
    with scored_splits(job.target.upstream, job.run, job.staging) as splits:
        return report_on_scores(job.staging, splits, job.run.settings)


SCORE_REPORT = Kind(
    "nemotron/score_report",
    SCORE_REPORT_STAGE,
    file_builder(_report),
    "Distribution of the scores of all splits by domain, correctness and length. Requires all splits.",
    labels=(REPORT_HTML,),
    preview=preview_scores,
    checks=(FILES_CHECK,),
)


def _choose_subsets(job: Job) -> BuildResult:
    recipe = SubsetsRecipe.from_content(job.recipe)
    encoder: Tokenizer = load_encoder(VOCABULARY_SHA256, job.run.settings.vocabulary)
    with contextlib.ExitStack() as opened:
        splits = opened.enter_context(scored_splits(job.target.upstream, job.run, job.staging))
        if not all(is_harmony_pool(split.pool_files.values()) for split in splits):
            model = job.target.upstream[0].upstream[1]
            folder = opened.enter_context(model_pin.tokenizer_folder(model, job.run))
            encoder = load_model_tokenizer(folder, is_harmony=False)
        return choose_subsets(job.staging, splits, recipe, encoder, job.run.settings)


TRAINING_SUBSETS = Kind(
    "nemotron/training_subsets",
    SUBSETS_STAGE,
    file_builder(_choose_subsets),
    """Training rows of all splits in a folder for each rule of the recipe, also as tokens with a loss mask.

    Each row has its score, its percentile and the rule that chose it. Requires all splits.""",
    formats=frozenset({"parquet"}),
    row_store_class=SubsetRows,
    checks=(FILES_CHECK, LEDGER_CHECK, artifact_check(scores.subsets_have_rows, is_blocking=False)),
)
SCORING_KINDS = (CHAT_TEMPLATE, MODEL, NLL_SCORES, SCORE_REPORT, TRAINING_SUBSETS)
