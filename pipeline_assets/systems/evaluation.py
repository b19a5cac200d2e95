"""Evaluation sets of stage A and of Nemotron: their files, and what is left of corpora without their items.

What is compiled is imported where it is used: most commands build nothing.
"""

from pathlib import Path

from pipeline_assets.build.kind import Job, Kind, input_builder
from pipeline_assets.build.pins.raw_pin import preview_inputs
from pipeline_assets.build.pins.source_pin import list_inputs, pin_inputs
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.decontamination import recipe
from pipeline_assets.corpus.readers.source_folder import SourceFolder, input_folder
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult


def evaluation_targets(section: recipe.DecontaminationSection, name: str, folder: Path) -> tuple[Target, ...]:
    """The files of each evaluation set of a recipe of this name, each by its hash, in a folder of the set's name."""
    return tuple(
        EVALUATION.target(
            name,
            {"files": list(one.files)},
            partition=one.name,
            folder=folder / one.name,
            external_inputs=SourceFolder(Path(one.path), one.files),
        )
        for one in section.evaluation
    )


EVALUATION = Kind(
    "stage_a/evaluation",
    recipe.EVALUATION_STAGE,
    input_builder(pin_inputs),
    "The files of an evaluation set, each by its hash; nothing is copied.",
    formats=frozenset({"file"}),
    external_inputs=input_folder,
    preview=preview_inputs,
    listing=list_inputs,
)


def decontaminate(job: Job, *kinds: Kind, may_be_empty: bool = False) -> BuildResult:
    """What is made of upstream corpora of these kinds, and of the evaluation sets that are upstream too."""
    from pipeline_assets.corpus.decontamination.decontaminate_corpus import decontaminate_corpus

    listed = [target for target in job.target.upstream if target.kind.name == EVALUATION.name]
    sections = map(recipe.EvaluationRecipe.from_content, job.recipe["evaluation"])
    evaluation = [_evaluation_set(section, one, job.run.root) for section, one in zip(sections, listed, strict=True)]
    sources = job.upstream_by_name(*kinds)
    rules = recipe.DecontaminationRecipe.from_content(job.recipe["decontamination"])
    return decontaminate_corpus(job.staging, sources, evaluation, rules, job.run.settings, may_be_empty)


def _evaluation_set(section: recipe.EvaluationRecipe, source: Target, root: Path) -> recipe.EvaluationSet:
    assert isinstance(source.external_inputs, SourceFolder)
    return recipe.EvaluationSet(
        section, open_artifact(root / source.folder).manifest, source.external_inputs.resolve_path(root)
    )
