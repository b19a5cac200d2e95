"""The code server ends when its process with the definitions dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dagster._grpc.client import DagsterGrpcClient
from free_ports import free_port

from pipeline_assets.develop import with_own_server

START_S = 600  # minutes on a loaded machine
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="lists child processes by /proc")


class CodeServer:
    """Running code server of a data root."""

    def __init__(self, root: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "pipeline_assets.code_server", "start", "-p", str(port)]
        variables = {**os.environ, "CORPUSMILL_DATA": str(root)}
        self.process = subprocess.Popen(
            [*command, "-m", "pipeline_assets.definitions"], env=variables, stderr=subprocess.PIPE, text=True
        )
        self.client = DagsterGrpcClient(port=port)

    def children(self) -> list[int]:
        """Return the processes with definitions."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for thread in threads for child in thread.read_text().split()]

    def answers(self) -> bool:
        return self.client.health_check_query() == "SERVING"

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not is_done():
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CodeServer]:
    started = CodeServer(tmp_path)
    try:
        started.wait_for(started.answers)
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


@pytest.mark.slow
def test_a_killed_process_with_definitions_ends_the_code_server(server: CodeServer) -> None:
    [child] = server.children()

    os.kill(child, signal.SIGKILL)
    _, errors = server.process.communicate(timeout=START_S)

    assert server.process.returncode == 1
    assert "corpusmill: the process with the definitions died with status -9\n" in errors


@pytest.mark.slow
def test_a_reload_replaces_the_process_and_a_signal_ends_the_code_server(server: CodeServer) -> None:
    [first] = server.children()

    server.client.reload_code(timeout=START_S)
    server.wait_for(lambda: first not in server.children())
    [_] = server.children()
    time.sleep(3)  # longer than the code server takes to notice a dead process
    assert server.answers()
    server.process.terminate()
    _, errors = server.process.communicate(timeout=START_S)

    assert "died" not in errors


def test_the_ui_starts_the_projects_servers() -> None:
    webserver = with_own_server(["python", "-m", "dagster_webserver", "--port", "3000"])
    code = with_own_server(["python", "-m", "dagster", "code-server", "start", "--socket", "/tmp/s"])
    daemon = with_own_server(["python", "-m", "dagster._daemon", "run"])

    assert webserver == ["python", "-m", "pipeline_assets.webserver", "--port", "3000"]
    assert code == ["python", "-m", "pipeline_assets.code_server", "start", "--socket", "/tmp/s"]
    assert daemon == ["python", "-m", "dagster._daemon", "run"]
