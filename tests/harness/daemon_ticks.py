"""Ticks of Dagster's own scheduler daemon.

The code location has a process of its own.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, ScheduleInstigatorData
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._scheduler.scheduler import launch_scheduled_runs

PROJECT = Path(__file__).parents[2]
_TIMEOUT_S = 240.0
_POLL_S = 0.1


@contextlib.contextmanager
def daemon_workspace(
    root: Path, instance: dg.DagsterInstance, variables: Mapping[str, str]
) -> Iterator[WorkspaceProcessContext]:
    """Load definitions like `dagster dev`, in a code server with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CORPUSMILL_DATA": str(root), "PYTHONPATH": str(PROJECT), **variables}.items():
            patch.setenv(name, value)
        target = ModuleTarget(
            module_name="pipeline_assets.definitions",
            attribute=None,
            working_directory=str(PROJECT),
            location_name="pipeline",
        )
        with create_test_daemon_workspace_context(target, instance) as workspace:
            yield workspace


def run_between(workspace: WorkspaceProcessContext, name: str, start: datetime, end: datetime) -> list[dg.DagsterRun]:
    """Start a schedule, evaluate it at `end` with the daemon, and await its runs."""
    [entry] = workspace.create_request_context().get_code_location_entries().values()
    assert entry.code_location is not None, entry.load_error
    [repository] = entry.code_location.get_repositories().values()
    schedule, instance = repository.get_schedule(name), workspace.instance
    since = ScheduleInstigatorData(schedule.cron_schedule, start.timestamp())
    switched_on = InstigatorState(
        schedule.get_remote_origin(), InstigatorType.SCHEDULE, InstigatorStatus.RUNNING, since
    )
    instance.add_instigator_state(switched_on)
    earlier = {run.run_id for run in instance.get_runs()}
    errors = [*launch_scheduled_runs(workspace, logging.getLogger("daemon"), end, iteration_times={})]
    assert not any(errors), errors
    instance.update_instigator_state(switched_on.with_status(InstigatorStatus.STOPPED))
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        runs = [run for run in instance.get_runs() if run.run_id not in earlier]
        if all(run.is_finished for run in runs):
            return runs
        time.sleep(_POLL_S)
    raise TimeoutError(f"runs of {name} did not end in {_TIMEOUT_S:.0f} s")
