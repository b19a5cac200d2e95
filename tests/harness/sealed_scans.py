"""Scans of sealed artifacts, compared with their states on disk."""

from collections.abc import Callable, Sequence
from pathlib import Path

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.code_location import build_definitions
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

Scan = Callable[[], str]
LOADED: dict[Path, dg.Definitions] = {}  # definitions of each data root, from its last scan
RAW, FILTERED, REPORT = (dg.AssetKey(["stage_a", "mixed", artifact]) for artifact in ("raw", "filtered", "report"))


def load_sensor(root: Path) -> dg.SensorDefinition:
    LOADED[root] = build_definitions(root)
    return next(sensor for sensor in LOADED[root].sensors or [] if sensor.name == "sealed_artifacts")


def staleness(root: Path, instance: dg.DagsterInstance, recipe: str = "mixed") -> dict[str, str]:
    graph = LOADED[root].resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    statuses = {}
    for key in graph.get_all_asset_keys():
        partitions = graph.get(key).partitions_def
        if key.path[1:-1] == [recipe]:
            for partition in partitions.get_partition_keys() if partitions else [None]:
                role = "/".join([key.path[0], key.path[2], *([partition] if partition else [])])
                statuses[role] = resolver.get_status(key, partition).value
    return statuses


def states(root: Path, recipe: str = "mixed") -> dict[str, str]:
    return {status.target.role: status.sealed_state for status in artifact_statuses(root, targets(root, recipe))}


def targets(root: Path, recipe: str = "mixed") -> Sequence[Target]:
    return SYSTEMS.read_recipe(root / "recipes" / f"{recipe}.yaml").targets()


def run_kinds(root: Path, kinds: set[str] | None = None) -> None:
    recipe, run = SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml"), Run(root, RunSettings(), replace=True)
    requested = [target for target in recipe.targets() if kinds is None or target.kind.name in kinds]
    assert all(outcome.failure is None for outcome in run_targets(requested, run))


def count_materializations(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    return len(instance.fetch_materializations(key, limit=9).records)


def check_records(instance: dg.DagsterInstance, key: dg.AssetKey, check: str) -> list[AssetCheckExecutionRecord]:
    """List the records of a check, newest first."""
    return list(instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(key, check), limit=9))


def passed(instance: dg.DagsterInstance, key: dg.AssetKey, check: str) -> list[bool]:
    return [record.evaluation.passed for record in check_records(instance, key, check)]
