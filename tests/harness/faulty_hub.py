"""Loopback hub for tests, with faults and a list of its requests."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from answer_faults import NO_REPLY, SILENCE, AlteredResponse, Fault, FaultKind, Faults

from pipeline_assets.demo.loopback_http import Handler, HubRequest, Origin, OriginServer, Response
from pipeline_assets.demo.loopback_hub import LoopbackHub


@dataclass(frozen=True)
class Request:
    """Answered request, for tests that count bytes on the wire.

    `path` is percent-decoded and without the query; `bytes_sent` is the part of the body that was handed to the socket;
    `status` is NO_REPLY where the connection was closed instead, or silent.
    """

    method: str
    path: str
    status: int
    bytes_sent: int
    origin: Origin
    has_token: bool = False


class _FaultyHandler(Handler):
    """Handler that injects faults and records requests.

    A request is noted before the last piece of its answer goes out, so that a client which has its answer finds it.
    """

    head_delay_s = 0.0
    _is_noted = False

    def send(self, answer: Response) -> None:
        server = cast(OriginServer, self.server)
        hub = cast(FaultyHub, server.hub)
        answer = hub.faults.disturb(self._path(), answer, self.command == "HEAD")
        if answer.status in (NO_REPLY, SILENCE):
            self.close_connection = True
            self._note(NO_REPLY, 0)
            if answer.status == SILENCE:
                hub.closed.wait()
            return
        self.head_delay_s = answer.head_delay_s if isinstance(answer, AlteredResponse) else 0.0
        self._is_noted = False
        if self.command == "HEAD" or not answer.length:
            self._note(answer.status, 0)
        super().send(AlteredResponse(**{**vars(answer), "altered": partial(self._counted, answer)}))
        if not self._is_noted:  # the client hung up before the body
            self._note(answer.status, 0)

    def flush_headers(self) -> None:
        if not self.head_delay_s:
            return super().flush_headers()
        for byte in b"".join(self._headers_buffer):
            time.sleep(self.head_delay_s)
            self.wfile.write(bytes([byte]))
        self._headers_buffer = []

    def _counted(self, answer: Response, _: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the body; note the request at its last piece, or where the client hung up."""
        sent = 0
        try:
            for chunk in answer.chunks():
                sent += len(chunk)
                if sent == answer.length:
                    self._note(answer.status, sent)
                yield chunk
        finally:
            if sent < answer.length:
                self._note(answer.status, sent)

    def _note(self, status: int, bytes_sent: int) -> None:
        self._is_noted = True
        server = cast(OriginServer, self.server)
        has_token = "Authorization" in getattr(self, "headers", {})
        request = Request(self.command or "", self._path(), status, bytes_sent, server.origin, has_token)
        cast(FaultyHub, server.hub).requests.append(request)

    def _path(self) -> str:
        """Return the path, empty where the request line could not be read."""
        return unquote(getattr(self, "path", "").partition("?")[0])


class FaultyHub(LoopbackHub):
    """The hub on loopback with faults, and with its requests in a list.

    Attributes:
        faults: those in force, on both origins.
        requests: in the order of their answers.
        titles: of the commits that were made.
    """

    handler = _FaultyHandler

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        faults: Sequence[Fault] = (),
        writable: bool = False,
        token: str | None = None,
    ) -> None:
        super().__init__(folder, port, writable=writable, token=token)
        self.faults = Faults(faults)
        self.requests: list[Request] = []
        self.titles: list[str] = []
        self.closed = threading.Event()

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        answer = super().answer(origin, request)
        if request.path_segments[-2:] == ["commit", "main"] and answer.status == 200:
            self.titles.append(json.loads(request.body.splitlines()[0])["value"]["summary"])
        return answer

    def stop(self) -> None:
        self.closed.set()
        super().stop()

    @property
    def fired(self) -> list[tuple[FaultKind, str]]:
        """Kind and path of each answer that a fault in force hit."""
        return self.faults.fired

    def inject(self, *faults: Fault) -> None:
        """Replace the faults; without any, the hub is healthy."""
        self.faults = Faults(faults)
