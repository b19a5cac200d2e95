"""Ray as an engine, which runs the jobs of a stage on one or more nodes.

Ray starts workers, chooses nodes and replaces dead workers; shards, receipts and resumption work as without Ray. All
nodes must have the same program, and the data root at the same path; each process checks both before it runs a job.
Other nodes inherit only the variable `OPENBLAS_NUM_THREADS`. They need no token, since only this process uses a hub.
"""

import contextlib
import functools
import hashlib
import logging
import os
import platform
import re
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError, one_line
from pipeline_assets.spine.futures import FutureEngine, JobFunction, JobResult
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.provenance import library_versions
from pipeline_assets.spine.redaction import redact_address
from pipeline_assets.spine.stage import S, WarmUp, Work
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView
from pipeline_assets.spine.worker import Failure

logger = logging.getLogger("corpusmill")
_CONNECT_TIMEOUT_S = 10.0
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_ADDRESS_FIX = "set it to HOST:PORT of a cluster's head, or remove it to start Ray on this machine"
_MAX_RETRIES = 3  # of a job by Ray itself, for example after a node failed
# Ray reads these when it is imported. Without the second one, it retries without end a job that needs too much memory;
# without the third one, it prints twenty lines for each dead worker, which the pool reports in one.
_RAY_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_task_oom_retries": "3", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
_CLUSTER_VARIABLES = {"RAY_NUM_REDIS_GET_RETRIES": "5"}  # tries to connect, one per second; 20 by default
_has_connected = False  # whether this module connected the process to Ray


def ray_stage_runner(
    work: Work[S], warm_up: WarmUp, workers: int, worker_bytes: int
) -> Callable[[str, Sequence[S], StagingView], Generator[Receipt]]:
    """Return a function that runs the shards of a stage as Ray tasks.

    The function yields receipts in order. At most `workers` tasks run at a time, each with a CPU and `worker_bytes` of
    memory. RetryableError is raised if Ray fails or is unreachable, or a node has another program or data root.
    """

    def run(stage: str, shards: Sequence[S], staging: StagingView) -> Generator[Receipt]:
        ray = connect(workers, worker_bytes)
        marker = staging.path(f"{WORK_FOLDER}/ray-{uuid.uuid4().hex}")
        durable.write_durably(marker, b"")
        blas = {"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1")}
        options = {"num_cpus": 1, "memory": worker_bytes, "max_retries": _MAX_RETRIES, "scheduling_strategy": "SPREAD"}
        task = ray.remote(_run_checked).options(runtime_env={"env_vars": blas}, **options)
        errors = ray.exceptions
        engine = FutureEngine(
            lambda *call: task.remote(program_digest(), str(marker), *call).future(),
            lambda future: ray.cancel(future.object_ref, force=True),  # type: ignore[attr-defined]
            (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError, errors.ObjectLostError),
        )
        try:
            # Only this process has the lock, so the jobs get a view without it.
            yield from engine.pool(work, warm_up, workers).run(stage, shards, StagingView(staging.folder))
        except errors.RayError as error:
            fix = "look at the logs of Ray, and install the same version of corpusmill on all nodes"
            raise RetryableError(f"Ray failed: {one_line(error, 300)}", stage, fix) from error

    return run


def disconnect() -> None:
    """Stop Ray if this process started it, or leave the cluster that it joined."""
    global _has_connected
    if _has_connected:
        import ray

        ray.shutdown()
        _has_connected = False


def _run_checked(
    expected_digest: str, marker_path: str, function: JobFunction, pickled_stage: bytes, pickled_job: bytes
) -> JobResult:
    """Run a job; return a Failure if this node's program or data root differs.

    `expected_digest` is the `program_digest` of the command; `marker_path` is a file in the data root of the command.
    """
    if program_digest() != expected_digest:
        what = "the program differs from the one on the machine that runs the command"
        fix = "install the same corpusmill, Python and libraries on all nodes"
    elif not _path_exists(marker_path):
        what = f"{Path(marker_path).parents[1]} is missing or another folder"
        fix = "mount the data root there on all nodes"
    else:
        return function(pickled_stage, pickled_job)
    return Failure(RetryableError(what, f"node {socket.gethostname()} of Ray", fix), "")


_path_exists = functools.lru_cache(maxsize=1)(os.path.exists)


@functools.cache
def program_digest() -> str:
    """Return a hash of source code, architecture, Python version and library versions."""
    digest = hashlib.sha256(repr((platform.python_version(), platform.machine(), library_versions())).encode())
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def parse_address(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None if empty, `auto` or `local`.

    Raise UsageError for any other form, such as `ray://HOST:PORT`.
    """
    if address in ("", "local", "auto"):
        return None
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or int(match["port"]) > 65_535:
        raise UsageError("must be HOST:PORT or auto", f"RAY_ADDRESS={redact_address(address)}", _ADDRESS_FIX)
    return match["host"].strip("[]"), int(match["port"])


@functools.cache
def check_address(address: str) -> None:
    """Raise RetryableError if nothing answers at HOST:PORT of a cluster."""
    if (place := parse_address(address)) is not None:
        try:
            socket.create_connection(place, _CONNECT_TIMEOUT_S).close()
        except Exception as error:
            raise _connection_error(address, error) from error


def _connection_error(address: str, error: Exception) -> RetryableError:
    where, fix = f"RAY_ADDRESS={address}", _ADDRESS_FIX
    if "auth" in f"{type(error).__name__} {error} {error.__cause__} {error.__context__}".lower():
        fix = "set RAY_AUTH_MODE=token, with the token of the head in ~/.ray/auth_token"
        return RetryableError("the cluster requires a token, and got none or a wrong one", where, fix)
    if address == "local":
        fix = "run the command again, with fewer workers or without --engine ray"
        return RetryableError(
            f"the cluster did not start on this machine: {one_line(error, 200).rstrip('.')}", "Ray", fix
        )
    return RetryableError(f"cannot connect to Ray: {one_line(error, 200)}", where, fix)


@contextlib.contextmanager
def _discard_stderr() -> Iterator[None]:
    """Discard stderr in the block, since Ray's core logs connection attempts to it."""
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)


def node_resources(ray: Any) -> list[Mapping[str, float]]:
    """Return the resources of each living node, such as CPU and memory in bytes."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def describe_nodes(nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the size of a cluster, such as `2 nodes, 64 CPUs`."""
    return f"{pluralize(len(nodes), 'node')}, {sum(node.get('CPU', 0) for node in nodes):.0f} CPUs"


def connect(workers: int, worker_bytes: int) -> Any:
    """Connect to RAY_ADDRESS, or start Ray on this machine; return the module `ray`.

    Raise UsageError if RAY_ADDRESS is invalid, and RetryableError if the connection fails. If no node has a CPU and
    `worker_bytes` of memory, raise RetryableError for Ray on this machine; for a cluster, only log a warning.
    """
    global _has_connected
    address = os.environ.get("RAY_ADDRESS") or "local"
    for name, value in (_RAY_VARIABLES | ({} if address == "local" else _CLUSTER_VARIABLES)).items():
        os.environ.setdefault(name, value)
    import ray
    import ray.exceptions

    if not ray.is_initialized():
        on_sigterm, cpus = signal.getsignal(signal.SIGTERM), workers if address == "local" else None
        try:
            check_address(address)  # Ray itself would try for minutes
            with contextlib.nullcontext() if address == "local" else _discard_stderr():
                ray.init(
                    address, num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
                )
        except InputError:
            raise
        except Exception as error:
            raise _connection_error(address, error) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's action would end the process with status 15
        _has_connected = True
        nodes = node_resources(ray)
        place = "started on this machine" if address == "local" else f"at {address}"
        logger.info("Ray %s: %s, at most %d workers", place, describe_nodes(nodes), workers)
        if not any(node.get("CPU", 0) >= 1 and node.get("memory", 0) >= worker_bytes for node in nodes):
            what = f"no node has a CPU and {worker_bytes >> 20} MiB for a worker"
            if address == "local":
                raise RetryableError(what, "Ray", "lower --memory-mib")
            logger.warning("Ray: %s; waiting for a node that joins", what)
    return ray
