"""Owners and tags of all assets, from CORPUSMILL_OWNERS and CORPUSMILL_TAGS."""

import logging
from collections.abc import Sequence

import dagster as dg

from pipeline_assets.spine.errors import one_line

OWNERS, TAGS = "CORPUSMILL_OWNERS", "CORPUSMILL_TAGS"


def add_owners_and_tags(
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec],
) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """Add owners (`team:data,me@example.org`) and tags (`tier=gold`) to assets.

    If Dagster rejects a value, a warning is logged, and no owners or tags are added.
    """
    owners = _split_list(OWNERS)
    tags = {name.strip(): value.strip() for name, _, value in (entry.partition("=") for entry in _split_list(TAGS))}
    if not owners and not tags:
        return assets
    try:
        validated = dg.AssetSpec("any", owners=owners, tags=tags)
    except dg.DagsterInvalidDefinitionError as error:
        logging.getLogger("corpusmill").warning("%s and %s are ignored: %s", OWNERS, TAGS, one_line(error))
        return assets
    return dg.map_asset_specs(
        lambda spec: spec.replace_attributes(owners=validated.owners, tags={**spec.tags, **validated.tags}), assets
    )


def _split_list(variable: str) -> list[str]:
    return [entry.strip() for entry in (dg.EnvVar(variable).get_value() or "").split(",") if entry.strip()]
