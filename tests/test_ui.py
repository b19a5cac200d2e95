"""`corpusmill ui` prints its address once it responds, or why it failed."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from command_results import Corpusmill, only_line
from free_ports import free_port
from refused_imports import refusing_environment

from pipeline_assets.spine.lock import locked

PROJECT = Path(__file__).parents[1]


def start_ui(root: Path, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipeline_assets", "ui", "--data", str(root), "--port", str(port)]
    environment = {**os.environ, **refusing_environment()}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.slow
def test_the_address_is_printed_after_the_start_and_to_a_second_ui(corpusmill: Corpusmill, tmp_path: Path) -> None:
    port = free_port()
    with start_ui(tmp_path, port) as ui:
        try:
            assert ui.stdout is not None
            address = next(line for line in ui.stdout if line.startswith("Dagster UI"))  # after dagster's lines
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=60) as response:
                status = response.status
            foreign = urllib.request.Request(f"http://127.0.0.1:{port}/server_info", headers={"Host": "evil.example"})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(foreign, timeout=60)
            second = corpusmill("ui", "--data", tmp_path, "--port", free_port())
        finally:
            ui.terminate()
        remaining_output = ui.stdout.read()

    assert address == f"Dagster UI: http://127.0.0.1:{port}  (data root {tmp_path}; Ctrl-C stops it)\n"
    assert (status, ui.returncode) == (200, 0)
    assert "Dagster UI" not in remaining_output
    refusal = f"another UI serves this data root; open http://127.0.0.1:{port}, or stop it first"
    assert (second.returncode, only_line(second)) == (1, f"{tmp_path}: {refusal}")


def test_wrong_settings_are_named_before_the_start(corpusmill: Corpusmill, tmp_path: Path) -> None:
    wrong = {"CORPUSMILL_KEEP_RUNS_DAYS": "ever", "CORPUSMILL_LAUNCHER": "moon"}

    result = corpusmill("ui", "--data", tmp_path, "--port", free_port(), env=wrong)

    assert (result.returncode, result.stderr) == (
        2,
        "corpusmill: CORPUSMILL_KEEP_RUNS_DAYS must be an integer from 0 to 36500, got 'ever'; "
        "CORPUSMILL_LAUNCHER must be one of local, modal, got 'moon'; correct them\n",
    )


@pytest.mark.parametrize("is_same_port", [False, True], ids=["another port", "the same port"])
def test_a_second_ui_of_a_data_root_is_refused(corpusmill: Corpusmill, tmp_path: Path, is_same_port: bool) -> None:
    with locked(tmp_path / "dagster" / "ui"), socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1] if is_same_port else free_port()
        result = corpusmill("ui", "--data", tmp_path, "--port", port)

    assert (result.returncode, result.stdout) == (1, "")
    assert only_line(result) == f"{tmp_path}: another UI serves this data root; open its address, or stop it first"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="lists processes by /proc")
@pytest.mark.usefixtures("_default_hangup")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 0), (signal.SIGHUP, 0)])
def test_a_ui_that_gets_a_signal_alone_leaves_no_process(number: signal.Signals, status: int, tmp_path: Path) -> None:
    with start_ui(tmp_path, free_port()) as ui:
        assert ui.stdout is not None
        next(line for line in ui.stdout if line.startswith("Dagster UI"))
        assert list_processes(tmp_path)
        ui.send_signal(number)
        deadline = time.monotonic() + 120
        while list_processes(tmp_path):
            if time.monotonic() > deadline:
                ui.kill()
                pytest.fail("processes of the UI did not end")
            time.sleep(0.2)

    assert ui.returncode == status


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="lists processes by /proc")
def test_a_ui_has_private_sockets_and_ends_with_an_error_if_its_daemon_is_killed(tmp_path: Path) -> None:
    with start_ui(tmp_path, free_port()) as ui:
        assert ui.stdout is not None
        next(line for line in ui.stdout if line.startswith("Dagster UI"))
        commands = {process: Path(f"/proc/{process}/cmdline").read_bytes() for process in list_processes(tmp_path)}
        sockets = re.findall(rb"--socket\0([^\0]+)", b"".join(commands.values()))
        modes = [Path(os.fsdecode(path)).parent.stat().st_mode & 0o777 for path in sockets]
        [daemon] = [process for process, command in commands.items() if b"dagster._daemon\0run\0" in command]
        os.kill(daemon, signal.SIGKILL)

    assert (modes, ui.returncode) == ([0o700, 0o700], 1)


def list_processes(root: Path) -> list[int]:
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"CORPUSMILL_DATA={root}".encode() in (folder / "environ").read_bytes():
                processes.append(int(folder.name))
    return processes


@pytest.mark.slow
def test_a_ui_that_ends_early_is_an_error_without_an_address(corpusmill: Corpusmill, tmp_path: Path) -> None:
    wrong = {"DAGSTER_CLI_DEV_LOG_FORMAT": "loud"}

    result = corpusmill("ui", "--data", tmp_path, "--port", free_port(), env=wrong)

    assert (result.returncode, result.stdout) == (1, "")
    assert only_line(result) == (
        f"{tmp_path}: dagster dev ended with status 2 before it responded; see its last lines above"
    )
