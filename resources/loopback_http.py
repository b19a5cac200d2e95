"""HTTP of the hub on loopback: what is asked, what is answered, a server for one origin; and its faults: what a
network, a busy hub, a damaged file or malice does to an answer, on request.
"""

import hashlib
import itertools
import json
import re
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self, cast
from urllib.parse import parse_qs, quote, unquote

from pipeline_assets.corpus.spine.errors import UsageError

Origin = Literal["hub", "storage"]
NO_REPLY = 0  # status of an answer in whose place the connection is closed
BODY_LIMIT_BYTES = 1 << 26
UPLOAD_LIMIT_BYTES = 1 << 33
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Request:
    """One answered request, for tests that count bytes on the wire.

    `path` is percent-decoded and without the query; `bytes_sent` is the part of the body that was handed to the socket;
    `status` is NO_REPLY where the connection was closed instead.
    """

    method: str
    path: str
    status: int
    bytes_sent: int
    origin: Origin


@dataclass(frozen=True)
class Upload:
    """The body of a PUT, in a file that is gone when it was answered, unless it has another name by then."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Ask:
    """What an answer depends on. HEAD asks as GET does; `parts` are the path's segments, which may hold slashes."""

    method: str
    raw_path: str
    query: Mapping[str, str]
    byte_range: str
    authorization: str
    body: bytes
    upload: Upload | None = None

    @property
    def parts(self) -> list[str]:
        return [unquote(part) for part in self.raw_path.strip("/").split("/")]

    @property
    def has_token(self) -> bool:
        return self.authorization.startswith("Bearer ")


@dataclass(frozen=True)
class Answer:
    """Status, headers, and `length` bytes of body: bytes, or a file read from `start`.

    Attributes:
        altered: what becomes of the body's pieces on their way out.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Path = b""
    start: int = 0
    length: int = 0
    altered: Callable[[Iterator[bytes]], Iterator[bytes]] = iter

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces; less than `length` in all if the file has shrunk meanwhile."""
        return self.altered(self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        if isinstance(self.body, bytes):
            yield self.body
            return
        with self.body.open("rb") as content:
            content.seek(self.start)
            left = self.length
            while left and (chunk := content.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                yield chunk


class Refused(Exception):
    """An error as the hub puts it: clients go by the status and the code in the header, people by the message."""

    def __init__(self, status: int, code: str, message: str, commit: str = "") -> None:
        super().__init__(message)
        headers = {"X-Error-Code": code, "X-Error-Message": message, "X-Repo-Commit": commit}
        self.answer = json_answer({"error": message}, status, {name: value for name, value in headers.items() if value})


def json_answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    body = json.dumps(content).encode()
    return Answer(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body, 0, len(body))


class OriginServer(ThreadingHTTPServer):
    """One origin. Knows its open connections, because a kept-alive one would go on being answered after the end."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        origin: Origin,
        port: int,
        answer: Callable[[Origin, Ask], Answer],
        log: list[Request],
        disturb: Callable[[str, Answer, bool], Answer],
        uploads: Path | None,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.origin: Origin = origin
        self.answer = answer
        self.disturb = disturb
        self.log = log
        self.uploads = uploads
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        self._open.discard(cast(socket.socket, request))
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Silence for a client that hung up; a traceback only for a mistake in this file."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 on one connection: reads requests, sends what the hub answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits 40 ms for the client to acknowledge the headers

    def do_GET(self) -> None:
        server, length = cast(OriginServer, self.server), self._body_bytes(BODY_LIMIT_BYTES)
        if length is not None:
            self._send(server.answer(server.origin, self._ask(self.rfile.read(length), None)))

    def do_PUT(self) -> None:
        server = cast(OriginServer, self.server)
        if server.origin == "hub" or server.uploads is None:
            return self.do_GET()
        length = self._body_bytes(UPLOAD_LIMIT_BYTES)
        if length is None:
            return None
        with tempfile.TemporaryDirectory(dir=server.uploads) as folder:
            upload = self._upload(Path(folder, "body"), length)
            self._send(server.answer(server.origin, self._ask(b"", upload)))

    def _upload(self, path: Path, length: int) -> Upload:
        digest = hashlib.sha256()
        with path.open("wb") as file:
            while length and (block := self.rfile.read(min(length, CHUNK_BYTES))):
                digest.update(block)
                file.write(block)
                length -= len(block)
        return Upload(path, digest.hexdigest())

    def _body_bytes(self, most: int) -> int | None:
        """How long the body is; None where it was refused."""
        length = self.headers.get("Content-Length", "0")
        if not re.fullmatch("[0-9]{1,10}", length) or int(length) > most or "Transfer-Encoding" in self.headers:
            self.send_error(400)
            return None
        return int(length)

    def _ask(self, body: bytes, upload: Upload | None) -> Ask:
        raw_path, _, query = self.path.partition("?")
        return Ask(
            method="GET" if self.command == "HEAD" else self.command,
            raw_path=raw_path,
            query={name: values[-1] for name, values in parse_qs(query).items()},
            byte_range=self.headers.get("Range", ""),
            authorization=self.headers.get("Authorization", ""),
            body=body,
            upload=upload,
        )

    do_HEAD = do_POST = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server finds wrong before there is a request: answered as JSON, and the connection closed."""
        self.close_connection = True
        self.request_version = self.protocol_version  # unset as yet if the request line is what is wrong
        self._send(json_answer({"error": message or self.responses[code][0]}, code, {"Connection": "close"}))

    def log_message(self, format: str, *args: object) -> None:
        """No access log: `requests` has what tests need."""

    def _send(self, answer: Answer) -> None:
        """The one way out for every answer of both origins: where faults are put in, and where bytes are counted.

        Noted before the last piece goes out, so that a client which has its answer finds it noted.
        """
        answer = cast(OriginServer, self.server).disturb(self._path(), answer, self.command == "HEAD")
        if answer.status == NO_REPLY:
            self.close_connection = True
            self._note(NO_REPLY, 0)
            return
        self.send_response_only(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(answer.length)}.items():
            self.send_header(name, value)
        owed, sent = 0 if self.command == "HEAD" else answer.length, 0
        if not owed:
            self._note(answer.status, 0)
        try:
            self.end_headers()
            for chunk in answer.chunks() if owed else ():
                sent += len(chunk)
                if sent == owed:
                    self._note(answer.status, sent)
                self.wfile.write(chunk)
        except OSError:  # the client hung up, or the file went away
            self.close_connection = True
        if sent < owed:
            self.close_connection = True
            self._note(answer.status, sent)

    def _note(self, status: int, bytes_sent: int) -> None:
        server = cast(OriginServer, self.server)
        server.log.append(Request(self.command or "", self._path(), status, bytes_sent, server.origin))

    def _path(self) -> str:
        """Empty where the request line could not be read."""
        return unquote(getattr(self, "path", "").partition("?")[0])


ALWAYS = None
_DRIP_S = 0.05
_ENDLESS_BYTES = 1 << 62


class FaultKind(StrEnum):
    """What becomes of an answer. Those of the body leave alone what has none, `changed` what is no file, and those of
    the next page what is no listing.
    """

    BUSY = "503"
    RETRY_AFTER = "429-retry-after"
    RATE_LIMIT = "429-ratelimit"
    CUT = "cut"
    CUT_BODY = "cut-body"
    WRONG_BYTES = "wrong-bytes"
    CHANGED = "changed"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    ENDLESS = "endless"
    DRIP = "drip"
    LINK_LOOP = "link-loop"
    LINK_AWAY = "link-away"


# Answers in whose place the hub sends an error: status, message, headers.
_ERRORS: dict[FaultKind, tuple[int, str, Mapping[str, str]]] = {
    FaultKind.BUSY: (503, "Service Unavailable", {}),
    FaultKind.RETRY_AFTER: (429, "Too Many Requests", {"Retry-After": "1"}),
    FaultKind.RATE_LIMIT: (
        429,
        "Too Many Requests",
        {"RateLimit": '"x";r=0;t=1', "RateLimit-Policy": '"fixed window";"x";q=5000;w=300'},
    ),
    FaultKind.UNAUTHORIZED: (401, "HTTP 401", {}),
    FaultKind.FORBIDDEN: (403, "HTTP 403", {}),
    FaultKind.NOT_FOUND: (404, "HTTP 404", {}),
}


@dataclass(frozen=True)
class Fault:
    """One fault, for some requests.

    Attributes:
        pattern: fnmatch over the request's path, percent-decoded and without the query; `*` crosses slashes.
        count: how many answers it hits; ALWAYS for all.
        after: how many answers that it could hit go by first.
    """

    kind: FaultKind
    pattern: str = "*"
    count: int | None = 1
    after: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """A fault written as KIND[:PATTERN[:COUNT]]; a pattern with a colon needs its count.

        Raises:
            UsageError: an unknown kind (names the known ones), or a count that is none.
        """
        name, _, rest = text.partition(":")
        pattern, _, count = rest.rpartition(":") if ":" in rest else (rest, "", "1")
        if name not in list(FaultKind):
            fix = f"write KIND[:PATTERN[:COUNT]] with {', '.join(FaultKind)}"
            raise UsageError(f"there is no fault {name!r}", f"--fault {text}", fix)
        is_count = count.isascii() and count.isdecimal() and int(count) > 0
        if count != "always" and not is_count:
            raise UsageError(f"{count!r} is no count", f"--fault {text}", "write a number from 1, or `always`")
        return cls(FaultKind(name), pattern or "*", int(count) if is_count else ALWAYS)


class Faults:
    """The faults in force. The first one that fits an answer hits it; safe to ask from many threads."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = tuple(faults)
        self._met = [0] * len(self._faults)
        self._lock = threading.Lock()

    def disturb(self, path: str, answer: Answer, is_head: bool) -> Answer:
        """The answer that goes out instead."""
        with self._lock:
            for number, fault in enumerate(self._faults):
                if not fnmatchcase(path, fault.pattern) or not _can_hit(fault.kind, answer, is_head):
                    continue
                self._met[number] += 1
                hits = self._met[number] - fault.after
                if hits > 0 and (fault.count is ALWAYS or hits <= fault.count):
                    return _disturbed(fault.kind, path, answer)
        return answer


def _cut(chunks: Iterator[bytes], left: int) -> Iterator[bytes]:
    """The first bytes of a body."""
    for chunk in chunks:
        yield chunk[:left]
        left -= len(chunk[:left])
        if not left:
            return


def _flipped(chunks: Iterator[bytes], at: int) -> Iterator[bytes]:
    """A body with the lowest bit of one byte flipped."""
    for chunk in chunks:
        if 0 <= at < len(chunk):
            chunk = chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
        at -= len(chunk)
        yield chunk


def _endless(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A body and, under a length that nobody reads to its end, spaces: of JSON they would be a part."""
    yield from chunks
    while True:
        yield b" " * CHUNK_BYTES


def _dripping(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A body, twenty bytes a second: never long enough nothing for a client that waits for each."""
    for byte in itertools.chain.from_iterable(chunks):
        time.sleep(_DRIP_S)
        yield bytes([byte])


def _can_hit(kind: FaultKind, answer: Answer, is_head: bool) -> bool:
    if kind in (FaultKind.CUT_BODY, FaultKind.WRONG_BYTES, FaultKind.ENDLESS, FaultKind.DRIP):
        return answer.length > 0 and not is_head
    if kind in (FaultKind.LINK_LOOP, FaultKind.LINK_AWAY):
        return isinstance(answer.body, bytes) and answer.body.startswith(b"[")
    if kind is FaultKind.CHANGED:
        return "ETag" in answer.headers or "X-Linked-Etag" in answer.headers
    return True


def _disturbed(kind: FaultKind, path: str, answer: Answer) -> Answer:
    if kind in _ERRORS:
        status, message, headers = _ERRORS[kind]
        return json_answer({"error": message}, status, headers)
    middle = answer.length // 2
    match kind:
        case FaultKind.CUT_BODY:
            return replace(answer, altered=partial(_cut, left=middle))
        case FaultKind.WRONG_BYTES:
            return replace(answer, altered=partial(_flipped, at=middle))
        case FaultKind.CHANGED:
            headers = _headers_of_another_file(answer)
            return replace(answer, altered=partial(_flipped, at=middle), headers=headers)
        case FaultKind.ENDLESS:
            return replace(answer, altered=_endless, length=_ENDLESS_BYTES)
        case FaultKind.DRIP:
            return replace(answer, altered=_dripping)
        case FaultKind.LINK_LOOP:
            return _linking(answer, f"{quote(path)}?recursive=true")
        case FaultKind.LINK_AWAY:
            return _linking(answer, f"http://elsewhere.invalid{quote(path)}")
    return replace(answer, status=NO_REPLY)


def _linking(answer: Answer, address: str) -> Answer:
    return replace(answer, headers={**answer.headers, "Link": f'<{address}>; rel="next"'})


def _headers_of_another_file(answer: Answer) -> dict[str, str]:
    """Of a file that is one byte longer: its own ETag, the old one backwards, and its own size."""
    headers = dict(answer.headers)
    for name in {"ETag", "X-Linked-Etag"} & headers.keys():
        headers[name] = headers[name][::-1]
    if "X-Linked-Size" in headers:
        headers["X-Linked-Size"] = str(int(headers["X-Linked-Size"]) + 1)
    if "Content-Range" in headers:
        served, _, size = headers["Content-Range"].rpartition("/")
        headers["Content-Range"] = f"{served}/{int(size) + 1}"
    return headers
