"""The command `hub serve`, which serves a folder as a hub on loopback."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.visible import to_one_line


def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of datasets/<owner>/<name>/… and models/…")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 0,
    writable: Annotated[bool, typer.Option("--writable", help="Allow creating and changing datasets.")] = False,
    fault: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve a folder as a hub on loopback.

    Example: corpusmill hub serve ./hub --port 8123
    """
    if fault:
        raise UsageError("hub serve has no faults", "--fault", "use tests/harness/faulty_hub.py, which has them")
    is_over = threading.Event()
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *(() if is_nohup else (signal.SIGHUP,))):
        signal.signal(number, lambda *_: is_over.set())
    with LoopbackHub(folder, port, writable=writable) as hub:
        commits = hub.commits()
        if not commits and not writable:
            fix = "choose a folder that contains datasets/<owner>/<name>/… or models/<owner>/<name>/…"
            raise UsageError("the folder contains no dataset or model", folder, fix)
        print(f"hub: {hub.endpoint}")
        for repo, commit in commits.items():
            print(to_one_line(repo), commit)
        settings = f"HF_HUB_DISABLE_XET=1 HF_TOKEN={hub.token} " if writable else ""
        use = f"HF_ENDPOINT={hub.endpoint} HF_HUB_DISABLE_TELEMETRY=1 {settings}<command>"
        print(f"use: {use}; Ctrl-C ends it", flush=True)
        is_over.wait()
