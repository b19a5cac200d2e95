"""`corpusmill ui`: a guarded `dagster dev` on a data root, with its own home, recipes and, for a demo, its hub.

Beside it, each `report.html` that is sealed there is served as a page on this machine alone.
"""

import contextlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.commands.terminal import Root, echo
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.shipped import shipped_path
from pipeline_assets.spine.visible import VISIBLE
from pipeline_assets.systems.registry import SYSTEMS
from resources.webhook import webhook_address

_POLL_S = 0.2
# A report quotes texts of anyone: it is shown, and runs and loads nothing.
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
}


def ui(
    data: Root = Path("data"), port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the UI.")] = 3000
) -> None:
    """Its address is printed once it answers.

    Example: corpusmill ui --data data/demo --port 3000
    """
    if not data.exists():
        raise UsageError("there is no such folder", data, "give the data root of a build with --data")
    webhook_address()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            # `dagster dev` would start all the same and fight over it.
            raise InputError("the port is taken", f"127.0.0.1:{port}", "give another one with --port") from None
    # Dagster loads for seconds: a taken port is told before.
    from pipeline_assets.events import report_sealed
    from pipeline_assets.instance import instance_home, open_instance

    with reports_served(data.absolute(), port + 1) as pages, _hub_url(data) as hub:
        os.environ.update(pages)
        with open_instance(data) as instance:
            report_sealed(SYSTEMS.load_recipes(data.absolute())[0], data.absolute(), instance)
        variables = {"CORPUSMILL_DATA": str(data.absolute()), "DAGSTER_HOME": str(instance_home(data))}
        environment = {**os.environ, **variables, **hub, "PYTHONWARNINGS": "ignore"}
        workspace = str(shipped_path("workspace.yaml"))
        # While it imports, Ctrl-C ends it without a traceback.
        develop = (
            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "
            "from pipeline_assets.webserver import develop; develop()"
        )
        command = [sys.executable, "-c", develop, "dev", "-w", workspace, "-p", str(port), "-h", "127.0.0.1"]
        command += ["--log-level", "warning"]  # each look of its sensor would be told
        echo(f"starting the Dagster UI of {data.absolute()}; Ctrl-C stops it", err=True)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end tells the child that this process has ended
            cwd=environment["DAGSTER_HOME"],
            env=environment,
            # It can only be stopped softly if SIGINT is not ignored, as it is in a shell's background job.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
        has_answered, status = False, None
        while status is None:
            # Of Ctrl-C the terminal told dagster too: it stops its children first.
            try:
                if not has_answered and _answers(port):
                    has_answered = True
                    echo(f"Dagster UI: http://127.0.0.1:{port}  (data root {data.absolute()}; Ctrl-C stops it)")
                status = process.wait(None if has_answered else _POLL_S)
            except subprocess.TimeoutExpired:
                pass
            except KeyboardInterrupt:
                echo("stopping the Dagster UI and its processes", err=True)
    if status not in (0, -signal.SIGINT, -signal.SIGTERM):
        when = "" if has_answered else " before it answered"
        raise InputError(f"dagster dev ended with status {status}{when}", data, "see its last lines above")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_POLL_S).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _hub_url(root: Path) -> Iterator[dict[str, str]]:
    """Serve the hub that a demo's recipes read from, and yield the variables that name it."""
    from pipeline_assets.demo.corpora import HUB_FOLDER
    from pipeline_assets.demo.loopback_hub import LoopbackHub

    if not (root / HUB_FOLDER).is_dir():
        yield {}
        return
    with LoopbackHub(root / HUB_FOLDER, writable=True) as hub:
        yield hub.variables()


@contextlib.contextmanager
def reports_served(root: Path, port: int) -> Iterator[dict[str, str]]:
    """The variable that says where, while the reports of a data root are served.

    Args:
        port: any free one where this one is taken.
    """
    from pipeline_assets.demo.loopback_http import is_loopback_host
    from resources.artifact_metadata import REPORTS

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, page = 421, b"The Host header names another machine."
            if is_loopback_host(self.headers, server.server_port):
                report = _page(root, urllib.parse.unquote(self.path))
                status, page = (404, b"There is no such report.") if report is None else (200, report)
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Nothing: the UI's terminal is for the UI."""

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
    except OSError:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {REPORTS: f"http://127.0.0.1:{server.server_port}"}
        finally:
            server.shutdown()


def _page(root: Path, path: str) -> bytes | None:
    """The report in a folder below the data root, `/stage_a/…/report.html`; None where none is sealed."""
    folder, _, name = path.strip("/").rpartition("/")
    if name != REPORT_HTML or ".." in Path(folder).parts:
        return None
    try:
        text = open_artifact(root / folder).path(REPORT_HTML).read_bytes().decode(errors="replace")
        return text.translate(VISIBLE).encode()
    except (InputError, OSError, ValueError):  # ValueError: of a NUL in the path
        return None
