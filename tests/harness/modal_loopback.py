"""Modal on loopback with real processes, volumes and faults.

`modal_server.py` runs as a separate process, so that it outlives its callers. It ends with the tests' process.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import modal
import pytest

SOON_S = 60.0
_TICK_S = 0.005
_SERVER = Path(__file__).with_name("modal_server.py")


class ModalOnLoopback:
    """Process of the server, for tests.

    Attributes:
        variables: Environment of its callers and of the functions.
        mount: Parent of the functions' folders `files` and `scores`.
    """

    def __init__(self, folder: Path, functions: Mapping[str, str], variables: Mapping[str, str] | None = None) -> None:
        """Start the server.

        Args:
            functions: `module:name` by the name on Modal; they map text to text.
            variables: Environment of the functions, in addition to the test's.
        """
        self.folder, self.mount = folder, folder / "mount"
        for name in ("calls", "faults", "mount/files", "mount/scores", "scratch"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        harness, project = Path(__file__).parent, Path(__file__).parents[2]
        paths = os.pathsep.join(map(str, (project, harness)))
        own = {"PYTHONPATH": paths, "CORPUSMILL_MODAL_MOUNT": str(self.mount), "TMPDIR": str(folder / "scratch")}
        words = [f"{name}={place}" for name, place in functions.items()]
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER), str(folder), *words],
            env={**os.environ, **(variables or {}), **own},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        port = folder / "port"
        wait_for(lambda: port.exists() or self._process.poll() is not None)
        self.variables = {
            "MODAL_SERVER_URL": f"http://127.0.0.1:{port.read_text()}",
            "MODAL_TOKEN_ID": "ak-loopback",
            "MODAL_TOKEN_SECRET": "as-loopback",
        }

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Route Modal's client of this process to the server."""
        with pytest.MonkeyPatch.context() as patched:
            for name, value in self.variables.items():
                patched.setenv(name, value)
            modal.client._Client._client_from_env = None
            yield
        modal.client._Client._client_from_env = None

    def stop(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()

    def calls(self, function: str = "score") -> list[dict[str, Any]]:
        """List all calls of a function in order: `id`, `asked`, `starts` (pids)."""
        found = [json.loads(path.read_text()) for path in sorted((self.folder / "calls").glob("*.json"))]
        return [{**record, "starts": self._starts(record["id"])} for record in found if record["function"] == function]

    def pids(self) -> list[int]:
        """List all processes that ever ran a function."""
        return [pid for function in ("fetch", "score") for call in self.calls(function) for pid in call["starts"]]

    def fault(self, kind: str, what: object = 1) -> None:
        """Inject a fault: a number of times, or for a call.

        Args:
            kind: `silent` (polls get no answer), `expired` (a call's result is lost), `wrong_bytes`, `no_token`,
                `not_deployed`, `quota`, `timed_out`, `lost` (calls end so), `restarts` (a killed process is started
                again on the same input, as after preemption).
        """
        unfinished = self.folder / "faults" / f".{kind}"
        unfinished.write_text(str(what))
        unfinished.rename(self.folder / "faults" / kind)

    def _starts(self, call: str) -> list[int]:
        path = self.folder / "calls" / f"{call}.starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_for(fact: Any) -> None:
    until = time.monotonic() + SOON_S
    while not fact():
        assert time.monotonic() < until
        time.sleep(_TICK_S)
