"""`dagster dev` with the webserver and code server of this project."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from dagster_shared.ipc import open_ipc_subprocess

from pipeline_assets.compat import run_dagster

_OWN_SERVERS = (
    (("-m", "dagster_webserver"), "pipeline_assets.webserver"),
    (("-m", "dagster", "code-server"), "pipeline_assets.code_server"),
)


def develop() -> None:
    """Run the `dagster` command with this project's servers, until stdin ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()

    def start_guarded(command: Sequence[str], **options: Any) -> Any:
        return open_ipc_subprocess(with_own_server(command), **options)

    run_dagster(start_guarded)


def with_own_server(command: Sequence[str]) -> list[str]:
    """Replace Dagster's webserver or code server in a command by this project's."""
    for module, own in _OWN_SERVERS:
        if tuple(command[1 : 1 + len(module)]) == module:
            return [command[0], "-m", own, *command[1 + len(module) :]]
    return [*command]


def _stop_at_end_of_stdin() -> None:
    """Stop this process when stdin ends, which also happens if the parent is killed."""
    while os.read(sys.stdin.fileno(), 4096):  # blocked in `sys.stdin.read`, a thread would abort the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)
