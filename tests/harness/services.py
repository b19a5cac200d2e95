"""Services of docker/run_local.sh: PostgreSQL, code server, UI and daemon."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from free_ports import free_port

PROJECT = Path(__file__).parents[2]
NAMES = ("postgres", "code", "webserver", "daemon")
_START_S = 600  # minutes on a loaded machine
_POLL_S = 0.5
_REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "pipeline"}


def skip_without_postgres() -> None:
    if not (shutil.which("postgres") or [*Path("/usr/lib/postgresql").glob("*/bin/postgres")]):
        pytest.skip("PostgreSQL is not installed here")
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed")


class Services:
    """Run of run_local.sh on a data root, stopped at the end of a `with`."""

    def __init__(self, root: Path, variables: Mapping[str, str]) -> None:
        self.root, self.port = root, free_port()
        self.home = root / "dagster" / "server"
        self.log = root.with_name(f"{root.name}.log")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "CORPUSMILL_"))}
        environment = {**kept, "CORPUSMILL_BIN": str(Path(sys.executable).parent), **variables}
        for folder in (root, root.parent):  # PostgreSQL, which root starts as another user, must reach its files
            folder.chmod(0o755)
        command = [PROJECT / "docker" / "run_local.sh", root, str(self.port)]
        folder = root.with_name(f"{root.name}_current")
        folder.mkdir(exist_ok=True)
        (folder / "gql.py").write_text("raise ImportError\n")  # a user's module, which no service may import
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )

    def __enter__(self) -> Self:
        self.wait_for(lambda: "Dagster UI: " in self.output(), "the UI")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, is_done: Callable[[], bool], what: str, seconds: float = _START_S) -> None:
        """Wait until `is_done`; a service that is being replaced is polled again."""
        deadline = time.monotonic() + seconds

        def answer() -> bool:
            try:
                return is_done()
            except OSError:
                return False

        while not answer():
            assert self.process.poll() is None, f"run_local.sh ended: {self.output()[-3000:]}"
            assert time.monotonic() < deadline, f"no sign of {what} in {seconds:.0f} s: {self.output()[-3000:]}"
            time.sleep(_POLL_S)

    def pid(self, name: str) -> int:
        return int((self.home / f"{name}.pid").read_text())

    def environment(self) -> dict[str, str]:
        """Return the variables of the code server, such as the address of PostgreSQL."""
        entries = Path(f"/proc/{self.pid('code')}/environ").read_bytes().decode().split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def kill(self, name: str) -> None:
        """Kill a service; wait for its replacement and for the UI."""
        before, count = self.pid(name), self.output().count(f"{name} died")
        os.kill(before, signal.SIGKILL)
        self.wait_for(lambda: self.output().count(f"{name} died") > count and self.pid(name) != before, f"a new {name}")
        self.wait_for(self.is_loaded, "definitions")

    def stop(self, number: signal.Signals) -> int:
        """Send a signal to the script alone; return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=300)

    def processes(self) -> list[int]:
        """Return the processes whose environment names this data root."""
        mark = f"CORPUSMILL_DATA={self.root}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                found += [int(path.parent.name)] if mark in path.read_bytes() + b"\0" else []
            except OSError:
                continue
        return found

    def query(self, text: str, **variables: object) -> dict[str, Any]:
        """Return the data of a GraphQL query; errors of the query fail the test."""
        body = json.dumps({"query": text, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/graphql", body, headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        data: dict[str, Any] = answer["data"]
        return data

    def is_loaded(self) -> bool:
        """Check whether the web server answers and has the definitions."""
        try:
            entries = self.query(_LOCATIONS)["workspaceOrError"]["locationEntries"]
        except (OSError, AssertionError, KeyError, ValueError):
            return False
        kinds = [(entry["locationOrLoadError"] or {}).get("__typename") for entry in entries]
        return kinds == ["RepositoryLocation"]

    def start_schedule(self, name: str) -> str:
        """Switch a schedule on; return the id by which it is stopped."""
        data = self.query(_START_SCHEDULE, selector={**_REPOSITORY, "scheduleName": name})["startSchedule"]
        assert data["__typename"] == "ScheduleStateResult", data
        return str(data["scheduleState"]["id"])

    def stop_schedules(self, states: list[str]) -> None:
        """Switch schedules off twice: the daemon may restore an earlier state once."""
        for _ in range(2):
            for state in states:
                data = self.query(_STOP_SCHEDULE, id=state)["stopRunningSchedule"]
                assert data["__typename"] == "ScheduleStateResult", data
            time.sleep(10)

    def backfill(self, keys: list[list[str]], partitions: list[str]) -> str:
        """Start a backfill of assets with equal partitions; return its id."""
        parameters = {"assetSelection": [{"path": key} for key in keys], "partitionNames": partitions}
        data = self.query(_BACKFILL, parameters=parameters)["launchPartitionBackfill"]
        assert data["__typename"] == "LaunchBackfillSuccess", data
        return str(data["backfillId"])

    def backfill_status(self, backfill: str) -> str:
        return str(self.query(_BACKFILL_STATUS, id=backfill)["partitionBackfillOrError"]["status"])

    def run_statuses(self) -> list[str]:
        return [run["status"] for run in self.query(_RUNS)["runsOrError"]["results"]]

    def run_jobs(self) -> list[str]:
        return [run["jobName"] for run in self.query(_RUNS)["runsOrError"]["results"]]


_LOCATIONS = "{workspaceOrError {... on Workspace {locationEntries {locationOrLoadError {__typename}}}}}"
_START_SCHEDULE = """
mutation ($selector: ScheduleSelector!) {
  startSchedule(scheduleSelector: $selector) {
    __typename ... on ScheduleStateResult {scheduleState {id}} ... on PythonError {message}
  }
}"""
_STOP_SCHEDULE = """
mutation ($id: String!) {stopRunningSchedule(id: $id) {__typename ... on PythonError {message}}}"""
_BACKFILL = """
mutation ($parameters: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $parameters) {
    __typename ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message}
  }
}"""
_BACKFILL_STATUS = """
query ($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}"""
_RUNS = "{runsOrError(limit: 500) {... on Runs {results {status jobName}}}}"
