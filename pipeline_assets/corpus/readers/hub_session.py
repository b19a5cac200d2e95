"""HTTP clients of a hub, with limits on time, size and recipients: one for reading, one for `huggingface_hub`.

The library's own session has no timeout, reads any body whole and waits as long as a server requires.

This module loads the HTTP client: import it only to make requests.
"""

import functools
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2
from huggingface_hub import constants, hf_raise_for_status, set_client_factory
from huggingface_hub.utils import _http

from pipeline_assets.corpus.readers.hub_http import PROGRESS_S, RETRIED_STATUS, Garbled, requested_wait_s
from pipeline_assets.corpus.spine.errors import RetryableError

TIMEOUT_S = 30.0  # between two bytes: alone, it would let a file of a gigabyte drip for a thousand years
LEAST_BYTES = 1 << 18  # per `progress_s`: what each of eight fetches gets of a line of a third of a megabit a second
MAX_JSON_BYTES = 1 << 26  # a page of a listing has 1,000 entries, each far below a kilobyte
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
_WRITE_BYTES = 1 << 13  # progress is checked after each: a receiver that drips takes minutes for so many
_MAX_RETRY_WAIT_S = 60.0  # of `huggingface_hub`, which waits five times per call
_LEAST_CHUNK_BYTES = 1 << 20  # storages of this kind refuse parts below 5 MiB


class UnansweredError(httpx2.RequestError):
    """A request without an answer. `huggingface_hub` does not retry this class."""


@functools.cache
def _trusted_authorities() -> ssl.SSLContext:
    """Return the TLS settings of all clients; reading the authorities' certificates takes 20 ms."""
    return httpx2.create_ssl_context()


class LimitedClient(httpx2.Client):
    """HTTP client for one hub, with limits on time, progress and size.

    Only this hub receives credentials. An answer may have the bytes of the requested range, else MAX_JSON_BYTES.

    Args:
        address: URL of the hub.
        progress_s: seconds of waiting in which at least LEAST_BYTES must arrive or be sent; also the timeout of a
            silent connection, up to TIMEOUT_S.
    """

    _decodes_refusals = False

    def __init__(self, address: str, progress_s: float) -> None:
        self._origin = httpx2.URL(address).origin
        self._progress_s = progress_s
        hooks: dict[str, list[Callable[..., Any]]] = {
            "request": [_http.hf_request_event_hook, self._restrict],
            "response": [self._limit],
        }
        timeout = min(TIMEOUT_S, progress_s)
        super().__init__(
            event_hooks=hooks, follow_redirects=True, timeout=timeout, max_redirects=5, verify=_trusted_authorities()
        )

    def _restrict(self, request: httpx2.Request) -> None:
        """Send credentials only to the hub, and request uncompressed answers.

        A compressed answer can have any size once unpacked.
        """
        if request.url.origin != self._origin:
            request.headers.pop("Authorization", None)
        request.headers["Accept-Encoding"] = "identity"

    def _limit(self, response: httpx2.Response) -> None:
        """Limit the size of a body; refuse compression, but for a refusal by its status, whose body nobody decodes."""
        is_compressed = response.headers.get("Content-Encoding", "identity") != "identity"
        if is_compressed and (self._decodes_refusals or not response.is_error):
            raise Garbled("the answer is compressed, which was not requested")
        request = response.request
        span = _RANGE.fullmatch(request.headers.get("Range", "")) if response.is_success else None
        most = int(span[2]) - int(span[1]) + 1 if span else MAX_JSON_BYTES
        where = request.extensions.get("where", f"{response.url.copy_with(query=None)}")
        response.stream = _BoundedStream(response.stream, most, where)

    def _init_transport(self, *arguments: Any, **options: Any) -> httpx2.BaseTransport:
        return self._timed(super()._init_transport(*arguments, **options))

    def _init_proxy_transport(self, *arguments: Any, **options: Any) -> httpx2.BaseTransport:
        return self._timed(super()._init_proxy_transport(*arguments, **options))

    def _timed(self, transport: httpx2.BaseTransport) -> httpx2.BaseTransport:
        assert isinstance(transport, httpx2.HTTPTransport)
        transport._pool._network_backend = _TimedBackend(self._progress_s)
        return transport


limited_client = functools.lru_cache(maxsize=8)(LimitedClient)
"""The client of a hub, whose connections all readers of a process share."""
os.register_at_fork(after_in_child=limited_client.cache_clear)


class LibraryClient(LimitedClient):
    """The same for `huggingface_hub`, whose own retries and waits are limited too. Streams may have any size.

    Args:
        token: token for requests to the hub; None keeps the one that `huggingface_hub` sets.
        retries: whether `huggingface_hub` retries all requests, each after at most _MAX_RETRY_WAIT_S.
    """

    _decodes_refusals = True

    def __init__(
        self, address: str, progress_s: float = PROGRESS_S, *, token: str | None = None, retries: bool = False
    ) -> None:
        self._token = token
        self._retries = retries
        super().__init__(address, progress_s)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request; raise for a temporary status unless `huggingface_hub` retries.

        A streamed response is returned whatever its status.
        """
        request.extensions = {**request.extensions, "is_streamed": stream}
        try:
            response = super().send(request, stream=stream, **options)
        except (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            if self._retries_itself(request):
                raise
            raise UnansweredError(f"{type(error).__name__}: {error}", request=request) from error
        if not stream:
            if response.status_code in RETRIED_STATUS and not self._retries_itself(request):
                hf_raise_for_status(response)
            _check_offer(response)
        return response

    def _retries_itself(self, request: httpx2.Request) -> bool:
        """Check whether `huggingface_hub` retries a request.

        It always retries a PUT, so that one refused file does not fail an upload of a hundred.
        """
        return self._retries or request.method == "PUT"

    def _restrict(self, request: httpx2.Request) -> None:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        super()._restrict(request)

    def _limit(self, response: httpx2.Response) -> None:
        unlimited = response.stream
        super()._limit(response)
        if response.request.extensions["is_streamed"] and not response.has_redirect_location:
            response.stream = unlimited
        wait_s = requested_wait_s(response.headers)
        for name in ("RateLimit", "Retry-After"):
            response.headers.pop(name, None)
        if wait_s is not None:
            is_limited = self._retries_itself(response.request)
            response.headers["Retry-After"] = str(int(min(wait_s, _MAX_RETRY_WAIT_S) if is_limited else wait_s))


@contextmanager
def limited_session(address: str, progress_s: float) -> Iterator[None]:
    """Make `huggingface_hub` use a LibraryClient of a hub inside the context.

    A hub on loopback is used without Xet, because it has no such store. The earlier settings are restored at the end.
    A context inside another one with the same arguments changes nothing.
    """
    before, is_xet_off = _http._GLOBAL_CLIENT_FACTORY, constants.HF_HUB_DISABLE_XET
    if isinstance(before, functools.partial) and before.args == (address, progress_s):
        yield
        return
    set_client_factory(functools.partial(LibraryClient, address, progress_s))
    constants.HF_HUB_DISABLE_XET = is_xet_off or is_loopback(address)
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = is_xet_off
        set_client_factory(before)


def is_loopback(address: str) -> bool:
    """Check whether a hub is on this machine."""
    host = httpx2.URL(address).host
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


class _BoundedStream(httpx2.SyncByteStream):
    """Body of an answer, up to `most` bytes."""

    def __init__(self, stream: Any, most: int, where: str) -> None:
        self._stream, self._most, self._where = stream, most, where

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for block in self._stream:
            count += len(block)
            if count > self._most:
                what = f"the answer must have at most {self._most:,} bytes, and continues"
                raise RetryableError(what, self._where, "retry later; if it persists, check what answers there")
            yield block

    def close(self) -> None:
        self._stream.close()


class _TimedStream(httpcore2.NetworkStream):
    """Connection that must move LEAST_BYTES in `progress_s` seconds of waiting.

    The limit applies to any `progress_s` seconds of waiting in one direction. A socket timeout limits a single call:
    with this alone, headers, a body or an upload may drip for years.
    """

    def __init__(self, stream: httpcore2.NetworkStream, progress_s: float) -> None:
        self._stream, self._progress_s = stream, progress_s
        self._direction, self._waited_s, self._bytes = "", 0.0, 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._waiting("read"):
            data = self._stream.read(max_bytes, self._timeout(timeout))
        self._count(len(data), httpcore2.ReadTimeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for first in range(0, len(buffer), _WRITE_BYTES):
            block = buffer[first : first + _WRITE_BYTES]
            with self._waiting("write"):
                self._stream.write(block, self._timeout(timeout))
            self._count(len(block), httpcore2.WriteTimeout)

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

    @contextmanager
    def _waiting(self, direction: str) -> Iterator[None]:
        if direction != self._direction:
            self._direction, self._waited_s, self._bytes = direction, 0.0, 0
        started = time.monotonic()
        yield
        self._waited_s += time.monotonic() - started

    def _count(self, count: int, error: type[httpcore2.TimeoutException]) -> None:
        self._bytes += count
        if self._waited_s >= self._progress_s:
            if self._bytes < LEAST_BYTES:
                raise error(f"{self._bytes:,} bytes in {self._waited_s:.0f} s")
            self._waited_s, self._bytes = 0.0, 0


class _TimedBackend(httpcore2.NetworkBackend):
    """Network backend whose connections must make progress."""

    def __init__(self, progress_s: float) -> None:
        self._backend = httpcore2.SyncBackend()
        self._progress_s = progress_s

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        longest = min(timeout or TIMEOUT_S, TIMEOUT_S, self._progress_s)
        stream = self._backend.connect_tcp(host, port, longest, local_address, socket_options)
        return _TimedStream(stream, self._progress_s)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


def _check_offer(response: httpx2.Response) -> None:
    """Raise Garbled if a git-lfs offer has a part size that no storage takes.

    Uploads are split into parts of this size; for a size of 0, the client divides by zero.
    """
    if not response.is_success or not response.url.path.endswith("/info/lfs/objects/batch"):
        return
    offer = response.json()
    for stored in offer["objects"]:
        header = ((stored.get("actions") or {}).get("upload") or {}).get("header") or {}
        if "chunk_size" in header and int(header["chunk_size"]) < _LEAST_CHUNK_BYTES:
            raise Garbled(f"chunk_size must be at least {_LEAST_CHUNK_BYTES:,} bytes, got {header['chunk_size']!r:.40}")
