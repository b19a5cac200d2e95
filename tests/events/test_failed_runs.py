"""Failed runs of artifacts, which the UI shows unless the artifact is current."""

import asyncio
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.asset_health.asset_materialization_health import AssetMaterializationHealthState
from dagster._core.loader import LoadingContextForTest
from materialized import find_job, has_materialized, run_job
from sealed_scans import FILTERED, LOADED, RAW, REPORT, Scan, count_materializations, staleness


def record_failed_run(root: Path, instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None) -> None:
    """Record a run that failed before it started, like a time-out of the code server."""
    job = LOADED[root].resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    tags = {} if partition is None else {"dagster/partition": partition}
    run = instance.create_run_for_job(job, tags=tags, asset_selection=frozenset({key}))
    instance.report_run_failed(run, "the code server did not answer in 60 s")


def is_failed(instance: dg.DagsterInstance, root: Path, key: dg.AssetKey) -> bool:
    """Check whether the UI shows a failure of an asset or its partitions."""
    graph = LOADED[root].resolve_asset_graph()
    compute = AssetMaterializationHealthState.compute_for_asset
    state = asyncio.run(compute(key, graph.get(key).partitions_def, LoadingContextForTest(instance)))
    return not state.failed_subset.is_empty


@pytest.mark.parametrize(
    ("key", "partition"), [(FILTERED, "notes"), pytest.param(REPORT, None, marks=pytest.mark.slow)]
)
def test_failed_run_of_a_current_artifact_is_not_shown_as_failed(
    key: dg.AssetKey, partition: str | None, scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()
    record_failed_run(root, instance, key, partition)
    failed = is_failed(instance, root, key)

    reported = scan(), scan()
    record_failed_run(root, instance, RAW, "notes")  # a run of another asset adds no report for this one
    scan()

    assert (failed, is_failed(instance, root, key)) == (True, False)
    assert reported[1] == "nothing was built since the last scan"
    assert count_materializations(instance, key) == 2


@pytest.mark.slow
def test_failed_run_of_a_stale_artifact_is_shown(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    with (root / "sources" / "notes" / "rows.jsonl").open("a") as file:
        file.write("{}\n")
    scan()
    record_failed_run(root, instance, FILTERED, "notes")

    scan()

    assert is_failed(instance, root, FILTERED)


def test_failed_job_reports_nothing_downstream_of_the_failure(
    scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()
    with (root / "sources" / "notes" / "rows.jsonl").open("a") as file:
        file.write("{}\n")
    scan()
    stale = staleness(root, instance)

    result = run_job(find_job(root, "mixed"), instance)

    assert not result.success and not has_materialized(result)
    assert staleness(root, instance) == stale
    assert stale["stage_a/filtered/notes"] == "STALE"
