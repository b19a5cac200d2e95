"""Assets of recipe versions.

Each kind of artifact in a recipe has one asset, with a partition for each version and source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg

from pipeline_assets import versions
from pipeline_assets.assets import build_asset, partition_mapping
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_versions import earlier_version, list_versions
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.events import RecipeByFolder, targets_by_kind
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS


def build_version_assets(
    recipes: Mapping[str, Recipe], repinned_recipes: Iterable[str], root: Path, recipe_by_folder: RecipeByFolder
) -> list[dg.AssetsDefinition]:
    """Return the assets of recipe versions, ordered upstream first within each recipe.

    `recipes` has all recipes by name, including versions. `repinned_recipes` are names of recipes that a schedule
    repins; the assets of these recipes exist even before the first version.
    """
    newest = {name: recipes[name] for name in sorted(repinned_recipes)}
    for name in sorted(recipes):  # versions of a recipe are then sorted by date
        if (version := versions.parse_version(name, recipes)) is not None:
            newest[version.recipe_name] = recipes[name]
    kinds = [(name, targets) for name, recipe in newest.items() for targets in targets_by_kind(recipe).values()]
    return [_version_asset(name, targets, root, recipe_by_folder) for name, targets in kinds]


def _version_asset(
    recipe_name: str, targets: Sequence[Target], root: Path, recipe_by_folder: RecipeByFolder
) -> dg.AssetsDefinition:
    kind = targets[0].kind

    def find_target(partition: str | None, run: Run) -> tuple[Recipe, Target, Run]:
        if partition is None:
            newest = list_versions(recipe_name, root)[-1:]
            names = f", such as {newest[0].stem.removeprefix(recipe_name + '_')}" if newest else ""
            raise UsageError("no version is chosen", f"recipe {recipe_name}", f"choose a partition{names}")
        source, date = versions.parse_partition(partition)
        path = root / "recipes" / f"{recipe_name}_{date}.yaml"
        if not path.exists():
            raise UsageError("no recipe of this version", path, f"choose a version of {recipe_name} that has one")
        recipe = SYSTEMS.read_recipe(path)
        try:
            target = recipe.target(kind.name, source)
        except LookupError as error:
            raise UsageError(str(error), path, "choose a source that this version has") from None
        before = SYSTEMS.read_recipe(earlier_version(recipe_name, date, root)).folder
        return recipe, target, replace(run, find_previous_folder=before, keep_work=run.keep_work is not False)

    return build_asset(
        versions.DatedVersion(recipe_name, "").key(kind.name),
        f"{recipe_name}_versions",
        targets,
        root,
        deps=_asset_deps(recipe_name, targets, recipe_by_folder),
        code_version=str(kind.stage.version),
        partitions=versions.version_partitions(recipe_name, targets),
        find_target=find_target,
    )


def _asset_deps(recipe_name: str, targets: Sequence[Target], recipe_by_folder: RecipeByFolder) -> list[dg.AssetDep]:
    """Return the dependencies of an asset whose partitions are recipe versions.

    Each partition depends on the same version of upstream assets of the recipe, and on all partitions of upstream
    assets of other recipes.
    """
    names = frozenset(recipe_by_folder.values())
    own, deps = dict[dg.AssetKey, list[tuple[str | None, str | None]]](), dict[dg.AssetKey, dg.AssetDep]()
    for target in targets:
        for upstream in target.upstream:
            if not upstream.is_external:
                key = versions.DatedVersion(recipe_name, "").key(upstream.kind.name)
                own.setdefault(key, []).append((upstream.partition, target.partition))
            elif (recipe := recipe_by_folder.get(str(upstream.folder))) is not None:
                key = versions.shown_asset_key(upstream.kind.name, recipe, names)
                deps[key] = dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping())
    mapped = ((key, versions.version_partition_mapping(pairs, partition_mapping(pairs))) for key, pairs in own.items())
    return [*(dg.AssetDep(key, partition_mapping=mapping) for key, mapping in mapped), *deps.values()]
