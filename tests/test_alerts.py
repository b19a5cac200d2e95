"""Alerts of failed runs, which a webhook receives."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster_shared.error import SerializableErrorInfo
from materialized import NOWHERE, execute_some_steps, find_job, run_job

from pipeline_assets import alerts
from pipeline_assets.alerts import alert
from pipeline_assets.code_location import build_definitions
from pipeline_assets.compat import RETRY_RUN_TAG
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.ui import ui
from resources.webhook import WEBHOOK_VARIABLE


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []
    ended = threading.Event()

    class Recorder(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(302 if self.path == "/moved" else 204)
            self.send_header("Location", "/hook")
            while self.path == "/slow":
                self.send_header("X-Padding", "0")
                self.flush_headers()
                if ended.wait(0.1):
                    return
            self.end_headers()

        def do_GET(self) -> None:
            bodies.append(b"GET")
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    ended.set()
    server.shutdown()


def failure_context(run: dg.DagsterRun, instance: dg.DagsterInstance) -> dg.RunFailureSensorContext:
    [entry] = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert entry.dagster_event is not None
    return dg.build_run_status_sensor_context("alert", entry.dagster_event, instance, run).for_run_failure()


@pytest.fixture
def failed_run(notes_root: Path, instance: dg.DagsterInstance) -> dg.DagsterRun:
    """Run two of the assets of a partition, whose input is stale."""
    notes = next((notes_root / "sources" / "notes").rglob("*.jsonl*"))
    notes.write_bytes(notes.read_bytes())
    return execute_some_steps(notes_root, instance, "mixed", "notes", ["normalized", "filtered"])


def test_a_failed_run_is_posted_to_the_webhook_and_a_dead_webhook_is_ignored(
    webhook: tuple[str, list[bytes]],
    notes_root: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, bodies = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, f"{NOWHERE}/secret")
    for path in (notes_root / "sources" / "notes").rglob("*.jsonl*"):
        path.unlink()
    failed = run_job(find_job(notes_root, "mixed"), instance)
    assert not failed.success
    [event] = [event for event in failed.all_events if event.is_run_failure] or [failed.all_events[-1]]
    context = dg.build_run_status_sensor_context("alert", event, instance, failed.dagster_run).for_run_failure()

    alert(context)
    monkeypatch.delenv(WEBHOOK_VARIABLE)
    alert(context)
    log = "".join(capsys.readouterr())
    assert bodies == [] and "secret" not in log
    assert log.count(f"{WEBHOOK_VARIABLE} does not answer: ConnectionRefusedError") == 1

    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    alert(context)
    [body] = bodies
    assert json.loads(body)["text"].startswith("mixed failed: ")
    assert "no file matches" in json.loads(body)["text"]


def test_an_alert_of_assets_names_those_that_failed_and_their_partition(
    webhook: tuple[str, list[bytes]],
    failed_run: dg.DagsterRun,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, bodies = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)

    alert(failure_context(failed_run, instance))

    assert json.loads(bodies[0])["text"].startswith("stage_a/mixed/normalized [notes] failed: ")


def test_an_alert_names_a_failed_asset_of_another_project(
    webhook: tuple[str, list[bytes]], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset
    def index() -> None:
        raise dg.Failure("no space in the index")

    @dg.asset
    def dashboard() -> None: ...

    job = dg.Definitions(assets=[dashboard, index]).resolve_implicit_global_asset_job_def()
    keys = [dashboard.key, index.key]
    result = job.execute_in_process(asset_selection=keys, instance=instance, raise_on_error=False)
    monkeypatch.setenv(WEBHOOK_VARIABLE, webhook[0])

    alert(failure_context(result.dagster_run, instance))

    [body] = webhook[1]
    assert json.loads(body) == {"text": "index failed: no space in the index"}


def test_of_a_run_that_was_started_again_only_the_last_failure_is_posted(
    webhook: tuple[str, list[bytes]], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEBHOOK_VARIABLE, webhook[0])
    job = dg.GraphDefinition("notes").to_job()
    last = instance.create_run_for_job(job)
    first = instance.create_run_for_job(job, tags={RETRY_RUN_TAG: last.run_id})
    for run in (first, last):
        instance.report_run_failed(run, f"The process of {'the new' if run is last else 'the first'} run died.")

        alert(failure_context(run, instance))

    [body] = webhook[1]
    assert json.loads(body) == {"text": "notes failed: The process of the new run died"}


def test_an_alert_has_dagsters_error_if_no_step_failed(
    webhook: tuple[str, list[bytes]], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, bodies = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    run = instance.create_run_for_job(dg.GraphDefinition("notes_verify").to_job())
    error = EngineEventData.engine_error(SerializableErrorInfo("Could not find job notes_verify.\nStack\n", [], None))
    instance.report_engine_event("Could not load job definition.", run, error)
    instance.report_run_failed(run)

    alert(failure_context(run, instance))

    assert json.loads(bodies[0])["text"] == (
        "notes_verify failed: This run has been marked as failed from outside the execution context; "
        "Could not find job notes_verify."
    )


@pytest.mark.parametrize(("path", "problem"), [("moved", "answers with status 302"), ("slow", "does not answer")])
def test_a_redirected_or_endless_answer_is_a_warning(
    path: str,
    problem: str,
    webhook: tuple[str, list[bytes]],
    failed_run: dg.DagsterRun,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, bodies = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, address.replace("hook", path))
    monkeypatch.setattr(alerts, "_TIMEOUT_S", 2.0)

    alert(failure_context(failed_run, instance))

    assert f"{WEBHOOK_VARIABLE} {problem}" in "".join(capsys.readouterr())
    assert len(bodies) == 1 and b"GET" not in bodies


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
