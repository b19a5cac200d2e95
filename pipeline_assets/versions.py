"""Versions of recipes as partitions.

A version is a separate recipe, `NAME_YYYYMMDD`, with its own folders. In Dagster its artifacts are partitions of the
assets `<system>/NAME/versions/<artifact>`. A partition is named by the date, or by source and date (`web|20261123`).
"""

import re
import warnings
from collections.abc import Collection, Sequence
from typing import NamedTuple

import dagster as dg

from pipeline_assets.build.target import Target

_SOURCE_DIMENSION, _VERSION_DIMENSION = "source", "version"
_DATE_PATTERN = re.compile("[0-9]{8}")


class DatedVersion(NamedTuple):
    """Version of a recipe; `date` is the first day of its period, YYYYMMDD."""

    recipe_name: str
    date: str

    def partition(self, source: str | None) -> str:
        """Return the version's partition in an asset: its date, or source and date."""
        if source is None:
            return self.date
        return dg.MultiPartitionKey({_SOURCE_DIMENSION: source, _VERSION_DIMENSION: self.date})

    def key(self, kind_name: str) -> dg.AssetKey:
        """Return the key of the asset whose partitions are the versions of an artifact."""
        *path, artifact = asset_key(kind_name, self.recipe_name).path
        return dg.AssetKey([*path, "versions", artifact])

    def add_to(self, instance: dg.DagsterInstance) -> None:
        """Add the version to the instance's partitions if it is new."""
        if not instance.has_dynamic_partition(_partitions_name(self.recipe_name), self.date):
            instance.add_dynamic_partitions(_partitions_name(self.recipe_name), [self.date])


def parse_version(version_name: str, recipe_names: Collection[str]) -> DatedVersion | None:
    """Parse the name `NAME_YYYYMMDD` of a version; None if no recipe `NAME` exists."""
    name, _, date = version_name.rpartition("_")
    return DatedVersion(name, date) if _DATE_PATTERN.fullmatch(date) and name in recipe_names else None


def asset_key(kind_name: str, recipe_name: str) -> dg.AssetKey:
    """Return the asset key `<system>/<recipe>/<artifact>` for a kind and a recipe.

    `kind_name` is `<system>/<artifact>`. For versions of a recipe, see `DatedVersion`.
    """
    system, _, artifact = kind_name.partition("/")
    return dg.AssetKey([system, recipe_name, artifact])


def shown_asset_key(kind_name: str, recipe_name: str, recipe_names: Collection[str]) -> dg.AssetKey:
    """Return the key of the asset that shows the artifacts of a kind and a recipe.

    `recipe_names` lists all recipes. A dated version of a recipe is shown as a partition of that recipe's asset.
    """
    version = parse_version(recipe_name, recipe_names)
    return asset_key(kind_name, recipe_name) if version is None else version.key(kind_name)


def version_partitions(recipe_name: str, targets: Sequence[Target]) -> dg.PartitionsDefinition:
    """Return the partitions of a version asset: dates, or pairs of source and date."""
    versions = dg.DynamicPartitionsDefinition(name=_partitions_name(recipe_name))
    names = [target.partition for target in targets if target.partition is not None]
    if not names:
        return versions
    sources = dg.StaticPartitionsDefinition(names)
    return dg.MultiPartitionsDefinition({_SOURCE_DIMENSION: sources, _VERSION_DIMENSION: versions})


def parse_partition(partition: str) -> tuple[str | None, str]:
    """Split a partition into its source (None if it has no source) and its date."""
    if isinstance(partition, dg.MultiPartitionKey):
        keys = partition.keys_by_dimension
        return keys[_SOURCE_DIMENSION], keys[_VERSION_DIMENSION]
    return None, partition


def version_partition_mapping(
    source_pairs: Sequence[tuple[str | None, str | None]], source_mapping: dg.PartitionMapping | None
) -> dg.PartitionMapping | None:
    """Return the mapping between two assets that are partitioned by recipe version.

    `source_pairs` has a pair for each dependency: the sources of the upstream and the downstream artifact. A source is
    None if its artifact covers all sources. If no artifact has a source, return None, which means Dagster's default
    mapping. Otherwise, map each version to itself. If every artifact has a source, also map sources by
    `source_mapping`; if `source_mapping` is None, map each source to itself.
    """
    have_sources = {(upstream is not None, downstream is not None) for upstream, downstream in source_pairs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        if have_sources == {(False, False)}:
            return None
        if have_sources != {(True, True)}:
            return dg.MultiToSingleDimensionPartitionMapping(_VERSION_DIMENSION)
        identity = dg.IdentityPartitionMapping()
        mappings = {_SOURCE_DIMENSION: source_mapping or identity, _VERSION_DIMENSION: identity}
        dimensions = {name: dg.DimensionPartitionMapping(name, mapping) for name, mapping in mappings.items()}
        return dg.MultiPartitionMapping(dimensions)


def _partitions_name(recipe_name: str) -> str:
    return f"{recipe_name}/versions"
