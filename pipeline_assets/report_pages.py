"""Reports as pages: each `report.html` that is sealed below a data root, for links in the UI. On this machine alone."""

import contextlib
import http.server
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.corpus.html_page import REPORT_HTML
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from resources.materialization import REPORTS

# A report quotes texts of anyone: it is shown, and runs and loads nothing.
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
}


@contextlib.contextmanager
def reports_served(root: Path, port: int) -> Iterator[dict[str, str]]:
    """The variable that says where, while the reports of a data root are served.

    Args:
        port: any free one where this one is taken.
    """

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = _page(root, urllib.parse.unquote(self.path))
            self.send_response(404 if page is None else 200)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page or b"There is no such report.")

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
        return open_artifact(root / folder).path(REPORT_HTML).read_bytes()
    except (InputError, OSError, ValueError):  # ValueError: of a NUL in the path
        return None
