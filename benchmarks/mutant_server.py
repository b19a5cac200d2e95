"""Process with corpusmill imported, which forks a run of tests per mutant.

A forked run takes the changed code of functions from their file, so it neither starts Python nor imports the package.
Modules that are imported later, and processes that a test starts, read the changed file itself.

    python benchmarks/mutant_server.py    # in the root of a copy of the project; requests and replies are JSON lines
"""

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

_PRELOADED = ("hypothesis", "numpy", "pyarrow.compute", "pyarrow.parquet", "yaml", "msgspec", "zstandard", "dagster")
_POLL_S = 0.01
_Functions = dict[str, list[FunctionType]]


class _FirstFailure:
    """Plugin of pytest that notes the first failed test and counts tests."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.reason = ""
        self.ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed, self.reason = report.nodeid, str(report.longrepr).strip().splitlines()[-1][:200]


class _ForkedServer:
    """Fork of this process in place of the new process of a `CommandServer`."""

    def __init__(self, command_server: ModuleType) -> None:
        request, self._asking = os.pipe()
        self._replying, reply = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor, number in ((request, 0), (reply, 1)):
                os.dup2(descriptor, number)
            os.closerange(3, 64)
            sys.stdin, sys.stdout, sys.argv = os.fdopen(0), os.fdopen(1, "w"), ["command_server"]
            try:
                command_server._serve()
            finally:
                os._exit(0)
        os.close(request)
        os.close(reply)
        self.stdin, self.stdout = os.fdopen(self._asking, "w"), os.fdopen(self._replying)

    def communicate(self) -> None:
        self.stdin.close()
        os.waitpid(self.pid, 0)


def serve() -> None:
    """Run the tests of each request, and reply.

    A request has the keys `file`, `is_compiled`, `tests` and `limit_s`; a reply has `status`, `failed`, `reason` and
    `ran`.
    """
    _import_all()
    functions = _find_functions()
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, memory that the forks share
    print(json.dumps({"functions": sum(len(found) for names in functions.values() for found in names.values())}))
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            reply = Path(folder, "reply")
            pid = os.fork()
            if pid == 0:
                _run(request, functions, reply)
            status = _wait(pid, request["limit_s"])
            answer = json.loads(reply.read_text()) if reply.exists() else {"failed": None, "reason": "", "ran": 0}
        print(json.dumps({"status": status, **answer}), flush=True)


def _import_all() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    sys.modules["huggingface_hub"] = None  # type: ignore[assignment]  # it reads its address while it is imported
    for path in sorted(path for package in ("pipeline_assets", "resources") for path in Path(package).rglob("*.py")):
        if "api" not in path.parts and path.stem != "definitions":  # two that read arguments or the environment
            try:
                importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
            except ModuleNotFoundError:
                continue  # of the hub's client, or of a GPU
    del sys.modules["huggingface_hub"]
    for folder in ("tests", "tests/builders", "tests/harness", "tests/oracles"):
        sys.path.append(folder)
    importlib.import_module("command_server").load_tokenizer_tables()


def _find_functions() -> dict[str, _Functions]:
    """Return the functions of each file by qualified name."""
    found: dict[str, _Functions] = defaultdict(lambda: defaultdict(list))
    for function in gc.get_objects():
        if type(function) is FunctionType and "<locals>" not in function.__qualname__:
            found[os.path.realpath(function.__code__.co_filename)][function.__code__.co_qualname].append(function)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions and methods, but not of nested functions."""
    for inner in (value for value in code.co_consts if isinstance(value, CodeType)):
        if inner.co_flags & 1:  # optimised: a function
            yield inner
        else:
            yield from _codes(inner)


def _change_functions(file: Path, functions: _Functions) -> None:
    """Give functions the code that the file has now."""
    changed: dict[str, list[CodeType]] = defaultdict(list)
    for code in _codes(compile(file.read_bytes(), str(file), "exec")):
        changed[code.co_qualname].append(code)
    for name, codes in changed.items():
        lines = sorted({function.__code__.co_firstlineno for function in functions.get(name, ())})
        for function in functions.get(name, ()):
            code = codes[lines.index(function.__code__.co_firstlineno)] if len(lines) == len(codes) else codes[-1]
            if len(code.co_freevars) == len(function.__code__.co_freevars):
                function.__code__ = code


def _run(request: Mapping[str, Any], functions: Mapping[str, _Functions], reply: Path) -> None:
    """Run tests in this process, which never returns."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    noted = _FirstFailure()
    try:
        file = Path(request["file"])
        if request["is_compiled"]:
            _forget_package()
        elif (loaded := functions.get(os.path.realpath(file))) is not None:
            _change_functions(file, loaded)
            _fork_commands()
        pytest.main(request["tests"], plugins=[noted])
        reply.write_text(json.dumps({"failed": noted.failed, "reason": noted.reason, "ran": noted.ran}))
    finally:
        os._exit(0)


def _forget_package() -> None:
    """Import the package again, because compiled functions keep their code."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("pipeline_assets", "resources", "command_server"):
            del sys.modules[name]


def _fork_commands() -> None:
    """Let the first server of typed commands be a fork of this process."""
    command_server = importlib.import_module("command_server")
    waiting = [_ForkedServer(command_server)]
    started = command_server.CommandServer.__init__

    def start(server: Any, environment: Mapping[str, str], project: Path, preload: tuple[str, ...] = ()) -> None:
        if preload or not waiting:
            started(server, environment, project, preload)
        else:
            server._process = waiting.pop()

    command_server.CommandServer.__init__ = start


def _wait(pid: int, limit_s: float) -> str:
    """Wait for a process, and end it with all that it started."""
    deadline = time.monotonic() + limit_s
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            _end_group(pid)
            os.waitpid(pid, 0)
            return "time is up"
        time.sleep(_POLL_S)
    _end_group(pid)
    return "ended"


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    serve()
