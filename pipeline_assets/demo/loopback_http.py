"""HTTP requests and responses of the hub on loopback."""

import json
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Protocol, cast
from urllib.parse import parse_qs, unquote

from pipeline_assets.demo.loopback_files import CHUNK_BYTES, FileInFolder
from pipeline_assets.demo.loopback_uploads import Upload, received_upload

Origin = Literal["hub", "storage"]
BODY_LIMIT_BYTES = 1 << 26  # for writers; parsed JSON takes several times as much memory
READER_BODY_LIMIT_BYTES = 1 << 20
UPLOAD_LIMIT_BYTES = 1 << 33


@dataclass(frozen=True)
class HubRequest:
    """HTTP request to the hub or its storage; `method` is GET for a HEAD request, too."""

    method: str
    raw_path: str
    query: Mapping[str, str]
    byte_range: str
    authorization: str
    body: bytes
    upload: Upload | None = None

    @property
    def path_segments(self) -> list[str]:
        """Decoded path segments, which may contain slashes."""
        return [unquote(part) for part in self.raw_path.strip("/").split("/")]

    @property
    def has_token(self) -> bool:
        return self.authorization.startswith("Bearer ")


@dataclass(frozen=True)
class Response:
    """HTTP response; the body is bytes, or `length` bytes of a file from byte `start`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | FileInFolder = b""
    start: int = 0
    length: int = 0

    def chunks(self) -> Iterator[bytes]:
        """Yield chunks of the body; less than `length` in total if the file has shrunk."""
        if isinstance(self.body, bytes):
            yield self.body
            return
        with self.body.open() as content:
            content.seek(self.start)
            remaining = self.length
            while remaining and (chunk := content.read(min(remaining, CHUNK_BYTES))):
                remaining -= len(chunk)
                yield chunk


class HubError(Exception):
    """Error for a refused request; clients read its status and header X-Error-Code."""

    def __init__(self, status: int, code: str, message: str, commit: str = "") -> None:
        super().__init__(message)
        in_ascii = message.encode("ascii", "backslashreplace").decode()
        headers = {"X-Error-Code": code, "X-Error-Message": in_ascii, "X-Repo-Commit": commit}
        sent = {name: value for name, value in headers.items() if value}
        self.response = json_response({"error": message}, status, sent)


def is_loopback_host(headers: Message, port: int) -> bool:
    """Check whether a request's Host header names this machine.

    Requests of a hostile web page, whose domain resolves to 127.0.0.1, name that domain instead (DNS rebinding).
    """
    names = ("127.0.0.1", "localhost")
    expected = {f"{name}:{port}" for name in names} | {name for name in names if port == HTTP_PORT}
    return [host.lower() for host in headers.get_all("Host", [])] in [[name] for name in expected]


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(content).encode()
    return Response(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body, 0, len(body))


class HubInterface(Protocol):
    """Methods of the hub that an `OriginServer` calls."""

    @property
    def uploads(self) -> Path:
        """Folder of uploaded large files, from which commits copy the files they add."""

    def may_write(self, request: HubRequest) -> bool:
        """Check whether a request may change the hub."""

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        """Return the response to a request to the hub or its storage."""


class OriginServer(ThreadingHTTPServer):
    """HTTP server of the hub or its storage; once closed, it accepts no connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, origin: Origin, port: int, hub: HubInterface, handler: "type[Handler]") -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.origin: Origin = origin
        self.hub = hub
        self.is_closed = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Print a traceback unless the client disconnected."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()

    def close(self) -> None:
        self.is_closed = True
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 handler of a connection; limits body sizes and stores uploads in files."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits 40 ms for the client to acknowledge the headers

    def do_GET(self) -> None:
        server = cast(OriginServer, self.server)
        if server.is_closed:
            self.close_connection = True
            return None
        if not is_loopback_host(self.headers, server.server_port):
            return self.send_error(421, f"The Host header must be 127.0.0.1:{server.server_port}")
        request = self._read_head()
        may_write = server.hub.may_write(request)
        is_upload = may_write and self.command == "PUT" and server.origin == "storage"
        limit = UPLOAD_LIMIT_BYTES if is_upload else BODY_LIMIT_BYTES if may_write else READER_BODY_LIMIT_BYTES
        length = self.headers.get("Content-Length", "0")
        if not re.fullmatch("[0-9]{1,10}", length) or int(length) > limit or "Transfer-Encoding" in self.headers:
            return self.send_error(400)
        if not is_upload:
            return self.send(server.hub.answer(server.origin, replace(request, body=self.rfile.read(int(length)))))
        with received_upload(self.rfile, int(length), server.hub.uploads) as upload:
            self.send(server.hub.answer(server.origin, replace(request, upload=upload)))

    def _read_head(self) -> HubRequest:
        raw_path, _, query = self.path.partition("?")
        return HubRequest(
            method="GET" if self.command == "HEAD" else self.command,
            raw_path=raw_path,
            query={name: values[-1] for name, values in parse_qs(query).items()},
            byte_range=self.headers.get("Range", ""),
            authorization=self.headers.get("Authorization", ""),
            body=b"",
        )

    do_HEAD = do_POST = do_PUT = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error as JSON, without `explain`, and close the connection."""
        self.close_connection = True
        self.request_version = self.protocol_version  # not yet set if the request line is invalid
        self.send(json_response({"error": message or self.responses[code][0]}, code, {"Connection": "close"}))

    def log_message(self, format: str, *args: object) -> None:
        """Keep no access log."""

    def send(self, response: Response) -> None:
        """Send a response; close the connection if its body ends early."""
        self.send_response_only(response.status)
        for name, value in {**response.headers, "Content-Length": str(response.length)}.items():
            self.send_header(name, value)
        owed, sent = 0 if self.command == "HEAD" else response.length, 0
        try:
            self.end_headers()
            for chunk in response.chunks() if owed else ():
                self.wfile.write(chunk)
                sent += len(chunk)
        except OSError:  # the client disconnected, or the file was removed
            self.close_connection = True
        if sent < owed:
            self.close_connection = True
