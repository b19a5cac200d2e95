"""Dagster definitions of a data root, built from its recipes."""

import logging
from pathlib import Path

import dagster as dg

from pipeline_assets.alerts import alert
from pipeline_assets.assets import build_assets
from pipeline_assets.attributes import add_attributes
from pipeline_assets.build.recipe_paths import is_used_in, recipe_names_by_folder
from pipeline_assets.external import external_assets, external_inputs_sensor, invalid_file_assets
from pipeline_assets.freshness import FreshnessChecks, freshness_sensor
from pipeline_assets.jobs import invalid_recipe_job, recipe_job
from pipeline_assets.retention import retention_sensor
from pipeline_assets.schedules import build_schedules, read_schedules
from pipeline_assets.sealed_sensor import sealed_artifacts_sensor
from pipeline_assets.spine.sealed_folder import resolve_data_root
from pipeline_assets.spine.visible import to_one_line
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.version_assets import build_version_assets
from pipeline_assets.versions import parse_version
from resources.store import Hub, Launcher, Store, Tokenizer
from resources.webhook import webhook_address


def build_definitions(root: Path | str) -> dg.Definitions:
    """Build the Dagster definitions of all recipes: the data root's and the project's."""
    root = resolve_data_root(root, "set CORPUSMILL_DATA to another folder")
    webhook_address()  # refuse an invalid address now, not at the first failed run
    recipes, errors = SYSTEMS.load_recipes(root)
    for error in errors.values():
        logging.getLogger("corpusmill").warning("skipped an invalid recipe: %s", error)
    recipe_by_folder = recipe_names_by_folder(recipes, root)
    jobs = {recipe.name: recipe_job(recipe, root) for recipe in recipes}
    jobs |= {name: invalid_recipe_job(to_one_line(name), error, root) for name, error in errors.items()}
    by_name = {recipe.name: recipe for recipe in recipes}
    versions = {name: parse_version(name, by_name) for name in by_name}
    unversioned = {name: recipe for name, recipe in by_name.items() if versions[name] is None}
    externals = external_assets((target for recipe in unversioned.values() for target in recipe.targets()), root)
    active = [recipe for recipe in unversioned.values() if is_used_in(recipe, root)]
    version_groups = {f"{version.recipe_name}_versions" for version in versions.values() if version}
    watched = external_assets((target for recipe in active for target in recipe.targets()), root)
    schedules, mistakes = build_schedules(root, jobs)
    runs = [entry.section for entry in schedules if entry.section.action == "run"]
    fresh = [FreshnessChecks(entry, unversioned[entry.recipe], root) for entry in runs if entry.recipe in unversioned]
    repinned = {entry.recipe for entry in read_schedules(root)[0] if entry.action == "repin"} & set(by_name)
    sensors = [freshness_sensor(fresh), retention_sensor(), alert]
    return dg.Definitions(
        assets=add_attributes(
            [
                *build_assets(unversioned, root, recipe_by_folder, {entry.recipe for entry in runs if entry.replace}),
                *build_version_assets(by_name, repinned, root, recipe_by_folder),
                *(external.spec() for external in externals.values()),
                *invalid_file_assets(errors, mistakes),
            ],
            version_groups | {recipe.name for recipe in active},
            {section.recipe for section in runs},
        ),
        asset_checks=[freshness.checks_definition() for freshness in fresh],
        jobs=list({job.name: job for job in (*jobs.values(), *(entry.job for entry in schedules))}.values()),
        schedules=[entry.schedule for entry in schedules],
        sensors=[sealed_artifacts_sensor(recipes, root), external_inputs_sensor(watched.values(), root), *sensors],
        resources={"store": Store(), "hub": Hub(), "tokenizer": Tokenizer(), "launcher": Launcher()},
        executor=dg.in_process_executor,
    )
