"""Faults of the hub on loopback: what a network, a busy hub, a damaged file or malice does to an answer, on request."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self
from urllib.parse import quote

from pipeline_assets.corpus.spine.errors import UsageError
from resources.loopback_http import NO_REPLY, Answer, json_answer
from resources.loopback_repos import CHUNK_BYTES

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
            known = ", ".join(FaultKind)
            raise UsageError(
                f"there is no fault {name!r}", f"--fault {text}", f"write KIND[:PATTERN[:COUNT]] with {known}"
            )
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


@dataclass(frozen=True)
class _CutAnswer(Answer):
    """Half of the body under its full length."""

    def chunks(self) -> Iterator[bytes]:
        left = self.length // 2
        for chunk in super().chunks():
            yield chunk[:left]
            left -= len(chunk[:left])
            if not left:
                return


@dataclass(frozen=True)
class _FlippedAnswer(Answer):
    """The body with the lowest bit of its middle byte flipped."""

    def chunks(self) -> Iterator[bytes]:
        at = self.length // 2
        for chunk in super().chunks():
            if 0 <= at < len(chunk):
                chunk = chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
            at -= len(chunk)
            yield chunk


@dataclass(frozen=True)
class _EndlessAnswer(Answer):
    """The body and, under a length that nobody reads to its end, spaces: of JSON they would be a part."""

    def chunks(self) -> Iterator[bytes]:
        yield from super().chunks()
        while True:
            yield b" " * CHUNK_BYTES


@dataclass(frozen=True)
class _DrippingAnswer(Answer):
    """The body, twenty bytes a second: never long enough nothing for a client that waits for each."""

    def chunks(self) -> Iterator[bytes]:
        for chunk in super().chunks():
            for byte in chunk:
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
    match kind:
        case FaultKind.CUT:
            return replace(answer, status=NO_REPLY)
        case FaultKind.CUT_BODY:
            return _CutAnswer(**vars(answer))
        case FaultKind.WRONG_BYTES:
            return _FlippedAnswer(**vars(answer))
        case FaultKind.CHANGED:
            return _FlippedAnswer(**{**vars(answer), "headers": _headers_of_another_file(answer)})
        case FaultKind.ENDLESS:
            return _EndlessAnswer(**{**vars(answer), "length": _ENDLESS_BYTES})
        case FaultKind.DRIP:
            return _DrippingAnswer(**vars(answer))
        case FaultKind.LINK_LOOP:
            return replace(answer, headers={**answer.headers, "Link": f'<{quote(path)}?recursive=true>; rel="next"'})
        case FaultKind.LINK_AWAY:
            link = f'<http://elsewhere.invalid{quote(path)}>; rel="next"'
            return replace(answer, headers={**answer.headers, "Link": link})
        case FaultKind.BUSY:
            return json_answer({"error": "Service Unavailable"}, 503)
        case FaultKind.RETRY_AFTER:
            return json_answer({"error": "Too Many Requests"}, 429, {"Retry-After": "1"})
        case FaultKind.RATE_LIMIT:
            limit = {"RateLimit": '"x";r=0;t=1', "RateLimit-Policy": '"fixed window";"x";q=5000;w=300'}
            return json_answer({"error": "Too Many Requests"}, 429, limit)
        case FaultKind.UNAUTHORIZED | FaultKind.FORBIDDEN | FaultKind.NOT_FOUND:
            return json_answer({"error": f"HTTP {kind}"}, int(kind))


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
