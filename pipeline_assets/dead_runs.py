"""Runs whose processes died with their code server: `python -m pipeline_assets.dead_runs` ends them.

A code server calls this before it starts. Otherwise these runs would keep their places in the queue, and no other run
could start. Failed runs are started again, as `run_retries` in `dagster.yaml` says.
"""

import dagster as dg

_UNFINISHED = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def end_dead_runs(instance: dg.DagsterInstance) -> int:
    """End all runs in progress, and return their number; cancelled runs are not started again."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))
    for run in runs:
        if run.status is dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, "Its code server died while the run was cancelled.")
        else:
            instance.report_run_failed(run, "Its code server died, and the run with it.")
    return len(runs)


if __name__ == "__main__":
    with dg.DagsterInstance.get() as opened:
        end_dead_runs(opened)
