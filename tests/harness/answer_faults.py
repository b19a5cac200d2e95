"""Faults in a hub's answers: of networks, busy hubs, corrupt files and attackers."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import quote

from pipeline_assets.demo.loopback_files import CHUNK_BYTES
from pipeline_assets.demo.loopback_http import Response, json_response

NO_REPLY = 0  # status if the connection is closed without an answer
SILENCE = -1  # status if the connection stays open without an answer
ALWAYS = None
_DRIP_S = 0.05
_ENDLESS_BYTES = 1 << 62


class FaultKind(StrEnum):
    """Kind of damage to an answer.

    A fault of the body does not change answers without a body. `changed` does not change answers that are not files. A
    fault of the next page does not change answers that are not listings.
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
    SILENT = "silent"
    DRIP_HEAD = "drip-head"
    LONG_WAIT = "429-long"
    VERIFY_AWAY = "verify-away"
    CHUNK_SIZE = "chunk-size"
    COMMIT_ID = "commit-id"
    EMPTY_LIST = "empty-list"
    GZIP = "gzip"


_VALUES = {
    FaultKind.LINK_AWAY: "http://elsewhere.invalid",  # an origin
    FaultKind.VERIFY_AWAY: "http://elsewhere.invalid",
    FaultKind.CHUNK_SIZE: "0",
    FaultKind.COMMIT_ID: "main",
}
# Errors that replace an answer: status, message, headers.
_ERRORS: dict[FaultKind, tuple[int, str, Mapping[str, str]]] = {
    FaultKind.BUSY: (503, "Service Unavailable", {}),
    FaultKind.RETRY_AFTER: (429, "Too Many Requests", {"Retry-After": "1"}),
    FaultKind.RATE_LIMIT: (
        429,
        "Too Many Requests",
        {"RateLimit": '"x";r=0;t=1', "RateLimit-Policy": '"fixed window";"x";q=5000;w=300'},
    ),
    FaultKind.LONG_WAIT: (
        429,
        "Too Many Requests",
        {"RateLimit": '"x";r=0;t=999999999', "Retry-After": "999999999"},
    ),
    FaultKind.UNAUTHORIZED: (401, "HTTP 401", {}),
    FaultKind.FORBIDDEN: (403, "HTTP 403", {}),
    FaultKind.NOT_FOUND: (404, "HTTP 404", {}),
}


@dataclass(frozen=True)
class Fault:
    """A fault for some requests.

    Attributes:
        pattern: fnmatch over the request's path, percent-decoded and without the query; `*` crosses slashes.
        count: how many answers it hits; ALWAYS for all.
        after: how many answers that it could hit go by first.
        value: text that is put into the answer; by default the value of the kind in _VALUES.
    """

    kind: FaultKind
    pattern: str = "*"
    count: int | None = 1
    after: int = 0
    value: str = ""


@dataclass(frozen=True)
class AlteredResponse(Response):
    """An answer whose body is changed on its way out, or whose head is delayed.

    Attributes:
        altered: what becomes of the body's pieces.
        head_delay_s: wait before each byte of the head.
    """

    altered: Callable[[Iterator[bytes]], Iterator[bytes]] = iter
    head_delay_s: float = 0.0

    def chunks(self) -> Iterator[bytes]:
        return self.altered(super().chunks())


class Faults:
    """The faults in force, safe to use from many threads.

    The first fault that fits an answer hits it.

    Attributes:
        fired: kind and path of each answer that was hit, in order.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.fired: list[tuple[FaultKind, str]] = []
        self._faults = tuple(faults)
        self._met = [0] * len(self._faults)
        self._lock = threading.Lock()

    def disturb(self, path: str, answer: Response, is_head: bool) -> Response:
        """Return the answer to send instead."""
        with self._lock:
            for number, fault in enumerate(self._faults):
                if not fnmatchcase(path, fault.pattern) or not _can_hit(fault.kind, answer, is_head):
                    continue
                self._met[number] += 1
                hits = self._met[number] - fault.after
                if hits > 0 and (fault.count is ALWAYS or hits <= fault.count):
                    self.fired.append((fault.kind, path))
                    return _disturbed(fault, path, answer)
        return answer


def _cut(chunks: Iterator[bytes], remaining: int) -> Iterator[bytes]:
    """Yield the first bytes of a body."""
    for chunk in chunks:
        yield chunk[:remaining]
        remaining -= len(chunk[:remaining])
        if not remaining:
            return


def _flipped(chunks: Iterator[bytes], at: int) -> Iterator[bytes]:
    """Yield a body with the lowest bit of one byte flipped."""
    for chunk in chunks:
        if 0 <= at < len(chunk):
            chunk = chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
        at -= len(chunk)
        yield chunk


def _endless(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a body, then endless spaces.

    The answer's length is so large that no client reads to its end. In JSON, spaces are valid.
    """
    yield from chunks
    while True:
        yield b" " * CHUNK_BYTES


def _dripping(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a body, twenty bytes a second.

    A client that waits for each byte never waits long enough for a timeout.
    """
    for byte in itertools.chain.from_iterable(chunks):
        time.sleep(_DRIP_S)
        yield bytes([byte])


def _can_hit(kind: FaultKind, answer: Response, is_head: bool) -> bool:
    if kind in (FaultKind.CUT_BODY, FaultKind.WRONG_BYTES, FaultKind.ENDLESS, FaultKind.DRIP):
        return answer.length > 0 and not is_head
    if kind in (FaultKind.LINK_LOOP, FaultKind.LINK_AWAY, FaultKind.EMPTY_LIST):
        return isinstance(answer.body, bytes) and answer.body.startswith(b"[")
    if kind in (FaultKind.VERIFY_AWAY, FaultKind.CHUNK_SIZE):
        return isinstance(answer.body, bytes) and b'"actions"' in answer.body
    if kind is FaultKind.COMMIT_ID:
        return isinstance(answer.body, bytes) and b'"commitOid"' in answer.body
    if kind is FaultKind.CHANGED:
        return "ETag" in answer.headers or "X-Linked-Etag" in answer.headers
    return True


def _disturbed(fault: Fault, path: str, answer: Response) -> Response:
    kind, value = fault.kind, fault.value or _VALUES.get(fault.kind, "")
    if kind in _ERRORS:
        status, message, headers = _ERRORS[kind]
        return json_response({"error": message}, status, headers)
    middle = answer.length // 2
    match kind:
        case FaultKind.CUT_BODY:
            return _altered(answer, altered=partial(_cut, remaining=middle))
        case FaultKind.WRONG_BYTES:
            return _altered(answer, altered=partial(_flipped, at=middle))
        case FaultKind.CHANGED:
            headers = _headers_of_another_file(answer)
            return _altered(answer, altered=partial(_flipped, at=middle), headers=headers)
        case FaultKind.ENDLESS:
            return _altered(answer, altered=_endless, length=_ENDLESS_BYTES)
        case FaultKind.DRIP:
            return _altered(answer, altered=_dripping)
        case FaultKind.LINK_LOOP:
            return _linking(answer, f"{quote(path)}?recursive=true")
        case FaultKind.LINK_AWAY:
            return _linking(answer, f"{value}{quote(path)}")
        case FaultKind.SILENT:
            return replace(answer, status=SILENCE)
        case FaultKind.DRIP_HEAD:
            return _altered(answer, head_delay_s=_DRIP_S)
        case FaultKind.GZIP:
            return replace(answer, headers={**answer.headers, "Content-Encoding": "gzip"})
        case FaultKind.EMPTY_LIST:
            return json_response([], answer.status)
        case FaultKind.VERIFY_AWAY | FaultKind.CHUNK_SIZE | FaultKind.COMMIT_ID:
            return _edited(kind, value, answer)
    return replace(answer, status=NO_REPLY)


def _altered(answer: Response, **changes: Any) -> AlteredResponse:
    return AlteredResponse(**{**vars(answer), **changes})


def _edited(kind: FaultKind, value: str, answer: Response) -> Response:
    """Return an answer with one value of its JSON replaced."""
    content: Any = json.loads(bytes(answer.body))  # type: ignore[arg-type]
    if kind is FaultKind.COMMIT_ID:
        return json_response({**content, "commitOid": value}, answer.status)
    for actions in (stored["actions"] for stored in content["objects"] if "actions" in stored):
        if kind is FaultKind.CHUNK_SIZE:
            actions["upload"]["header"] = {"chunk_size": value}
        else:
            actions["verify"]["href"] = f"{value}/verify"
    return json_response(content, answer.status)


def _linking(answer: Response, address: str) -> Response:
    return replace(answer, headers={**answer.headers, "Link": f'<{address}>; rel="next"'})


def _headers_of_another_file(answer: Response) -> dict[str, str]:
    """Return the headers of another file, which is one byte longer.

    Its ETag is the old one backwards; its size is its own.
    """
    headers = dict(answer.headers)
    for name in {"ETag", "X-Linked-Etag"} & headers.keys():
        headers[name] = headers[name][::-1]
    if "X-Linked-Size" in headers:
        headers["X-Linked-Size"] = str(int(headers["X-Linked-Size"]) + 1)
    if "Content-Range" in headers:
        served, _, size = headers["Content-Range"].rpartition("/")
        headers["Content-Range"] = f"{served}/{int(size) + 1}"
    return headers
