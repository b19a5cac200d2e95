"""Private names of libraries; tests/test_compat.py fails when a library changes one.

Libraries are imported by the functions that need them: loading this module loads none.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dagster as dg
    import httpcore2
    import httpx2
    from huggingface_hub.utils._http import RateLimitInfo

SCHEDULED_TIME_TAG = ".dagster/scheduled_execution_time"
"""Tag of a run that a schedule started: the time at which it was due, in UTC and ISO format."""


def instance_with_overrides(home: str, overrides: Mapping[str, Any]) -> "dg.DagsterInstance":
    """Open the Dagster instance of a home folder.

    Args:
        overrides: Parts of `dagster.yaml` that replace those of the folder. `DagsterInstance` has no argument for them.
    """
    import dagster as dg
    from dagster._core.instance.ref import InstanceRef

    return dg.DagsterInstance.from_ref(InstanceRef.from_dir(home, overrides=dict(overrides)))


def latest_completed_tick(cron: str, moment: datetime, timezone: str) -> datetime:
    """Return the last time before a moment at which a cron expression was due."""
    from dagster._utils.schedules import get_latest_completed_cron_tick

    return get_latest_completed_cron_tick(cron, moment, timezone)


def run_dagster(start_process: Callable[..., Any]) -> None:
    """Run the `dagster` command of `sys.argv`.

    Args:
        start_process: Starts the processes of `dagster dev`, in place of `open_ipc_subprocess`. The command has no
            option for the webserver.
    """
    import dagster._cli
    from dagster._cli import dev

    setattr(dev, "open_ipc_subprocess", start_process)  # noqa: B010 - mypy refuses to replace an imported function
    dagster._cli.main()  # type: ignore[no-untyped-call]


def hub_headers(token: str | None) -> dict[str, str]:
    """Return the headers of a request to the hub; without a token, that of the environment is used."""
    from huggingface_hub.utils._headers import build_hf_headers

    return build_hf_headers(token=token)


def parse_rate_limit(headers: Mapping[str, str]) -> "RateLimitInfo | None":
    """Return what the headers of a response state about the hub's rate limit; None if nothing."""
    from huggingface_hub.utils._http import parse_ratelimit_headers

    return parse_ratelimit_headers(headers)


def hub_request_hook() -> Callable[["httpx2.Request"], object]:
    """Return the hook with which `huggingface_hub` adds an id to each request and logs it."""
    from huggingface_hub.utils._http import hf_request_event_hook

    return hf_request_event_hook


def hub_client_factory() -> Callable[[], "httpx2.Client"]:
    """Return the factory of the clients of `huggingface_hub`; the public API can only set it."""
    from huggingface_hub.utils import _http

    return _http._GLOBAL_CLIENT_FACTORY


def replace_network_backend(transport: "httpx2.HTTPTransport", backend: "httpcore2.NetworkBackend") -> None:
    """Make a transport open its connections through another network backend; httpx has no option for it."""
    transport._pool._network_backend = backend


def skip_numba_extensions() -> None:
    """Stop numba from loading what it does not need here.

    - At its first call it loads the types that other libraries add. Kernels use none of them, and awkward, which comes
      with gigatoken, takes a third of a second per process.
    - As it loads linear algebra, it asks scipy, where it is installed, for a BLAS, in as much time. Kernels call none.
    """
    from numba.core import entrypoints
    from numba.np import linalg

    def no_blas() -> None:
        raise ImportError("kernels call no BLAS")

    vars(entrypoints)["_already_initialized"] = True
    vars(linalg)["ensure_blas"] = no_blas
