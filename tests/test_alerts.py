"""Alerts of failed runs, which a webhook receives."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from materialized import NOWHERE, find_job, run_job

from pipeline_assets.code_location import build_definitions
from pipeline_assets.schedules import alert
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.ui import ui
from resources.webhook import WEBHOOK_VARIABLE


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    class Recorder(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    server.shutdown()


def test_a_failed_run_is_posted_to_the_webhook_and_a_dead_webhook_is_ignored(
    webhook: tuple[str, list[bytes]],
    notes_root: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, bodies = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, f"{NOWHERE}/secret")
    for path in (notes_root / "sources" / "notes").rglob("*.jsonl*"):
        path.unlink()
    failed = run_job(find_job(notes_root, "mixed"), instance)
    assert not failed.success
    [event] = [event for event in failed.all_events if event.is_run_failure] or [failed.all_events[-1]]
    context = dg.build_run_status_sensor_context("alert", event, instance, failed.dagster_run).for_run_failure()

    with caplog.at_level("WARNING"):
        alert(context)
    monkeypatch.delenv(WEBHOOK_VARIABLE)
    alert(context)
    assert bodies == [] and "secret" not in caplog.text

    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    alert(context)
    [body] = bodies
    assert json.loads(body)["text"].startswith("mixed failed: ")
    assert "no file matches" in json.loads(body)["text"]


@pytest.mark.parametrize(
    "address",
    [
        "secret",
        "file:///secret",
        "http:///secret",
        "http://host:secret/",
        "http://host:0/secret",
        "http://[secret/",
        "https://secret@host/",
        "http://host/secret\n",
        "http://host/secret\x1b[2J",
        "http://häst/secret",
    ],
)
def test_an_invalid_webhook_is_refused_at_the_start_without_its_value(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)

    for start in (lambda: build_definitions(tmp_path), lambda: ui(tmp_path)):
        with pytest.raises(UsageError) as refused:
            start()

        assert str(refused.value).startswith(f"{WEBHOOK_VARIABLE}: ")
        assert "secret" not in str(refused.value)
