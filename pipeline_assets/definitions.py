"""The Dagster code location: assets, checks and jobs of every recipe that is there, made anew when it is loaded, and
the sensor that shows what commands built.
"""

import logging
from pathlib import Path

import dagster as dg

from pipeline_assets.assets import build_assets
from pipeline_assets.build.recipe import is_of_interest, recipe_of_folders
from pipeline_assets.events import build_sensor
from pipeline_assets.external import build_observer, external_sources, unusable_recipe_node
from pipeline_assets.freshness import Freshness, watch
from pipeline_assets.jobs import recipe_job
from pipeline_assets.owners import labelled
from pipeline_assets.schedules import alert, read_schedules, scheduled
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.version_assets import build_version_assets
from pipeline_assets.versions import find_version
from resources.store import Hub, Launcher, Store, Tokenizer, data_root
from resources.webhook import webhook_address


def build_definitions(root: Path) -> dg.Definitions:
    """What the UI offers for a data root: its recipes', and those of the project. One that is wrong is left out."""
    webhook_address()
    recipes, wrong = SYSTEMS.load_recipes(root)
    for error in wrong:
        logging.getLogger("corpusmill").warning("a recipe is left out: %s", error)
    recipe_of = recipe_of_folders(recipes, root)
    jobs = {recipe.name: recipe_job(recipe, root) for recipe in recipes}
    by_name = {recipe.name: recipe for recipe in recipes}
    lasting = {name: recipe for name, recipe in by_name.items() if find_version(name, by_name) is None}
    externals = external_sources((target for recipe in lasting.values() for target in recipe.targets()), root)
    meant = [recipe for recipe in lasting.values() if is_of_interest(recipe, root)]
    watched = external_sources((target for recipe in meant for target in recipe.targets()), root)
    by_the_clock = scheduled(root, jobs)
    runs = [one.section for one in by_the_clock if one.section.action == "run"]
    fresh = [Freshness(one, lasting[one.recipe], root) for one in runs if one.recipe in lasting]
    repinned = {one.recipe for one in read_schedules(root)[0] if one.action == "repin" and one.recipe in jobs}
    return dg.Definitions(
        assets=labelled(
            [
                *(asset for recipe in lasting.values() for asset in build_assets(recipe, root, recipe_of)),
                *build_version_assets(by_name, repinned, root, recipe_of),
                *(one.spec() for one in externals.values()),
                *map(unusable_recipe_node, wrong),
            ]
        ),
        asset_checks=[one.checks() for one in fresh],
        jobs=[*jobs.values(), *(one.job for one in by_the_clock if one.section.action != "run")],
        schedules=[one.schedule for one in by_the_clock],
        sensors=[build_sensor(recipes, root), build_observer(watched.values(), root), watch(fresh), alert],
        resources={"store": Store(), "hub": Hub(), "tokenizer": Tokenizer(), "launcher": Launcher()},
        executor=dg.in_process_executor,
    )


defs = build_definitions(data_root())
