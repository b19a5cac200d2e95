"""The Dagster code location: assets, checks and jobs of every recipe that is there, made anew when it is loaded, and
the sensor that shows what commands built.
"""

import logging
from pathlib import Path

import dagster as dg

from pipeline_assets.assets import assets_of, job_of, sources_of
from pipeline_assets.schedules import alert, scheduled
from pipeline_assets.sensors import sensor_of
from pipeline_assets.systems.registry import recipe_of_folders, recipes_of
from resources.hub import Hub
from resources.store import Store, data_root


def definitions_of(root: Path) -> dg.Definitions:
    """What the UI offers for a data root: its recipes', and those of the project. One that is wrong is left out."""
    recipes, wrong = recipes_of(root)
    for error in wrong:
        logging.getLogger("corpusmill").warning("a recipe is left out: %s", error)
    recipe_of = recipe_of_folders(recipes, root)
    jobs = {recipe.name: job_of(recipe, root, recipe_of) for recipe in recipes}
    by_the_clock = scheduled(root, recipes, jobs)
    return dg.Definitions(
        assets=[
            *(asset for recipe in recipes for asset in assets_of(recipe, root, recipe_of)),
            *sources_of(recipes, root),
        ],
        jobs=[*jobs.values(), *by_the_clock.jobs],
        schedules=by_the_clock.schedules,
        sensors=[sensor_of(recipes, root), alert],
        resources={"store": Store(), "hub": Hub()},
        executor=dg.in_process_executor,
    )


defs = definitions_of(data_root())
