"""HTTP client of a hub, with limits on time and size.

Credentials are sent only to the hub. Importing this module loads the HTTP client: import it only to make requests.
"""

import functools
import os
import re
import ssl
import time
from collections.abc import Iterator
from typing import Any

import httpcore2
import httpx2

from pipeline_assets.compat import hub_request_hook, replace_network_backend
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse
from pipeline_assets.spine.errors import RetryableError, UsageError

TIMEOUT_S = 30.0  # between two bytes; with this limit alone, a gigabyte could take a thousand years
MIN_PROGRESS_BYTES = 1 << 18  # per `progress_s`: as one of eight fetches on a connection of 0.3 Mbit/s receives
MAX_JSON_BYTES = 1 << 26  # a page of a listing has 1,000 entries, each far below a kilobyte
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
_WRITE_BYTES = 1 << 13  # progress is checked after each block: a slow receiver takes minutes for this many


_ssl_context = functools.cache(httpx2.create_ssl_context)
"""Return the TLS settings that all clients share, because loading them takes 20 ms."""


class LimitedClient(httpx2.Client):
    """HTTP client for one hub, with limits on time, progress and size.

    Only this hub receives credentials. A body may be as long as the requested byte range, or MAX_JSON_BYTES without a
    range; a longer body raises RetryableError. A request fails if it transfers fewer than MIN_PROGRESS_BYTES in
    `progress_s` seconds of waiting, or no byte in the shortest of `progress_s`, `timeout_s` and TIMEOUT_S.
    """

    _decodes_error_bodies = False

    def __init__(self, address: str, progress_s: float, timeout_s: float = TIMEOUT_S) -> None:
        self._origin = httpx2.URL(address).origin
        timeout, tls = min(TIMEOUT_S, timeout_s, progress_s), _ssl_context()
        try:
            super().__init__(follow_redirects=True, timeout=timeout, max_redirects=5, verify=tls)
        except (ValueError, httpx2.InvalidURL, ImportError):  # their messages may contain a part of a password
            what = "must be http:// or https:// URLs of proxies, with special characters of a password as %XX"
            raise UsageError(what, "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY", "correct or unset these variables") from None
        self.event_hooks = {"request": [hub_request_hook(), self._prepare_headers], "response": [self._limit_body]}
        replace_network_backend(self, _TimedBackend(progress_s))

    def _prepare_headers(self, request: httpx2.Request) -> None:
        """Send credentials only to the hub, and request responses without compression."""
        if request.url.origin != self._origin:
            request.headers.pop("Authorization", None)
        request.headers["Accept-Encoding"] = "identity"

    def _limit_body(self, response: httpx2.Response) -> None:
        """Limit the size of a body; reject compression, which could evade the limit."""
        # An error response may be compressed if its body is never decoded.
        is_compressed = response.headers.get("Content-Encoding", "identity") != "identity"
        if is_compressed and (self._decodes_error_bodies or not response.is_error):
            raise MalformedResponse("the response is compressed, which was not requested")
        request = response.request
        span = _RANGE.fullmatch(request.headers.get("Range", "")) if response.is_success else None
        max_bytes = int(span[2]) - int(span[1]) + 1 if span else MAX_JSON_BYTES
        where = request.extensions.get("where", f"{response.url.copy_with(query=None)}")
        response.stream = _BoundedStream(response.stream, max_bytes, where)


shared_client = functools.lru_cache(maxsize=8)(LimitedClient)
"""Return the client of a hub; all readers of a process share its connections."""
os.register_at_fork(after_in_child=shared_client.cache_clear)


class _BoundedStream(httpx2.SyncByteStream):
    """Body of a response; more than `max_bytes` bytes raise RetryableError."""

    def __init__(self, stream: Any, max_bytes: int, where: str) -> None:
        self._stream, self._max_bytes, self._where = stream, max_bytes, where

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for block in self._stream:
            count += len(block)
            if count > self._max_bytes:
                what = f"the response is longer than {self._max_bytes:,} bytes"
                raise RetryableError(what, self._where, "retry later; if the error persists, check the server")
            yield block

    def close(self) -> None:
        self._stream.close()


class _TimedStream(httpcore2.NetworkStream):
    """Connection that raises a timeout error if bytes arrive or leave too slowly.

    At least MIN_PROGRESS_BYTES must be read (or written) in `progress_s` seconds of waiting. A socket timeout alone
    limits only a single call, so a body that arrives byte by byte could take years.
    """

    def __init__(self, stream: httpcore2.NetworkStream, progress_s: float) -> None:
        self._stream, self._progress_s = stream, progress_s
        self._direction, self._waited_s, self._bytes = "", 0.0, 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        started_s = time.monotonic()
        data = self._stream.read(max_bytes, self._timeout(timeout))
        self._check_rate("read", len(data), started_s, httpcore2.ReadTimeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for first in range(0, len(buffer), _WRITE_BYTES):
            block = buffer[first : first + _WRITE_BYTES]
            started_s = time.monotonic()
            self._stream.write(block, self._timeout(timeout))
            self._check_rate("write", len(block), started_s, httpcore2.WriteTimeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, self._timeout(timeout))
        return _TimedStream(secured, self._progress_s)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def _timeout(self, requested: float | None) -> float:
        return min(requested or TIMEOUT_S, TIMEOUT_S, self._progress_s)

    def _check_rate(self, direction: str, size: int, started_s: float, error: type[httpcore2.TimeoutException]) -> None:
        if direction != self._direction:
            self._direction, self._waited_s, self._bytes = direction, 0.0, 0
        self._waited_s += time.monotonic() - started_s
        self._bytes += size
        if self._waited_s >= self._progress_s:
            if self._bytes < MIN_PROGRESS_BYTES:
                raise error(f"{self._bytes:,} bytes in {self._waited_s:.0f} s")
            self._waited_s, self._bytes = 0.0, 0


class _TimedBackend(httpcore2.SyncBackend):
    """Network backend whose connections time out if data flows too slowly."""

    def __init__(self, progress_s: float) -> None:
        self._progress_s = progress_s

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *arguments: Any, **options: Any
    ) -> httpcore2.NetworkStream:
        limit_s = min(timeout or TIMEOUT_S, TIMEOUT_S, self._progress_s)
        return _TimedStream(super().connect_tcp(host, port, limit_s, *arguments, **options), self._progress_s)
