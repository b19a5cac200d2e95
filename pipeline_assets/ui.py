"""The command `ui`, which runs `dagster dev` with `pipeline_assets.webserver`.

Dagster's home is in the data root. Other servers on loopback serve the demo's hub and the pages of sealed reports.
"""

import contextlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.commands.settings import invalid_settings, misspelled_settings
from pipeline_assets.commands.terminal import Root, echo, print_lines
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_owner import lock_owner
from pipeline_assets.spine.sealed_folder import raise_if_artifact
from pipeline_assets.spine.shipped import shipped_path
from pipeline_assets.spine.visible import VISIBLE_TABLE
from pipeline_assets.systems.registry import SYSTEMS
from resources.webhook import webhook_address

_POLL_S = 0.2
_ADDRESS_FILE = "ui.address"
# A loaded machine needs more than Dagster's 60 s for a call, and backfills wait for a code server that starts again.
_DAGSTER_TIMEOUTS = {"DAGSTER_GRPC_TIMEOUT_SECONDS": "300", "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "1"}
# A report quotes untrusted text: its page may not run scripts or load anything.
_REPORT_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
}


def ui(
    data: Root = Path("data"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the UI; reports have the next.")] = 3000,
) -> None:
    """Open the Dagster UI of a data root; Ctrl-C stops it.

    Print the address when the UI responds.

    Example: corpusmill ui --data data/demo --port 3000
    """
    if not data.exists():
        raise UsageError("folder not found", data, "pass the data root of a build with --data")
    if not data.is_dir():
        raise UsageError("expected a folder, got a file", data, "choose another folder, or move the file away")
    raise_if_artifact(data, "pass the data root of a build with --data")
    webhook_address()
    if invalid := invalid_settings(os.environ):
        raise UsageError("; ".join(invalid), None, "correct them")
    print_lines(misspelled_settings(os.environ), err=True)
    data = data.absolute()
    _raise_if_in_use(port, data)
    echo(f"starting the Dagster UI of {data}; Ctrl-C stops it", err=True)  # before seconds of imports
    from pipeline_assets.instance import instance_home, open_instance
    from pipeline_assets.sealed_sensor import report_sealed_artifacts

    home = instance_home(data)
    with (
        _lock_home(home, _address(port)),
        serve_reports(data, port + 1) as pages,
        _serve_demo_hub(data) as hub,
        tempfile.TemporaryDirectory() as private,  # a code server runs the code of anyone who reaches its socket
    ):
        os.environ.update(pages)
        with open_instance(data) as instance:
            report_sealed_artifacts(SYSTEMS.load_recipes(data)[0], data, instance)
        variables = {"CORPUSMILL_DATA": str(data), "DAGSTER_HOME": str(home), "TMPDIR": private, **hub}
        _wait_until_stopped(_start_dagster(port, home, variables), port, data)


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _raise_if_in_use(port: int, root: Path) -> None:
    """Raise InputError if a port is in use: `dagster dev` would compete for it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            if lock_owner((home := root / "dagster") / "ui"):  # with another port, this UI would be refused as well
                raise _second_ui_error(home) from None
            raise InputError("the port is in use", f"127.0.0.1:{port}", "choose another port with --port") from None


def _second_ui_error(home: Path) -> InputError:
    address_file = home / _ADDRESS_FILE
    other = address_file.read_text(encoding="utf-8") if address_file.is_file() else "its address"
    return InputError("another UI serves this data root", home.parent, f"open {other}, or stop it first")


def _start_dagster(port: int, home: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `dagster dev` with the environment of this process and `variables`."""
    # Ctrl-C during the import ends the process without a traceback.
    develop = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "from pipeline_assets.develop import develop; develop()"
    )
    workspace = str(shipped_path("workspace.yaml"))
    command = [sys.executable, "-c", develop, "dev", "-w", workspace, "-p", str(port), "-h", "127.0.0.1"]
    return subprocess.Popen(
        [*command, "--log-level", "warning"],  # each tick of the sensors would be logged
        stdin=subprocess.PIPE,  # the child stops when this process and so its stdin ends
        cwd=home,
        env={**_DAGSTER_TIMEOUTS, **os.environ, **variables, "PYTHONWARNINGS": "ignore"},
        # SIGINT is ignored in a shell's background job; Dagster needs it for a clean stop.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,  # a signal that reached all processes at once would interrupt Dagster's clean stop
    )


def _wait_until_stopped(dagster: "subprocess.Popen[bytes]", port: int, root: Path) -> None:
    """Print the UI's address when it responds, and wait until a signal stops Dagster.

    Raise InputError if Dagster ends otherwise.
    """
    is_stopped, has_answered, status = threading.Event(), False, None

    def stop(*_: object) -> None:
        if not is_stopped.is_set():  # a second signal would interrupt Dagster's clean stop
            is_stopped.set()
            dagster.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):  # the terminal may be closed
                echo("stopping the Dagster UI and its processes", err=True)

    signal.signal(signal.SIGTERM, stop)
    while status is None:
        try:
            if not has_answered and _accepts_connections(port):
                has_answered = True
                echo(f"Dagster UI: {_address(port)}  (data root {root}; Ctrl-C stops it)")
            status = dagster.wait(None if has_answered else _POLL_S)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:  # by SIGINT or SIGHUP
            stop()
    # After the death of its web server or daemon, `dagster dev` ends with status 0.
    if not is_stopped.is_set() or status not in (0, -signal.SIGINT, -signal.SIGTERM):
        when = "" if has_answered else " before it responded"
        raise InputError(f"dagster dev ended with status {status}{when}", root, "see its last lines above")


def _accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_POLL_S).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _lock_home(home: Path, address: str) -> Iterator[None]:
    """Lock a Dagster home, and store the UI's address in it.

    Without the lock, two daemons would start each scheduled run twice.
    """
    with contextlib.ExitStack() as lock:
        try:
            lock.enter_context(locked(home / "ui"))
        except BuilderBusyError:
            raise _second_ui_error(home) from None
        durable.write_durably(home / _ADDRESS_FILE, address.encode())
        yield


@contextlib.contextmanager
def _serve_demo_hub(root: Path) -> Iterator[dict[str, str]]:
    """Serve the demo's hub; yield its environment variables, or {} without a demo."""
    from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub

    if not (root / HUB_FOLDER).is_dir():
        yield {}
        return
    with LoopbackHub(root / HUB_FOLDER, writable=True) as hub:
        yield hub.client_environment()


@contextlib.contextmanager
def serve_reports(root: Path, port: int) -> Iterator[dict[str, str]]:
    """Serve reports at `port` or another free port; yield {variable: address}."""
    from pipeline_assets.demo.loopback_http import is_loopback_host
    from resources.artifact_metadata import REPORTS_VARIABLE

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, page = 421, b"The Host header names another machine."
            if is_loopback_host(self.headers, server.server_port):
                report = _read_report(root, urllib.parse.unquote(self.path))
                status, page = (404, b"Report not found.") if report is None else (200, report)
            self.send_response(status)
            for name, value in _REPORT_HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Log nothing, so that the terminal shows only the UI's log."""

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
    except (OSError, OverflowError):  # OverflowError: the port after 65535
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {REPORTS_VARIABLE: f"http://127.0.0.1:{server.server_port}"}
        finally:
            server.shutdown()


def _read_report(root: Path, url_path: str) -> bytes | None:
    """Return a report by its path, such as `/stage_a/…/report.html`; None if missing."""
    folder, _, name = url_path.strip("/").rpartition("/")
    if name != REPORT_HTML or ".." in Path(folder).parts:
        return None
    try:
        text = open_artifact(root / folder).path(REPORT_HTML).read_bytes().decode(errors="replace")
        return text.translate(VISIBLE_TABLE).encode()
    except (InputError, OSError, ValueError):  # ValueError: the path contains NUL
        return None
