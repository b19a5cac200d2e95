"""Small object store on loopback with conditional writes and faults.

Each key has a lock, so that a condition is checked and its object written in one step. Unlike moto, the server may
therefore decide races.
"""

import hashlib
import json
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

BUCKET, ACCOUNT = "bucket", "account"
SECRET = "c2VjcmV0IHRoYXQgbm9ib2R5IG1heSBzZWU="
_GENERATION, _MATCH = "x-goog-generation", "x-goog-if-generation-match"
_SLOW_S = 0.3
Kind = Literal[
    "503", "501", "409", "403", "cut", "slow", "lost answer", "flip", "long", "stale list", "same page", "unconditional"
]


@dataclass
class Fault:
    """A fault that `count` fitting requests meet, the first `after` of them left out.

    `cut` sends half of a body and closes the connection; `lost answer` serves the request, then closes it; `long`
    sends a byte more than requested; `same page` names the same page of a listing as the next one.
    """

    kind: Kind
    method: str = ".*"
    key: str = ".*"
    count: int = 1
    after: int = 0


@dataclass(frozen=True)
class Stored:
    """An object with its ETag and its generation."""

    data: bytes
    generation: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@dataclass
class ObjectServer:
    """A store with one bucket, whose content and requests a test sees."""

    objects: dict[str, Stored] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    headers: list[str] = field(default_factory=list)
    watch: Callable[[], None] | None = None  # called at each request
    uploads: dict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _generation: int = 0

    def __enter__(self) -> Self:
        server = self

        class Handler(_Handler):
            store = server

        self._server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, folder: Path) -> dict[str, str]:
        """Return variables that point S3, GCS and Azure clients here; write `gcs.json`."""
        account = {"gcs_base_url": self.endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        (folder / "gcs.json").write_text(json.dumps({**account, "private_key_id": ""}))
        return {
            "AWS_ACCESS_KEY_ID": "AKIAPUBLICNAME",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "GOOGLE_SERVICE_ACCOUNT": str(folder / "gcs.json"),
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": SECRET,
            "AZURE_STORAGE_ENDPOINT": f"{self.endpoint}/{ACCOUNT}",
        }

    def take_fault(self, method: str, key: str, kinds: Sequence[Kind]) -> Kind | None:
        with self._lock:
            for fault in self.faults:
                is_met = re.fullmatch(fault.method, method) and re.search(fault.key, key)
                if not is_met or fault.kind not in kinds:
                    continue
                fault.after -= 1
                if fault.count and fault.after < 0:
                    fault.count -= 1
                    self.met[fault.kind] += 1
                    return fault.kind
        return None

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        with self._lock:
            lock = self._locks[key]
        with lock:
            yield

    def put(self, key: str, data: bytes) -> Stored:
        with self._lock:
            self._generation += 1
            stored = self.objects[key] = Stored(data, self._generation)
        return stored


@contextmanager
def serving(folder: Path, variables: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """Run a store with its clients' variables set; `folder` gets a file for GCS.

    A test that sets one of them, too, must do so by the same `variables`, which undo all in the reverse order.
    """
    with ObjectServer() as server:
        for name, value in server.environment(folder).items():
            variables.setenv(name, value)
        yield server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing about clients that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    store: ObjectServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        address = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        path = unquote(address.path).removeprefix(f"/{ACCOUNT}")
        bucket, _, self.key = path.removeprefix("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.store.requests.append((self.command, self.key))
        self.store.headers.append(str(self.headers))
        if self.store.watch is not None:
            self.store.watch()
        kind = self.store.take_fault(self.command, self.key, ["503", "501", "409", "403", "slow", "lost answer"])
        if bucket != BUCKET:
            return self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        if kind is not None and kind.isdecimal():
            return self._answer(int(kind), b"<Error><Code>Fault</Code></Error>")
        if kind == "slow":
            time.sleep(_SLOW_S)
        self.is_lost = kind == "lost answer"
        getattr(self, f"_{self.command.lower()}")(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        if getattr(self, "is_lost", False):
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if body and self.store.take_fault(self.command, self.key, ["cut"]):
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)

    def _head(self, _: bytes) -> None:
        self._get(b"")

    def _get(self, _: bytes) -> None:
        if not self.key:
            return self._list()
        stored = self.store.objects.get(self.key)
        if stored is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        if self.headers.get("If-Match", stored.etag) != stored.etag:
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        data, status, headers = stored.data, 200, _object_headers(stored)
        if self.command == "GET" and self.store.take_fault("GET", self.key, ["flip"]):
            data = bytes([data[0] ^ 1]) + data[1:]
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is not None and int(span[1]) >= len(data):
            return self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
        if span is not None:
            start, stop = int(span[1]), min(int(span[2] or len(data)) + 1, len(data))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            data, status = data[start:stop], 206
        if self.command == "GET" and self.store.take_fault("GET", self.key, ["long"]):
            data += b"x"
        return self._answer(status, data, **headers)

    def _list(self) -> None:
        prefix = self.query.get("prefix", "")
        found = {key: stored for key, stored in sorted(self.store.objects.items()) if key.startswith(prefix)}
        if self.store.take_fault("GET", "", ["stale list"]):
            found = {}
        make, page = (_azure_entry, _AZURE_PAGE) if "x-ms-version" in self.headers else (_entry, _PAGE)
        if self.store.take_fault("GET", "", ["same page"]):
            page = page.replace(
                _LAST, "<IsTruncated>true</IsTruncated><NextContinuationToken>1</NextContinuationToken>"
            )
        body = page % "".join(make(key, stored) for key, stored in found.items())
        self._answer(200, body.encode(), **{"Content-Type": "application/xml"})

    def _refusal(self, now: Stored | None) -> int | None:
        """Return the status of a put whose condition is false."""
        expected, absent = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        generation = self.headers.get(_MATCH)
        if absent == "*" and now is not None:
            return 412
        if expected is not None and now is None:
            return 404
        if expected is not None and now is not None and expected != now.etag:
            return 412
        if generation is not None and int(generation) != (0 if now is None else now.generation):
            return 412
        return None

    def _put(self, body: bytes) -> None:
        uploads = self.store.uploads
        if "partNumber" in self.query:
            uploads[self.query["uploadId"]][self.query["partNumber"].zfill(5)] = body
            return self._answer(200, ETag=f'"{self.query["partNumber"]}"')
        if self.query.get("comp") == "block":  # of Azure
            uploads[self.key][self.query["blockid"]] = body
            return self._answer(201)
        if self.query.get("comp") == "blocklist":
            blocks = re.findall(r"<(?:Uncommitted|Latest)>(.*?)</", body.decode())
            body = b"".join(uploads[self.key][block] for block in blocks)
        with self.store.locked(self.key):
            refused = self._refusal(self.store.objects.get(self.key))
            if refused and not self.store.take_fault("PUT", self.key, ["unconditional"]):
                return self._answer(refused, b"<Error><Code>PreconditionFailed</Code></Error>")
            stored = self.store.put(self.key, body)
        return self._answer(201 if "x-ms-version" in self.headers else 200, **_object_headers(stored))

    def _post(self, body: bytes) -> None:
        """Begin or end a multipart upload."""
        if "uploads" in self.query:
            number = str(len(self.store.uploads))
            self.store.uploads[number] = {}
            answer = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, answer.encode())
        parts = self.store.uploads[self.query["uploadId"]]
        stored = self.store.put(self.key, b"".join(parts[number] for number in sorted(parts)))
        etag = f"<ETag>{escape(stored.etag)}</ETag>"
        answer = f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>"
        return self._answer(200, answer.encode())

    def _delete(self, _: bytes) -> None:
        """Abort a multipart upload."""
        self.store.uploads.pop(self.query["uploadId"])
        self._answer(200)


def _object_headers(stored: Stored) -> dict[str, str]:
    return {"ETag": stored.etag, _GENERATION: str(stored.generation), "Last-Modified": "Thu, 01 Jan 1970 00:00:00 GMT"}


_LAST = "<IsTruncated>false</IsTruncated>"
_PAGE = f"<ListBucketResult><Name>{BUCKET}</Name>{_LAST}%s</ListBucketResult>"
_AZURE_PAGE = "<EnumerationResults><Blobs>%s</Blobs><NextMarker /></EnumerationResults>"


def _entry(key: str, stored: Stored) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>1970-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
    )


def _azure_entry(key: str, stored: Stored) -> str:
    properties = (
        f"<Last-Modified>Thu, 01 Jan 1970 00:00:00 GMT</Last-Modified><Content-Length>{len(stored.data)}"
        f"</Content-Length><Content-Type>text/plain</Content-Type><Etag>{escape(stored.etag)}</Etag>"
    )
    return f"<Blob><Name>{escape(key)}</Name><Properties>{properties}</Properties></Blob>"
