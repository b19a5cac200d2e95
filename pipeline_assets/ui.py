"""`corpusmill ui`: a guarded `dagster dev` on a data root, with its own home, recipes and, for a demo, its hub."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.commands.terminal import Root, echo
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.shipped import shipped_path
from pipeline_assets.systems.registry import recipes_of
from resources.webhook import webhook_address

_POLL_S = 0.2


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

    with _hub_of(data) as hub:
        with open_instance(data) as instance:
            report_sealed(recipes_of(data.absolute())[0], data.absolute(), instance)
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
def _hub_of(root: Path) -> Iterator[dict[str, str]]:
    """A demo's data root holds the hub that its recipe reads from: it is served as long as the UI runs, which finds it
    by these variables.
    """
    from pipeline_assets.demo.corpora import HUB_FOLDER
    from pipeline_assets.demo.loopback_hub import LoopbackHub

    if not (root / HUB_FOLDER).is_dir():
        yield {}
        return
    with LoopbackHub(root / HUB_FOLDER, writable=True) as hub:
        yield hub.variables()
