"""Attributes of assets, such as owners, tags, groups and automation conditions.

Owners and tags come from CORPUSMILL_OWNERS (default `team:corpusmill`) and CORPUSMILL_TAGS.
"""

import logging
from collections.abc import Collection, Sequence

import dagster as dg

from pipeline_assets.assets import dagster_name
from pipeline_assets.external import INVALID_GROUP, SOURCES_GROUP
from pipeline_assets.spine.errors import one_line

OWNERS_VARIABLE, TAGS_VARIABLE = "CORPUSMILL_OWNERS", "CORPUSMILL_TAGS"
_DEFAULT_OWNER = "team:corpusmill"
_NEVER_BUILT_GROUP = "never_built"
Assets = Sequence[dg.AssetsDefinition | dg.AssetSpec]


def add_attributes(assets: Assets, used_groups: Collection[str], scheduled_recipes: Collection[str]) -> Assets:
    """Return assets with owners, tags, groups and automation conditions.

    An asset of a recipe moves to the group `never_built` if its group is not in `used_groups`. An external input moves
    to the group of its readers if all readers are in one group; readers in `never_built` count only if no other reader
    exists. Assets of `scheduled_recipes` get an automation condition: while Dagster's sensor for such conditions is on,
    an asset is built after each build of an input artifact. Assets of recipe versions get no condition.
    """
    specs = [spec for asset in assets for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])]
    owned, readers = _owners_and_tags(), dict[dg.AssetKey, set[str | None]]()
    kept, automated = {*map(dagster_name, used_groups), INVALID_GROUP}, set(map(dagster_name, scheduled_recipes))
    external = dg.AssetSelection.assets(*(spec.key for spec in specs if spec.group_name == SOURCES_GROUP))
    condition = dg.AutomationCondition.eager().ignore(external)

    def used_group(spec: dg.AssetSpec) -> str | None:
        return spec.group_name if spec.group_name in kept else _NEVER_BUILT_GROUP

    for spec in specs:
        for dep in spec.deps:
            readers.setdefault(dep.asset_key, set()).add(used_group(spec))

    def find_group(spec: dg.AssetSpec) -> str | None:
        if spec.group_name != SOURCES_GROUP:
            return used_group(spec)
        groups = readers.get(spec.key, set())
        groups = groups - {_NEVER_BUILT_GROUP} or groups
        return groups.pop() if len(groups) == 1 else SOURCES_GROUP

    def is_automated(spec: dg.AssetSpec) -> bool:  # versions of `web` and a recipe `web_versions` are one group
        return spec.group_name in automated and "versions" not in spec.key.path[2:]

    def add(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(
            owners=owned.owners,
            tags={**spec.tags, **owned.tags},
            group_name=find_group(spec),
            automation_condition=condition if is_automated(spec) else None,
        )

    return dg.map_asset_specs(add, assets)


def _owners_and_tags() -> dg.AssetSpec:
    """Return a spec with owners and tags; if one is invalid, just the default owner."""
    owners = _read_list_variable(OWNERS_VARIABLE) or [_DEFAULT_OWNER]
    entries = (entry.partition("=") for entry in _read_list_variable(TAGS_VARIABLE))
    tags = {name.strip(): value.strip() for name, _, value in entries}
    try:
        return dg.AssetSpec("any", owners=owners, tags=tags)
    except dg.DagsterInvalidDefinitionError as error:
        variables = f"{OWNERS_VARIABLE} and {TAGS_VARIABLE}"
        logging.getLogger("corpusmill").warning("%s are ignored: %s", variables, one_line(error))
        return dg.AssetSpec("any", owners=[_DEFAULT_OWNER])


def _read_list_variable(variable: str) -> list[str]:
    return [entry.strip() for entry in (dg.EnvVar(variable).get_value() or "").split(",") if entry.strip()]
