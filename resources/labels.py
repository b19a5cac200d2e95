"""Whose assets these are and how they are tagged, for the UI alone: CORPUSMILL_OWNERS and CORPUSMILL_TAGS."""

import logging
from collections.abc import Sequence

import dagster as dg

OWNERS, TAGS = "CORPUSMILL_OWNERS", "CORPUSMILL_TAGS"


def labelled(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """The assets with the owners (`team:data,me@example.org`) and tags (`project=llm,tier=gold`)
    that are set. What Dagster doesn't take is left out, with a warning.
    """
    owners = _listed(OWNERS)
    tags = {name.strip(): value.strip() for name, _, value in (entry.partition("=") for entry in _listed(TAGS))}
    try:
        wanted = dg.AssetSpec("any", owners=owners, tags=tags)
    except dg.DagsterInvalidDefinitionError as error:
        told = " ".join(str(error).split())
        logging.getLogger("corpusmill").warning("%s and %s are left out: %s", OWNERS, TAGS, told)
        return assets
    if not owners and not tags:
        return assets
    return dg.map_asset_specs(
        lambda spec: spec.replace_attributes(owners=wanted.owners, tags={**spec.tags, **wanted.tags}), assets
    )


def _listed(variable: str) -> list[str]:
    return [entry.strip() for entry in (dg.EnvVar(variable).get_value() or "").split(",") if entry.strip()]
