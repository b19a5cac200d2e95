"""Dagster code server that ends when its process with the definitions dies.

`dagster code-server` loads the definitions in a child process. If that process is killed, for example for its memory,
Dagster's own code server keeps running without definitions: every run, sensor and backfill then fails until the
definitions are reloaded. Whatever starts a code server also starts a dead one again, so this code server ends, too.
"""

import os
import signal
import subprocess
import sys
import threading
import time

from pipeline_assets.compat import run_code_server

_POLL_S = 1.0
_ENDED_STATUSES = (0, -signal.SIGINT, -signal.SIGTERM)  # a reload or the end of the code server stopped the process
_EXIT_STATUS = 1


def serve() -> None:
    """Run `dagster code-server` with the arguments of this process."""
    newest: list[subprocess.Popen[str]] = []

    def watch(process: "subprocess.Popen[str]") -> None:
        newest[:] = [process]
        threading.Thread(target=_end_with, args=(process, newest), daemon=True).start()

    sys.argv.insert(1, "code-server")
    run_code_server(watch)


def _end_with(process: "subprocess.Popen[str]", newest: "list[subprocess.Popen[str]]") -> None:
    """Wait for a process; end this one if that was the newest and died."""
    while (status := process.poll()) is None:
        time.sleep(_POLL_S)
    if newest == [process] and status not in _ENDED_STATUSES:
        sys.stderr.write(f"corpusmill: the process with the definitions died with status {status}\n")
        os._exit(_EXIT_STATUS)  # other threads wait for answers of the dead process


if __name__ == "__main__":
    serve()
