"""Private names of libraries have the meaning that the program expects."""

import inspect
import multiprocessing.util
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import dagster._cli
import httpcore2
import httpx2
import pytest
from dagster._cli import dev
from dagster._core.storage import tags
from dagster._grpc import server
from dagster_shared import ipc
from huggingface_hub import set_client_factory
from huggingface_hub.utils import _http, build_hf_headers, parse_ratelimit_headers
from numba.core import caching, config, entrypoints

from pipeline_assets import compat
from pipeline_assets.corpus import compiled


def test_compat_imports_no_library() -> None:
    code = "import pipeline_assets.compat, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"dagster", "huggingface_hub", "httpx2", "httpcore2", "numba", "numpy"}.isdisjoint(loaded)


def test_dagster_reserves_python_keywords_and_its_own_names() -> None:
    reserved = [name for name in ("notes", "class", "config", "configs") if compat.is_reserved_name(name)]
    assert reserved == ["class", "config"]


def test_job_of_selected_assets_has_its_name() -> None:
    @dg.asset
    def notes() -> None:
        pass

    assert dg.Definitions(assets=[notes]).resolve_implicit_global_asset_job_def().name == compat.ASSET_JOB


def test_tags_of_partitions_and_due_times_are_those_of_dagster() -> None:
    assert compat.PARTITION_TAG == tags.PARTITION_NAME_TAG
    assert compat.AUTOMATION_TAG == tags.AUTOMATION_CONDITION_TAG
    assert compat.RETRY_RUN_TAG == tags.AUTO_RETRY_RUN_ID_TAG
    assert compat.SCHEDULED_TIME_TAG == tags.SCHEDULED_EXECUTION_TIME_TAG


def test_instance_has_its_folder_and_the_overrides(tmp_path: Path) -> None:
    logs = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager", "config": {}}

    with compat.open_instance_with_overrides(str(tmp_path), {"compute_logs": logs}) as instance:
        assert isinstance(instance, dg.DagsterInstance)
        assert Path(instance.root_directory) == tmp_path
        assert type(instance.compute_log_manager).__name__ == "NoOpComputeLogManager"


@pytest.mark.parametrize(("time", "day"), [((5, 6), 4), ((1, 59), 3)])
def test_latest_tick_of_a_cron_expression_is_found(time: tuple[int, int], day: int) -> None:
    tick = compat.latest_completed_tick("0 2 * * *", datetime(2026, 3, 4, *time, tzinfo=UTC), "UTC")
    assert tick == datetime(2026, 3, day, 2, 0, tzinfo=UTC)


def test_dagster_dev_starts_its_processes_with_the_replaced_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dev.open_ipc_subprocess is ipc.open_ipc_subprocess
    calls: list[object] = []
    for module in (dev, server):
        assert "open_ipc_subprocess(" in inspect.getsource(module)
        monkeypatch.setattr(module, "open_ipc_subprocess", None)  # restored after the test
    monkeypatch.setattr(
        dagster._cli, "main", lambda: calls.extend(vars(module)["open_ipc_subprocess"] for module in (dev, server))
    )

    compat.run_dagster(print)

    assert calls == [print, print]


def test_code_server_reports_each_process_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "open_server_process(" in inspect.getsource(server.GrpcServerProcess.start_server_process)
    reported: list[object] = []
    monkeypatch.setattr(server, "open_server_process", lambda port, log_level: (port, log_level))
    monkeypatch.setattr(dagster._cli, "main", lambda: vars(server)["open_server_process"](1, log_level="info"))

    compat.run_code_server(reported.append)

    assert reported == [(1, "info")]


def test_requests_to_a_hub_have_the_token_and_an_id() -> None:
    request = httpx2.Request("GET", "http://127.0.0.1/")

    compat.hub_request_hook()(request)

    assert request.headers[_http.X_AMZN_TRACE_ID]
    assert build_hf_headers(token="hf_secret")["authorization"] == "Bearer hf_secret"


def test_rate_limit_is_read_from_headers() -> None:
    headers = {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
    limit = parse_ratelimit_headers(headers)

    assert limit is not None and (limit.remaining, limit.reset_in_seconds) == (0, 55)
    assert parse_ratelimit_headers({}) is None


def test_client_factory_is_the_configured_one() -> None:
    before = compat.hub_client_factory()
    try:
        set_client_factory(httpx2.Client)
        assert compat.hub_client_factory() is httpx2.Client
    finally:
        set_client_factory(before)
    assert compat.hub_client_factory() is before


@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:10"])
def test_client_connects_through_the_replaced_backend(proxy: str | None) -> None:
    class Refusing(httpcore2.NetworkBackend):
        def connect_tcp(self, host: str, port: int, *arguments: object, **options: object) -> httpcore2.NetworkStream:
            raise httpcore2.ConnectError(f"{host}:{port} is refused by the test")

    with httpx2.Client(proxy=proxy, trust_env=False) as client:
        compat.replace_network_backend(client, Refusing())

        with pytest.raises(httpx2.ConnectError, match="refused by the test"):
            client.get("http://127.0.0.1:9/")


KERNEL = """
import sys
from pipeline_assets.corpus.packing.hashed_order import hashed_order

print(*hashed_order(4, 1))
print(*sys.modules)
"""


def test_cached_kernel_is_loaded_without_compiler_modules(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    compiling, loading = (
        subprocess.run([sys.executable, "-c", KERNEL], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )

    outputs, modules = zip(*(run.stdout.splitlines() for run in (compiling, loading)), strict=True)
    assert outputs[0] == outputs[1]
    assert "numba.np.linalg" in modules[0].split()
    assert {"numba.np.linalg", "awkward"}.isdisjoint(modules[1].split())


def test_numba_has_the_replaced_names_and_the_cache_locator_methods() -> None:
    assert vars(entrypoints)["_already_initialized"] is True
    assert "_already_initialized" in inspect.getsource(entrypoints.init_all)
    assert "self._guard_against_spurious_io_errors()" in inspect.getsource(caching.Cache.save_overload)
    assert vars(config)["CACHE_LOCATOR_CLASSES"] == f"{compiled.__name__}.{compiled.KernelCacheLocator.__name__}"
    assert {"get_cache_path", "get_source_stamp", "get_disambiguator", "from_function"} <= set(
        dir(caching.UserWideCacheLocator)
    )


def test_multiprocessing_starts_programs_with_the_replaced_function(monkeypatch: pytest.MonkeyPatch) -> None:
    import _posixsubprocess

    monkeypatch.setattr(_posixsubprocess, "fork_exec", _posixsubprocess.fork_exec)  # restored after the test
    started = list[object]()
    compat.replace_fork_exec(lambda arguments, *_: started.append(arguments) or 7)

    assert multiprocessing.util.spawnv_passfds(b"/bin/program", [b"program", b"x"], []) == 7
    assert started == [[b"program", b"x"]]
