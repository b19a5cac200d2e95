"""Evaluation sets as artifacts, for stage A and Nemotron.

Compiled kernels are imported where they are used, because most commands build nothing.
"""

from pathlib import Path

from pipeline_assets.build.builders import Job, input_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.pins.raw_pin import preview_inputs
from pipeline_assets.build.pins.source_pin import list_inputs, pin_inputs, restore_source_folder
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.decontamination import recipe
from pipeline_assets.corpus.readers.source_folder import input_folder
from pipeline_assets.corpus.stores.object_source import source_folder
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult


def evaluation_targets(section: recipe.DecontaminationSection, recipe_name: str, folder: Path) -> tuple[Target, ...]:
    """Return a target for each evaluation set, in a subfolder named after that set."""
    return tuple(
        EVALUATION.target(
            recipe_name,
            {"files": list(evaluation.files)},
            partition=evaluation.name,
            folder=folder / evaluation.name,
            external_inputs=source_folder(evaluation.path, evaluation.files),
        )
        for evaluation in section.evaluation
    )


EVALUATION = Kind(
    "stage_a/evaluation",
    recipe.EVALUATION_STAGE,
    input_builder(pin_inputs),
    "Files of an evaluation set, pinned by their hashes; the files are not copied.",
    formats=frozenset({"file"}),
    external_inputs=input_folder,
    preview=preview_inputs,
    planner=Planner(list_inputs),
    checks=(FILES_CHECK,),
)


def decontaminate(job: Job, *kinds: Kind, may_be_empty: bool = False) -> BuildResult:
    """Drop or cut documents that contain evaluation items.

    The documents come from upstream corpora of `kinds`, and the items from upstream evaluation sets. Raise InputError
    if all documents are dropped and `may_be_empty` is False.
    """
    from pipeline_assets.corpus.decontamination.decontaminate_corpus import decontaminate_corpus

    targets = [target for target in job.target.upstream if target.kind.name == EVALUATION.name]
    evaluation = []
    for content, target in zip(job.recipe["evaluation"], targets, strict=True):
        section = recipe.EvaluationRecipe.from_content(content)
        manifest = open_artifact(job.run.root / target.folder).manifest
        evaluation.append(recipe.EvaluationSet(section, manifest, restore_source_folder(target, manifest, job.run)))
    sources = job.upstream_by_name(*kinds)
    rules = recipe.DecontaminationRecipe.from_content(job.recipe["decontamination"])
    return decontaminate_corpus(job.staging, sources, evaluation, rules, job.run.settings, may_be_empty)
