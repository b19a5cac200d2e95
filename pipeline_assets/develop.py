"""Run of `dagster dev` with `pipeline_assets.webserver`, until stdin ends."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from dagster_shared.ipc import open_ipc_subprocess

from pipeline_assets.compat import run_dagster


def develop() -> None:
    """Run the `dagster` command with `pipeline_assets.webserver`, until stdin ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()

    def start_guarded(command: Sequence[str], **options: Any) -> Any:
        guarded = ["pipeline_assets.webserver" if part == "dagster_webserver" else part for part in command]
        return open_ipc_subprocess(guarded, **options)

    run_dagster(start_guarded)


def _stop_at_end_of_stdin() -> None:
    """Stop this process when stdin ends, which also happens if the parent is killed."""
    while os.read(sys.stdin.fileno(), 4096):  # blocked in `sys.stdin.read`, a thread would abort the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)
