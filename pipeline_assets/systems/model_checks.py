"""Checks of models and pools, before a build whose later steps need them."""

from collections.abc import Sequence
from pathlib import Path

from pipeline_assets.build.pins.model_pin import ModelFolder, raise_if_too_long
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.scoring.recipe import SCORES_STAGE
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import combine_errors
from pipeline_assets.systems.scoring import missing_split_error, splits_of_pools


def check_models(targets: Sequence[Target], root: Path) -> None:
    """Check the model folders of builds, and the pools to score, which must exist.

    Raises:
        UsageError: Pools have no row of a split to score (all are listed), a model folder is missing, or `max_length`
            exceeds the model's maximum length.
        InputError: A model is not supported.
    """
    built, errors = {target.folder for target in targets}, []
    for target in targets:
        pools = target.upstream[0] if target.stage.name == SCORES_STAGE.name else None
        if pools is None or not pools.is_external or pools.folder in built or target.matches_recipe(root):
            continue
        sealed, split = open_artifact(root / pools.folder), target.recipe["split"]
        if split not in splits_of_pools(sealed):
            errors.append(missing_split_error(sealed, split))
    if errors:
        raise combine_errors(errors)
    for target in targets:
        for model in (target, *target.upstream):
            if isinstance(model.external_inputs, ModelFolder) and not target.matches_recipe(root):
                chosen = model.external_inputs.resolve_path(root).choose_files()
                if "scoring" in target.recipe:
                    raise_if_too_long(target.recipe["scoring"]["max_length"], chosen.decisions["max_positions"])
