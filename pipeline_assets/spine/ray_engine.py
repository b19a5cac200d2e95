"""Ray as an engine: jobs of a stage run as Ray tasks, on one node or on many.

Ray starts workers, chooses nodes and replaces dead ones; shards, receipts and resumption are as on one machine. All
nodes have the same program, and see the data root under one path: each process checks both before its first job. Of
this process's environment, other nodes get only `OPENBLAS_NUM_THREADS`, and no token: only this process uses a hub.
"""

import functools
import hashlib
import logging
import os
import platform
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError, one_line
from pipeline_assets.spine.futures import Call, FutureEngine, Result
from pipeline_assets.spine.provenance import library_versions
from pipeline_assets.spine.stage import S, WarmUp, Work
from pipeline_assets.spine.staging import WORK, Receipt, StagingView
from pipeline_assets.spine.worker import Failure

logger = logging.getLogger("corpusmill")
_CONNECT_TIMEOUT_S = 10.0
_MAX_RETRIES = 3  # of a job by Ray itself, for example after a node failed
# Ray reads these when it is imported. Without the second one, it repeats a job that needs too much memory for ever;
# without the third one, it prints twenty lines for each dead worker, which the pool reports in one.
_RAY_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_task_oom_retries": "3", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
_is_ours = False  # whether this module connected the process to Ray


def run_on_ray(
    work: Work[S], warm_up: WarmUp, workers: int, memory: int
) -> Callable[[str, Sequence[S], StagingView], Generator[Receipt]]:
    """Return a function that runs the shards of a stage as Ray tasks.

    It yields receipts in order. At most `workers` tasks run at a time, each with a CPU and `memory` bytes.

    Raises:
        RetryableError: Ray failed or is not reachable, or a node has another program or another data root.
    """

    def run(stage: str, shards: Sequence[S], folder: StagingView) -> Generator[Receipt]:
        ray = _connect(workers, memory)
        mark = folder.path(f"{WORK}/ray-{uuid.uuid4().hex}")
        durable.write_durably(mark, b"")
        blas = {"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1")}
        options = {"num_cpus": 1, "memory": memory, "max_retries": _MAX_RETRIES, "scheduling_strategy": "SPREAD"}
        task = ray.remote(_run_checked).options(runtime_env={"env_vars": blas}, **options)
        errors = ray.exceptions
        engine = FutureEngine(
            lambda *call: task.remote(program_digest(), str(mark), *call).future(),
            lambda future: ray.cancel(future.object_ref, force=True),  # type: ignore[attr-defined]
            (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError, errors.ObjectLostError),
        )
        try:
            yield from engine.pool(stage, work, warm_up, folder, workers).run(shards)
        except errors.RayError as error:
            fix = "look at the logs of Ray, and install the same version of corpusmill on all nodes"
            raise RetryableError(f"Ray failed: {one_line(error, 300)}", stage, fix) from error

    return run


def disconnect() -> None:
    """Stop Ray if this process started it, or leave the cluster that it joined."""
    global _is_ours
    if _is_ours:
        import ray

        ray.shutdown()
        _is_ours = False


def _run_checked(program: str, mark: str, function: Call, stage: bytes, job: bytes) -> Result:
    """Run a job on a node; return a Failure if its program or data root differs."""
    if program_digest() != program:
        what = "the program differs from the one on the machine that runs the command"
        fix = "install the same corpusmill, Python and libraries on all nodes"
    elif not _exists(mark):
        what, fix = f"{Path(mark).parents[1]} is missing or another folder", "mount the data root there on all nodes"
    else:
        return function(stage, job)
    return Failure(RetryableError(what, f"node {socket.gethostname()} of Ray", fix), "")


_exists = functools.lru_cache(maxsize=1)(os.path.exists)


@functools.cache
def program_digest() -> str:
    """Return a hash of the source code, Python, architecture and libraries."""
    digest = hashlib.sha256(repr((platform.python_version(), platform.machine(), library_versions())).encode())
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def check_address(address: str) -> None:
    """Raise RetryableError if nothing answers at HOST:PORT of a cluster."""
    if address not in ("", "local", "auto"):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), port), _CONNECT_TIMEOUT_S).close()
        except Exception as error:
            raise _connection_error(address, error) from error


def _connection_error(address: str, error: Exception) -> RetryableError:
    what, fix = f"cannot connect to Ray: {one_line(error, 200)}", "set it to HOST:PORT of a cluster's head"
    return RetryableError(what, f"RAY_ADDRESS={address}", f"{fix}, or remove it to start Ray on this machine")


def _connect(workers: int, memory: int) -> Any:
    """Connect to the cluster at RAY_ADDRESS; without it, start Ray on this machine."""
    global _is_ours
    for name, value in _RAY_VARIABLES.items():
        os.environ.setdefault(name, value)
    import ray
    import ray.exceptions

    if not ray.is_initialized():
        address, on_sigterm = os.environ.get("RAY_ADDRESS") or "local", signal.getsignal(signal.SIGTERM)
        cpus = workers if address == "local" else None
        try:
            check_address(address)  # Ray itself would try for minutes
            ray.init(address, num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except RetryableError:
            raise
        except Exception as error:
            raise _connection_error(address, error) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's action would end the process with status 15
        _is_ours = True
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        all_cpus = sum(node.get("CPU", 0) for node in nodes)
        logger.info("Ray at %s: %d nodes, %d CPUs, at most %d workers", address, len(nodes), all_cpus, workers)
        if not any(node.get("CPU", 0) >= 1 and node.get("memory", 0) >= memory for node in nodes):
            what = f"no node has a CPU and {memory >> 20} MiB for a worker"
            if address == "local":
                raise RetryableError(what, "Ray", "lower --memory-mib")
            logger.warning("Ray: %s; waiting for a node that joins", what)
    return ray
