"""HTTP client for `huggingface_hub` that limits time, size, waits and credentials.

The library's own session has no timeout, reads whole bodies of any size, and waits as long as a server requires.
"""

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from huggingface_hub import constants, hf_raise_for_status, set_client_factory

from pipeline_assets.compat import hub_client_factory
from pipeline_assets.corpus.readers.hub_errors import RETRIED_STATUSES, requested_wait_s
from pipeline_assets.corpus.readers.hub_http import PROGRESS_S
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse
from pipeline_assets.corpus.readers.hub_session import LimitedClient

_MAX_RETRY_WAIT_S = 60.0  # `huggingface_hub` waits up to five times per call
_MIN_CHUNK_BYTES = 1 << 20  # S3 storages reject parts below 5 MiB


class UnansweredError(httpx2.RequestError):
    """Error for a request without a response; `huggingface_hub` does not retry it."""


class LibraryClient(LimitedClient):
    """`LimitedClient` for `huggingface_hub`; it also limits the waits before retries.

    Streamed bodies may have any size. `token` replaces the token that `huggingface_hub` sends. The library itself
    retries PUT requests, or all requests if `retries_all`; it waits at most `_MAX_RETRY_WAIT_S` before a retry.
    """

    _decodes_error_bodies = True

    def __init__(
        self, address: str, progress_s: float = PROGRESS_S, *, token: str | None = None, retries_all: bool = False
    ) -> None:
        self._token = token
        self._retries_all = retries_all
        super().__init__(address, progress_s)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request; convert failures that the library would not retry.

        These failures become UnansweredError if no response arrives, and HfHubHTTPError if the response is not streamed
        and has a temporary error status.
        """
        request.extensions = {**request.extensions, "is_streamed": stream}
        try:
            response = super().send(request, stream=stream, **options)
        except (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            if self._library_retries(request):
                raise
            raise UnansweredError(f"{type(error).__name__}: {error}", request=request) from error
        if not stream:
            if response.status_code in RETRIED_STATUSES and not self._library_retries(request):
                hf_raise_for_status(response)
            _check_part_sizes(response)
        return response

    def _library_retries(self, request: httpx2.Request) -> bool:
        """Check whether `huggingface_hub` itself retries a request, such as any PUT."""
        return self._retries_all or request.method == "PUT"

    def _prepare_headers(self, request: httpx2.Request) -> None:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        super()._prepare_headers(request)

    def _limit_body(self, response: httpx2.Response) -> None:
        unlimited = response.stream
        super()._limit_body(response)
        if response.request.extensions["is_streamed"] and not response.has_redirect_location:
            response.stream = unlimited
        wait_s = requested_wait_s(response.headers)
        for name in ("RateLimit", "Retry-After"):
            response.headers.pop(name, None)
        if wait_s is not None:
            is_limited = self._library_retries(response.request)
            response.headers["Retry-After"] = str(int(min(wait_s, _MAX_RETRY_WAIT_S) if is_limited else wait_s))


@contextmanager
def limited_session(address: str, progress_s: float) -> Iterator[None]:
    """Make `huggingface_hub` use a LibraryClient of this hub inside the context.

    If the hub is on this machine, Xet is switched off: such a hub lacks it. Nesting equal contexts has no effect.
    """
    before, is_xet_off = hub_client_factory(), constants.HF_HUB_DISABLE_XET
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
    """Check whether the address of a hub is on this machine."""
    host = httpx2.URL(address).host
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def _check_part_sizes(response: httpx2.Response) -> None:
    """Raise MalformedResponse if a git-lfs server sets upload parts below 1 MiB.

    With a part size of 0, `huggingface_hub` would divide by zero.
    """
    if not response.is_success or not response.url.path.endswith("/info/lfs/objects/batch"):
        return
    offer = response.json()
    for stored in offer["objects"]:
        header = ((stored.get("actions") or {}).get("upload") or {}).get("header") or {}
        if "chunk_size" in header and int(header["chunk_size"]) < _MIN_CHUNK_BYTES:
            what = f"chunk_size must be at least {_MIN_CHUNK_BYTES:,} bytes, got {header['chunk_size']!r:.40}"
            raise MalformedResponse(what)
