"""Modal on loopback with real processes, volumes and faults.

The server is a separate process, so that it outlives its callers. Its state is in a folder: a call is
`calls/fc-000.json`, with one line in `.starts` per start and its result in `.result`. A fault is a file in `faults`
that contains the number of times, or the calls that it affects.
"""

# ruff: noqa: N802 - methods have the names that Modal's protocol gives them

import asyncio
import contextlib
import json
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import modal
import pytest

SOON_S = 60.0
_BLOCK_BYTES = 8 << 20
_TICK_S = 0.005


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
        for name in ("calls", "faults", "mount/files", "mount/scores"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        harness, project = Path(__file__).parent, Path(__file__).parents[2]
        paths = os.pathsep.join(map(str, (project, harness)))
        own = {"PYTHONPATH": paths, "CORPUSMILL_MODAL_MOUNT": str(self.mount)}
        words = [f"{name}={place}" for name, place in functions.items()]
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder), *words], env={**os.environ, **(variables or {}), **own}
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
        self._process.wait()

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


# Within the process


def serve(folder: Path, functions: Mapping[str, Any]) -> None:
    """Answer requests until the process is killed."""
    from grpclib import GRPCError, Status
    from grpclib.server import Server
    from modal._utils.grpc_testing import patch_mock_servicer
    from modal_proto import api_pb2, modal_api_grpc
    from modal_proto.api_grpc import ModalClientBase

    assert modal_api_grpc
    volumes = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Blocks, folder))
    threading.Thread(target=volumes.serve_forever, daemon=True).start()
    running: dict[str, int] = {}
    status = api_pb2.GenericResult

    def hits(kind: str) -> bool:
        """Consume one hit of a fault; return False without any."""
        path = folder / "faults" / kind
        with contextlib.suppress(FileNotFoundError):
            remaining = int(path.read_text())
            path.unlink() if remaining == 1 else path.write_text(str(remaining - 1))
            return True
        return False

    def names(kind: str, call: str) -> bool:
        path = folder / "faults" / kind
        return path.exists() and path.read_text() == call

    def start(call: str) -> None:
        record = json.loads((folder / "calls" / f"{call}.json").read_text())
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                _work(folder, call, functions[record["function"]], record["asked"])
            os._exit(0)
        running[call] = pid
        with open(folder / "calls" / f"{call}.starts", "a", encoding="utf-8") as starts:
            starts.write(f"{pid}\n")

    def end(call: str, how: int, data: bytes = b"", words: str = "") -> None:
        _write(folder / "calls" / f"{call}.result", pickle.dumps((how, data, words)))

    async def watch() -> None:
        while True:
            for call, pid in list(running.items()):
                found, code = os.waitpid(pid, os.WNOHANG)
                if found == 0:
                    continue
                del running[call]
                if (folder / "calls" / f"{call}.result").exists() or (folder / "calls" / f"{call}.canceled").exists():
                    continue
                if hits("restarts"):
                    start(call)
                else:
                    end(
                        call,
                        status.GENERIC_STATUS_INTERNAL_FAILURE,
                        words=f"killed by {-os.waitstatus_to_exitcode(code)}",
                    )
            await asyncio.sleep(_TICK_S)

    @patch_mock_servicer
    class Servicer(ModalClientBase):
        async def FunctionGet(self, stream: Any) -> None:
            request = await stream.recv_message()
            if hits("no_token"):
                raise GRPCError(Status.UNAUTHENTICATED, "Token missing")
            if request.object_tag not in functions or hits("not_deployed"):
                raise GRPCError(Status.NOT_FOUND, f"App {request.app_name} not found")
            metadata = api_pb2.FunctionHandleMetadata(
                function_name=request.object_tag,
                function_type=api_pb2.Function.FUNCTION_TYPE_FUNCTION,
                supported_input_formats=[api_pb2.DATA_FORMAT_PICKLE],
                supported_output_formats=[api_pb2.DATA_FORMAT_PICKLE],
                max_object_size_bytes=2 << 20,
                max_async_object_size_bytes=2 << 20,
            )
            found = api_pb2.FunctionGetResponse(function_id=f"fu-{request.object_tag}", handle_metadata=metadata)
            found.function.ranked_functions.add()
            await stream.send_message(found)

        async def FunctionMap(self, stream: Any) -> None:
            request = await stream.recv_message()
            if hits("quota"):
                raise GRPCError(Status.RESOURCE_EXHAUSTED, "workspace limit of GPUs")
            call = f"fc-{len(list((folder / 'calls').glob('*.json'))):03d}"
            [pipelined_input] = request.pipelined_inputs
            [[argument], _] = pickle.loads(pipelined_input.input.args)
            record = {"id": call, "function": request.function_id.removeprefix("fu-"), "asked": argument}
            _write(folder / "calls" / f"{call}.json", json.dumps(record).encode())
            if hits("timed_out"):
                end(call, status.GENERIC_STATUS_TIMEOUT)
            elif hits("lost"):
                end(call, status.GENERIC_STATUS_INTERNAL_FAILURE, words="preempted")
            else:
                start(call)
            item = api_pb2.FunctionPutInputsResponseItem(idx=0, input_id=f"in-{call}", input_jwt="-")
            await stream.send_message(
                api_pb2.FunctionMapResponse(function_call_id=call, pipelined_inputs=[item], max_inputs_outstanding=1000)
            )

        async def FunctionGetOutputs(self, stream: Any) -> None:
            request = await stream.recv_message()
            call, until = request.function_call_id, time.monotonic() + request.timeout
            if not (folder / "calls" / f"{call}.json").exists():
                raise GRPCError(Status.NOT_FOUND, f"no call {call}")
            if hits("silent"):
                raise GRPCError(Status.UNAVAILABLE, "no answer")
            result = folder / "calls" / f"{call}.result"
            while not result.exists() and not names("expired", call) and time.monotonic() < until:
                await asyncio.sleep(_TICK_S)
            if names("expired", call):
                await stream.send_message(api_pb2.FunctionGetOutputsResponse(num_unfinished_inputs=0))
            elif not result.exists():
                await stream.send_message(api_pb2.FunctionGetOutputsResponse(num_unfinished_inputs=1))
            else:
                how, data, words = pickle.loads(result.read_bytes())
                found = api_pb2.GenericResult(status=how, data=data, exception=words)
                output = api_pb2.FunctionGetOutputsItem(
                    result=found, idx=0, input_id=f"in-{call}", data_format=api_pb2.DATA_FORMAT_PICKLE
                )
                await stream.send_message(api_pb2.FunctionGetOutputsResponse(outputs=[output] * 2))

        async def FunctionCallCancel(self, stream: Any) -> None:
            from google.protobuf.empty_pb2 import Empty

            call = (await stream.recv_message()).function_call_id
            (folder / "calls" / f"{call}.canceled").touch()
            if call in running:
                os.kill(running[call], signal.SIGKILL)
                while call in running:
                    await asyncio.sleep(_TICK_S)
            end(call, status.GENERIC_STATUS_TERMINATED, words="canceled")
            await stream.send_message(Empty())

        async def VolumeGetOrCreate(self, stream: Any) -> None:
            request = await stream.recv_message()
            metadata = api_pb2.VolumeMetadata(version=2, name=request.deployment_name)
            volume = f"vo-{request.deployment_name}"
            await stream.send_message(api_pb2.VolumeGetOrCreateResponse(volume_id=volume, version=2, metadata=metadata))

        async def VolumeGetFile2(self, stream: Any) -> None:
            request = await stream.recv_message()
            place = f"{request.volume_id.rpartition('-')[2]}/{request.path}"
            if not (folder / "mount" / place).exists():
                raise GRPCError(Status.NOT_FOUND, f"no file {request.path}")
            size = (folder / "mount" / place).stat().st_size
            query = "?wrong" if hits("wrong_bytes") else ""
            address = f"http://127.0.0.1:{volumes.server_address[1]}"
            urls = [f"{address}/{at}/{place}{query}" for at in range(0, size, _BLOCK_BYTES)]
            await stream.send_message(api_pb2.VolumeGetFile2Response(get_urls=urls, size=size, start=0, len=size))

    async def answer() -> None:
        server = Server([Servicer()])
        await server.start("127.0.0.1", 0)
        [socket] = server._server.sockets
        _write(folder / "port", str(socket.getsockname()[1]).encode())
        await watch()

    asyncio.run(answer())


class _Blocks(BaseHTTPRequestHandler):
    """Blocks of the files of volumes."""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        self._folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        _, at, place = parts.path.split("/", 2)
        data = bytearray((self._folder / "mount" / place).read_bytes()[int(at) : int(at) + _BLOCK_BYTES])
        if parts.query:
            data[len(data) // 2] ^= 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def _work(folder: Path, call: str, function: Any, argument: str) -> None:
    """Run a call in this process."""
    from modal_proto import api_pb2

    status = api_pb2.GenericResult
    os.setpgid(0, 0)
    try:
        how, data = status.GENERIC_STATUS_SUCCESS, pickle.dumps(function(argument))
    except Exception as error:
        how, data = status.GENERIC_STATUS_FAILURE, pickle.dumps(error)
    _write(folder / "calls" / f"{call}.result", pickle.dumps((how, data, "")))


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(data)
    unfinished.rename(path)


if __name__ == "__main__":
    functions = dict(word.split("=") for word in sys.argv[2:])
    serve(Path(sys.argv[1]), {name: pkgutil.resolve_name(place) for name, place in functions.items()})
