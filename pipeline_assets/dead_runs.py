"""Command that ends the runs whose processes died with their code server.

When a code server starts, `python -m pipeline_assets.dead_runs ADDRESS TIME` is called with the server's port or socket
and the start time, in seconds since 1970. Without this call, dead runs would keep their places in the queue and block
other runs. Dagster retries the ended runs (`run_retries` in `dagster.yaml`).
"""

import socket
import sys
import time
from datetime import UTC, datetime

import dagster as dg

_UNFINISHED_STATUSES = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_NOTICE_DELAY_S = 30.0  # until the daemon notices the new code server; a run that fails before is not retried


def end_dead_runs(instance: dg.DagsterInstance, started_at: datetime) -> int:
    """End unfinished runs without an update since `started_at`; return their number."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED_STATUSES, updated_before=started_at))
    for run in runs:
        if run.status is dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, "Its code server died while the run was cancelled.")
        else:
            instance.report_run_failed(run, "Its code server died, and the run with it.")
    return len(runs)


def main(address: str, started_at: datetime) -> None:
    """Wait for the code server at a port or socket, then call `end_dead_runs`."""
    while True:
        with socket.socket(socket.AF_INET if address.isdigit() else socket.AF_UNIX) as probe:
            probe.settimeout(5)
            try:
                probe.connect(("127.0.0.1", int(address)) if address.isdigit() else address)
                break
            except OSError:
                time.sleep(1)
    time.sleep(_NOTICE_DELAY_S)
    with dg.DagsterInstance.get() as instance:
        end_dead_runs(instance, started_at)


if __name__ == "__main__":
    main(sys.argv[1], datetime.fromtimestamp(int(sys.argv[2]), UTC))
