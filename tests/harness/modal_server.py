"""Server of Modal's protocol on loopback, run as a program.

Its state is in a folder: a call is `calls/fc-000.json`, with one line in `.starts` per start and its result in
`.result`. A fault is a file in `faults` that contains the number of times, or the calls that it affects.
"""

# ruff: noqa: N802 - methods have the names that Modal's protocol gives them

import asyncio
import contextlib
import json
import os
import pickle
import pkgutil
import signal
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from grpclib.server import Server
from modal._utils.grpc_testing import patch_mock_servicer
from modal_proto import api_pb2, modal_api_grpc
from modal_proto.api_grpc import ModalClientBase

_TICK_S = 0.005
_BLOCK_BYTES = 8 << 20
_RESULT = api_pb2.GenericResult
assert modal_api_grpc  # the mock servicer finds its methods in this module


class Faults:
    """Files that tests write into the folder of faults."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hits(self, kind: str) -> bool:
        """Consume one hit of a fault; return False without any."""
        path = self._folder / kind
        with contextlib.suppress(FileNotFoundError):
            remaining = int(path.read_text())
            path.unlink() if remaining == 1 else path.write_text(str(remaining - 1))
            return True
        return False

    def affects(self, kind: str, call: str) -> bool:
        """Return True if the fault names this call."""
        path = self._folder / kind
        return path.exists() and path.read_text() == call


class Calls:
    """Calls of functions, each in a process of its own."""

    def __init__(self, folder: Path, functions: Mapping[str, Any], faults: Faults) -> None:
        self._folder, self._functions, self._faults = folder, functions, faults
        self._running: dict[str, int] = {}  # process of each call

    def path(self, call: str, suffix: str) -> Path:
        """Return the path of a file of a call: `json`, `starts`, `result`, `canceled`."""
        return self._folder / f"{call}.{suffix}"

    def submit(self, function: str, argument: str) -> str:
        """Start a call, unless a fault ends it at once; return its ID."""
        call = f"fc-{len(list(self._folder.glob('*.json'))):03d}"
        record = {"id": call, "function": function, "asked": argument}
        write(self.path(call, "json"), json.dumps(record).encode())
        if self._faults.hits("timed_out"):
            self.end(call, _RESULT.GENERIC_STATUS_TIMEOUT)
        elif self._faults.hits("lost"):
            self.end(call, _RESULT.GENERIC_STATUS_INTERNAL_FAILURE, "preempted")
        else:
            self._start(call)
        return call

    async def cancel(self, call: str) -> None:
        self.path(call, "canceled").touch()
        if call in self._running:
            os.kill(self._running[call], signal.SIGKILL)
            while call in self._running:
                await asyncio.sleep(_TICK_S)
        self.end(call, _RESULT.GENERIC_STATUS_TERMINATED, "canceled")

    def end(self, call: str, status: int, error: str = "", data: bytes = b"") -> None:
        write(self.path(call, "result"), pickle.dumps((status, data, error)))

    async def watch(self) -> None:
        """Collect processes that ended; restart a killed one, or record its failure."""
        while True:
            for call, pid in list(self._running.items()):
                found, code = os.waitpid(pid, os.WNOHANG)
                if found == 0:
                    continue
                del self._running[call]
                if self.path(call, "result").exists() or self.path(call, "canceled").exists():
                    continue
                if self._faults.hits("restarts"):
                    self._start(call)
                else:
                    error = f"killed by {-os.waitstatus_to_exitcode(code)}"
                    self.end(call, _RESULT.GENERIC_STATUS_INTERNAL_FAILURE, error)
            await asyncio.sleep(_TICK_S)

    def _start(self, call: str) -> None:
        record = json.loads(self.path(call, "json").read_text())
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                self._run(call, self._functions[record["function"]], record["asked"])
            os._exit(0)
        self._running[call] = pid
        with open(self.path(call, "starts"), "a", encoding="utf-8") as starts:
            starts.write(f"{pid}\n")

    def _run(self, call: str, function: Any, argument: str) -> None:
        os.setpgid(0, 0)
        try:
            status, data = _RESULT.GENERIC_STATUS_SUCCESS, pickle.dumps(function(argument))
        except Exception as error:
            status, data = _RESULT.GENERIC_STATUS_FAILURE, pickle.dumps(error)
        self.end(call, status, data=data)


@patch_mock_servicer
class Servicer(ModalClientBase):
    """Answers of Modal's server.

    Attributes:
        blocks: Address of the server of the volumes' blocks.
    """

    def __init__(self, mount: Path, functions: Mapping[str, Any], calls: Calls, faults: Faults, blocks: str) -> None:
        self.mount, self.functions, self.calls, self.faults, self.blocks = mount, functions, calls, faults, blocks

    async def FunctionGet(self, stream: Any) -> None:
        request = await stream.recv_message()
        if self.faults.hits("no_token"):
            raise GRPCError(Status.UNAUTHENTICATED, "Token missing")
        if request.object_tag not in self.functions or self.faults.hits("not_deployed"):
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
        if self.faults.hits("quota"):
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "workspace limit of GPUs")
        [pipelined_input] = request.pipelined_inputs
        [[argument], _] = pickle.loads(pipelined_input.input.args)
        call = self.calls.submit(request.function_id.removeprefix("fu-"), argument)
        item = api_pb2.FunctionPutInputsResponseItem(idx=0, input_id=f"in-{call}", input_jwt="-")
        await stream.send_message(
            api_pb2.FunctionMapResponse(function_call_id=call, pipelined_inputs=[item], max_inputs_outstanding=1000)
        )

    async def FunctionGetOutputs(self, stream: Any) -> None:
        request = await stream.recv_message()
        call, until = request.function_call_id, time.monotonic() + request.timeout
        if not self.calls.path(call, "json").exists():
            raise GRPCError(Status.NOT_FOUND, f"no call {call}")
        if self.faults.hits("silent"):
            raise GRPCError(Status.UNAVAILABLE, "no answer")
        result = self.calls.path(call, "result")
        while not result.exists() and not self.faults.affects("expired", call) and time.monotonic() < until:
            await asyncio.sleep(_TICK_S)
        if self.faults.affects("expired", call):
            await stream.send_message(api_pb2.FunctionGetOutputsResponse(num_unfinished_inputs=0))
        elif not result.exists():
            await stream.send_message(api_pb2.FunctionGetOutputsResponse(num_unfinished_inputs=1))
        else:
            status, data, error = pickle.loads(result.read_bytes())
            output = api_pb2.FunctionGetOutputsItem(
                result=_RESULT(status=status, data=data, exception=error),
                idx=0,
                input_id=f"in-{call}",
                data_format=api_pb2.DATA_FORMAT_PICKLE,
            )
            await stream.send_message(api_pb2.FunctionGetOutputsResponse(outputs=[output] * 2))

    async def FunctionCallCancel(self, stream: Any) -> None:
        await self.calls.cancel((await stream.recv_message()).function_call_id)
        await stream.send_message(Empty())

    async def VolumeGetOrCreate(self, stream: Any) -> None:
        request = await stream.recv_message()
        metadata = api_pb2.VolumeMetadata(version=2, name=request.deployment_name)
        volume = f"vo-{request.deployment_name}"
        await stream.send_message(api_pb2.VolumeGetOrCreateResponse(volume_id=volume, version=2, metadata=metadata))

    async def VolumeGetFile2(self, stream: Any) -> None:
        request = await stream.recv_message()
        place = f"{request.volume_id.rpartition('-')[2]}/{request.path}"
        if not (self.mount / place).exists():
            raise GRPCError(Status.NOT_FOUND, f"no file {request.path}")
        size = (self.mount / place).stat().st_size
        query = "?wrong" if self.faults.hits("wrong_bytes") else ""
        urls = [f"{self.blocks}/{at}/{place}{query}" for at in range(0, size, _BLOCK_BYTES)]
        await stream.send_message(api_pb2.VolumeGetFile2Response(get_urls=urls, size=size, start=0, len=size))


class _Blocks(BaseHTTPRequestHandler):
    """Blocks of the files of volumes, by position and path."""

    def __init__(self, mount: Path, *arguments: Any) -> None:
        self._mount = mount
        super().__init__(*arguments)

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        _, at, place = parts.path.split("/", 2)
        data = bytearray((self._mount / place).read_bytes()[int(at) : int(at) + _BLOCK_BYTES])
        if parts.query:
            data[len(data) // 2] ^= 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def write(path: Path, data: bytes) -> None:
    """Write a file that others see only as a whole."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(data)
    unfinished.rename(path)


async def serve(folder: Path, functions: Mapping[str, Any]) -> None:
    """Answer requests until the process is killed; write the port to a file."""
    volumes = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Blocks, folder / "mount"))
    threading.Thread(target=volumes.serve_forever, daemon=True).start()
    faults = Faults(folder / "faults")
    calls = Calls(folder / "calls", functions, faults)
    blocks = f"http://127.0.0.1:{volumes.server_address[1]}"
    server = Server([Servicer(folder / "mount", functions, calls, faults, blocks)])
    await server.start("127.0.0.1", 0)
    [socket] = server._server.sockets
    write(folder / "port", str(socket.getsockname()[1]).encode())
    await calls.watch()


def end_with_starter() -> None:
    """Kill this server and its functions when the process that started it ends.

    That process holds the other end of the pipe that is the server's standard input.
    """
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_starter, daemon=True).start()
    named = dict(word.split("=") for word in sys.argv[2:])
    asyncio.run(serve(Path(sys.argv[1]), {name: pkgutil.resolve_name(place) for name, place in named.items()}))
