"""Private functions of libraries, each with a test in tests/test_compat.py.

Functions import the libraries that they need, so that loading this module loads none.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    import dagster as dg
    import httpcore2
    import httpx2

SCHEDULED_TIME_TAG = ".dagster/scheduled_execution_time"
"""Tag of a run that a schedule started: the time at which it was due, in UTC and ISO format."""

ASSET_JOB = "__ASSET_JOB"
"""Name of Dagster's own job, which materializes the selected assets."""

PARTITION_TAG = "dagster/partition"
"""Tag of a run of one partition."""

RETRY_RUN_TAG = "dagster/auto_retry_run_id"
"""Tag of a failed run that the daemon started again: the id of the new run."""

AUTOMATION_TAG = "dagster/from_automation_condition"
"""Tag of a run or backfill that an automation condition requested."""


def is_reserved_name(name: str) -> bool:
    """Check whether Dagster refuses a name as a reserved word, such as `config`."""
    from dagster._core.definitions.utils import DISALLOWED_NAMES

    return name in DISALLOWED_NAMES


def open_instance_with_overrides(home: str, overrides: Mapping[str, Any]) -> "dg.DagsterInstance":
    """Open the Dagster instance of a home folder.

    `overrides` replace sections of the folder's `dagster.yaml`; `DagsterInstance` has no argument for them.
    """
    import dagster as dg
    from dagster._core.instance.ref import InstanceRef

    return dg.DagsterInstance.from_ref(InstanceRef.from_dir(home, overrides=dict(overrides)))


def latest_completed_tick(cron: str, moment: datetime, timezone: str) -> datetime:
    """Return the last time before a moment at which a cron expression was due."""
    from dagster._utils.schedules import get_latest_completed_cron_tick

    return get_latest_completed_cron_tick(cron, moment, timezone)


def run_dagster(start_process: Callable[..., Any]) -> None:
    """Run the `dagster` command in `sys.argv`; `start_process` starts its processes.

    `start_process` replaces `open_ipc_subprocess`, because `dagster dev` has no option for a different webserver or
    code server.
    """
    import dagster._cli
    from dagster._cli import dev
    from dagster._grpc import server

    for module in (dev, server):
        setattr(module, "open_ipc_subprocess", start_process)  # noqa: B010 - mypy refuses to replace a function
    dagster._cli.main()  # type: ignore[no-untyped-call]


def run_code_server(on_start: "Callable[[subprocess.Popen[str]], None]") -> None:
    """Run the `dagster` command in `sys.argv`, which is `code-server`.

    `on_start` receives each process with definitions that the code server starts, once the process answers.
    """
    import dagster._cli
    from dagster._grpc import server

    start_process = server.open_server_process

    def start_and_report(*arguments: Any, **options: Any) -> "subprocess.Popen[str]":
        process: subprocess.Popen[str] = start_process(*arguments, **options)
        on_start(process)
        return process

    setattr(server, "open_server_process", start_and_report)  # noqa: B010 - mypy refuses to replace a function
    dagster._cli.main()  # type: ignore[no-untyped-call]


def hub_request_hook() -> Callable[["httpx2.Request"], object]:
    """Return the hook of `huggingface_hub` that adds a request id and logs requests."""
    from huggingface_hub.utils._http import hf_request_event_hook

    return hf_request_event_hook


def hub_client_factory() -> Callable[[], "httpx2.Client"]:
    """Return `huggingface_hub`'s client factory; the public API can only replace it."""
    from huggingface_hub.utils import _http

    return _http._GLOBAL_CLIENT_FACTORY


def replace_network_backend(client: "httpx2.Client", backend: "httpcore2.NetworkBackend") -> None:
    """Replace the network backend of a client and its proxies; no option does this."""
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:  # None: an address for which no proxy is used
            vars(transport)["_pool"]._network_backend = backend


def skip_numba_compiler() -> None:
    """Make numba load cached kernels without modules that only compilation needs.

    By default, numba first imports its typing rules and the extensions of other libraries. Cached code needs only
    numba's runtime, which counts references to arrays.
    """
    from numba.core import caching, entrypoints
    from numba.core.runtime.nrt import rtsys

    def load_overload(cache: Any, signature: object, context: object) -> object:
        rtsys.initialize(context)
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)
        # Only if the cache is unreadable, an error that the block suppresses: numba then compiles the kernel.
        return None

    vars(entrypoints)["_already_initialized"] = True
    setattr(caching.Cache, "load_overload", load_overload)  # noqa: B010 - mypy refuses to replace a method


def compile_without_cache_on_errors() -> None:
    """Make numba compile kernels that cannot be stored or loaded, as on a full disk."""
    from numba.core import caching

    @contextlib.contextmanager
    def guard(cache: object) -> Iterator[None]:
        with contextlib.suppress(OSError):
            yield

    setattr(caching.Cache, "_guard_against_spurious_io_errors", guard)  # noqa: B010 - mypy refuses to replace a method


def replace_fork_exec(function: Callable[..., Any]) -> None:
    """Replace the function by which `multiprocessing` starts a program.

    Unlike `subprocess.Popen`, the original function raises no audit event, so an audit hook cannot refuse the call.
    """
    import _posixsubprocess

    vars(_posixsubprocess)["fork_exec"] = function
