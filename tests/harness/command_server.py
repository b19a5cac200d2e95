"""Process that has imported corpusmill and forks for each command of a test.

A command is a process of its own, with its own environment, folder and output; it only saves the second of importing.
The server has no threads except an allocator's.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from huge_pages import use_huge_pages

POLL_S = 0.002
# Variables that are read at import must be set when the server starts.
READ_AT_IMPORT = ("NUMBA_", "PYTHON", "OPENBLAS_")


class CommandServer:
    """Server of commands: `server.run(["status"], env, cwd, timeout_s)`.

    `preload` are more modules to import; the hub's client among them reads its address from `environment`.
    """

    def __init__(self, environment: Mapping[str, str], project: Path, preload: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            cwd=project,
            text=True,
        )

    def run(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        timeout_s: float,
        arm: Mapping[str, object] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; `arm` are the arguments of `disk_faults.arm`."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            call = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd), "out": str(out), "err": str(err)}
            call |= {"arm": arm}
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(json.dumps(call | {"timeout_s": timeout_s}) + "\n")
            self._process.stdin.flush()
            status = json.loads(self._process.stdout.readline())
            if status is None:
                raise subprocess.TimeoutExpired(list(arguments), timeout_s)
            return subprocess.CompletedProcess(list(arguments), status, out.read_text(), err.read_text())

    def stop(self) -> None:
        self._process.communicate()


def _serve() -> None:
    import pipeline_assets.cli

    _import_all(sys.argv[1:])
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    assert threads <= {"python", "jemalloc_bg_thd"}, f"a process with threads can't be forked safely: {threads}"
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, the memory that commands share
    use_huge_pages()
    for line in sys.stdin:
        call = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(call, pipeline_assets.cli.main)
        print(json.dumps(_status(pid, call["timeout_s"])), flush=True)


def _import_all(more: Sequence[str]) -> None:
    """Import modules of commands; the hub's client only if `more` names it."""
    from pipeline_assets.commands.catalog import COMMANDS

    for name in (
        *(f"pipeline_assets.{module}" for module in COMMANDS),
        "pyarrow.compute",
        "pyarrow.parquet",
        "pipeline_assets.corpus.dedup.dedup_corpus",
        "pipeline_assets.corpus.filters.filter_corpus",
        "pipeline_assets.corpus.packing.pack_corpus",
        "pipeline_assets.corpus.nemotron.normalise_split",
        *more,
    ):
        importlib.import_module(name)
    load_tokenizer_tables()
    assert "huggingface_hub.hf_api" in more or "huggingface_hub" not in sys.modules


def load_tokenizer_tables() -> None:
    """Load the encoder's tables into this process, so that forks have them."""
    from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

    encoder = load_encoder(VOCABULARY_SHA256)
    encoder.encode(["text"])
    encoder.encode_controlled([b"text"], CONTROL_TOKENS)
    encoder.oracle_ids("text")


def _become(call: Mapping[str, object], main: object) -> None:
    """Run the command in this process, and exit."""
    status = 1
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(call["env"])
        os.chdir(str(call["cwd"]))
        for number, name in ((1, "out"), (2, "err")):
            descriptor = os.open(str(call[name]), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(descriptor, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["corpusmill", *call["arguments"]]
        if call["arm"] is not None:
            importlib.import_module("disk_faults").arm(**call["arm"])
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _status(pid: int, timeout_s: float) -> int | None:
    deadline = time.monotonic() + timeout_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(POLL_S)


if __name__ == "__main__":
    _serve()
