"""Ray clusters of several nodes on this machine, whose start is retried."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from named_engines import BUILDERS

PROJECT = Path(__file__).parents[2]
PATH = os.pathsep.join(map(str, (PROJECT, BUILDERS, Path(__file__).parent)))
_TRIES = 5
# A loaded machine answers late, and a node that does not answer counts as dead.
_SETTINGS = {
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_health_check_initial_delay_ms": "60000",
    "RAY_health_check_period_ms": "3000",
    "RAY_health_check_timeout_ms": "20000",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "memory": 4 << 30, "include_dashboard": False}


@contextlib.contextmanager
def ray_cluster(nodes: int, **changes: Any) -> Iterator[Any]:
    """Start a cluster of nodes with one CPU each, which can import the builders."""
    from ray.cluster_utils import Cluster

    with mock.patch.dict(os.environ, {**_SETTINGS, "PYTHONPATH": PATH}):
        os.environ.pop("RAY_ADDRESS", None)
        for attempt in range(1, _TRIES + 1):
            cluster = Cluster()
            try:
                for _ in range(nodes):
                    cluster.add_node(**NODE | changes, wait=True)
                break
            except Exception:
                cluster.shutdown()
                if attempt == _TRIES:
                    raise
                time.sleep(attempt)
        try:
            yield cluster
        finally:
            cluster.shutdown()


def kill_worker(cluster: Any) -> None:
    """Kill a process of the cluster that runs a job."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for node in cluster.list_all_nodes():
            raylet = node.all_processes["raylet"][0].process.pid
            for child in Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"ray::_run_checked"):
                        os.kill(int(child), signal.SIGKILL)
                        return
        time.sleep(0.005)
    raise AssertionError("no job runs")


def start_driver(
    script: str, *arguments: object, address: str, path: str = PATH, prefix: Sequence[str] = (), **variables: str
) -> "subprocess.Popen[str]":
    """Start a script that uses the cluster at an address, in a session of its own."""
    environment: Mapping[str, str] = {
        **os.environ,
        **_SETTINGS,
        "PYTHONPATH": path,
        "RAY_ADDRESS": address,
        **variables,
    }
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=os.sep,  # the first folder that is searched for modules
    )
