"""Retention of finished runs of recipes, with their events and logs.

Runs of other projects in the same Dagster instance are kept. A run is kept longer if the UI shows one of its results:
the newest materialization of a partition, the newest result of a check, or the last success of a job. Ticks have their
own limits in `dagster.yaml`.
"""

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from pipeline_assets.assets import is_recipe_asset
from pipeline_assets.build.run import KEEP_RUNS_DAYS
from pipeline_assets.compat import ASSET_JOB
from pipeline_assets.events import newest_materializations, newest_storage_ids
from pipeline_assets.jobs import RECIPE_TAG
from pipeline_assets.spine.plural import pluralize

_INTERVAL_S = 3600
_MAX_TICK_S = 30.0  # Dagster ends a sensor after 60 s; the next tick continues
_PAGE_RUNS = 500
_FINISHED_STATUSES = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def retention_sensor() -> dg.SensorDefinition:
    """Return the sensor that deletes old runs."""

    @dg.sensor(
        name="old_runs",
        description=f"Deletes runs of recipes older than {KEEP_RUNS_DAYS.variable} days, with their events and logs",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def old_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        days = KEEP_RUNS_DAYS.read({KEEP_RUNS_DAYS.variable: dg.EnvVar(KEEP_RUNS_DAYS.variable).get_value() or ""})
        if days == 0 or context.repository_def is None:
            return dg.SkipReason("all runs are kept")
        before = datetime.now(UTC) - timedelta(days=days)
        deleted = delete_runs(context.instance, context.repository_def, before)
        return dg.SkipReason(f"deleted {pluralize(deleted, 'run')} older than {days} days")

    return old_runs


def delete_runs(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, cutoff: datetime) -> int:
    """Delete runs of recipes that ended before `cutoff`; return their number.

    Runs whose results the UI shows are kept. Deletion stops after 30 seconds.
    """
    deadline, deleted = time.monotonic() + _MAX_TICK_S, 0
    ended = dg.RunsFilter(statuses=_FINISHED_STATUSES, updated_before=cutoff, created_before=cutoff)
    old = [run.run_id for run in _read_runs(instance, ended) if _is_recipe_run(run)]
    kept = set(_displayed_run_ids(instance, repository)) if old else set()
    for run_id in reversed(old):  # the oldest first
        if run_id in kept:
            continue
        if time.monotonic() > deadline:
            break
        instance.compute_log_manager.delete_logs(prefix=[run_id])  # first: without its run, nothing would find them
        instance.delete_run(run_id)
        for name in (f"{run_id}.db", f"{run_id}.db-wal", f"{run_id}.db-shm"):  # SQLite has a file for each run
            with contextlib.suppress(FileNotFoundError):
                Path(instance.root_directory, "history", "runs", name).unlink()
        deleted += 1
    return deleted


def _read_runs(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> Iterator[dg.DagsterRun]:
    """Yield runs, the newest first, with one page of them in memory."""
    page = instance.get_runs(filters, limit=_PAGE_RUNS)
    while page:
        yield from page
        page = instance.get_runs(filters, cursor=page[-1].run_id, limit=_PAGE_RUNS)


def _is_recipe_run(run: dg.DagsterRun) -> bool:
    """Check whether a run executes a recipe's job, or only recipes' assets and checks."""
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    return RECIPE_TAG in run.tags or (run.job_name == ASSET_JOB and bool(keys) and all(map(is_recipe_asset, keys)))


def _displayed_run_ids(instance: dg.DagsterInstance, repository: dg.RepositoryDefinition) -> Iterator[str]:
    for key in instance.all_asset_keys():
        yield from (event.run_id for event in newest_materializations(instance, key, newest_storage_ids(instance, key)))
    checks = list(repository.asset_graph.asset_check_keys)
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    yield from (record.run_id for record in records.values())
    for job in repository.job_names:
        successes = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
        yield from (record.dagster_run.run_id for record in instance.get_run_records(successes, limit=1))
