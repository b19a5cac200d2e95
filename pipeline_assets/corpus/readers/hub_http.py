"""Requests to a hub with bounded responses, retries and protected credentials.

Redirects may lead to other origins, to which the token is not sent. All pages of a listing must have the same origin.
"""

import itertools
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline_assets.corpus.readers.hub_errors import HubCall, requested_wait_s, status_error
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse, convert_parse_errors, error_text
from pipeline_assets.spine.errors import TransientError, UsageError
from pipeline_assets.spine.redaction import redact_address

if TYPE_CHECKING:
    import httpx2

    from pipeline_assets.corpus.readers.hub_session import LimitedClient

logger = logging.getLogger("corpusmill")
T = TypeVar("T")
PROGRESS_S = 60.0
_MAX_ERROR_BLOCKS = 4


class Traffic:
    """Thread-safe counter of bytes in response bodies."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, byte_count: int) -> None:
        with self._lock:
            self.bytes += byte_count


@dataclass(frozen=True)
class FileLocation:
    """Address of a file's bytes, with the etag and size that the hub states."""

    url: str
    etag: str
    size: int


class HubClient:
    """Client that makes the requests of a `HubFiles`, and counts received bytes.

    Its methods raise MalformedResponse, HfHubHTTPError and httpx2's errors, which `call_with_retries` converts.
    """

    def __init__(
        self, endpoint: str | None, token: str | None, progress_s: float, timeout_s: float, traffic: Traffic
    ) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        self.address = endpoint or constants.ENDPOINT
        self._headers = build_hf_headers(token=token)
        if not self._headers.get("authorization", "").isascii():
            what = "the token contains characters outside ASCII"
            raise UsageError(what, "HF_TOKEN", "set it, or the token file of `hf auth login`, to a valid token")
        self._progress_s, self._timeout_s = progress_s, timeout_s
        self._traffic = traffic

    @property
    def _session(self) -> "LimitedClient":
        from pipeline_assets.corpus.readers.hub_session import shared_client

        return shared_client(self.address, self._progress_s, self._timeout_s)

    def fetch_page(self, url: str) -> tuple[Any, str | None]:
        """Fetch a JSON page; return its content, and the next page's address or None."""
        with self.stream(url, self.address) as response:
            self.raise_for_status(response)
            content = b"".join(self.body_blocks(response))
        with convert_parse_errors():
            following = response.links.get("next", {}).get("url")
            if following is None:
                return json.loads(content), None
            address = response.url.join(following)
            if address.origin != response.url.origin:
                raise ValueError(f"the next page has another origin, {address.scheme}://{address.netloc.decode()}")
            return json.loads(content), str(address)

    def locate(self, url: str) -> FileLocation:
        """Follow redirects until a response states a file's etag and size; read no bytes."""
        session = self._session
        response = session.head(url, headers=self._headers, follow_redirects=False)
        for _ in range(session.max_redirects):
            if response.next_request is None or "X-Linked-Etag" in response.headers:
                break
            response = session.send(response.next_request, follow_redirects=False)
        else:
            raise MalformedResponse(f"more than {session.max_redirects} redirects")
        self.raise_for_status(response)
        headers = response.headers
        with convert_parse_errors():
            etag = headers.get("X-Linked-Etag") or headers["ETag"]
            size = int(headers.get("X-Linked-Size") or headers["Content-Length"])
            file_url = response.url.join(headers.get("Location", ""))
            if file_url.scheme not in ("http", "https"):
                raise ValueError(f"the file is at {file_url.scheme}://")
        return FileLocation(str(file_url), etag.removeprefix("W/").strip('"'), size)

    def stream(self, url: str, where: str, **headers: str) -> "AbstractContextManager[httpx2.Response]":
        """Start a GET request without checking the status; `where` is for error texts."""
        return self._session.stream("GET", url, headers=self._headers | headers, extensions={"where": where})

    def is_on_hub(self, url: str) -> bool:
        """Check whether a URL has the hub's origin."""
        import httpx2

        return httpx2.URL(url).origin == httpx2.URL(self.address).origin

    def body_blocks(self, response: "httpx2.Response") -> Iterator[bytes]:
        """Yield the blocks of a body as they arrive, and count their bytes.

        Raise RetryableError if the body is longer than requested, and httpx2.ReadTimeout if it is too slow.
        """
        for block in response.iter_raw():
            self._traffic.add(len(block))
            yield block

    def raise_for_status(self, response: "httpx2.Response") -> None:
        """Raise HfHubHTTPError for an error status, without parsing the body.

        A short body is read to its end, so that the connection can be reused.
        """
        import httpx2
        from huggingface_hub import hf_raise_for_status

        if response.is_error and not response.is_closed:
            with suppress(httpx2.RequestError):
                list(itertools.islice(response.iter_raw(), _MAX_ERROR_BLOCKS))
        hf_raise_for_status(httpx2.Response(response.status_code, headers=response.headers, request=response.request))


def call_with_retries(call: Callable[[], T], hub_call: HubCall) -> T:
    """Return the result of `call`; retry after temporary errors and bad responses.

    Raises:
        UsageError: The dataset, model or revision does not exist, or the address is invalid.
        InputError: Another permanent error, or a temporary one that persists; the message has a fix.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    _check_address(hub_call.address)
    for attempt in itertools.count(1):
        try:
            return call()
        except HfHubHTTPError as error:
            status = error.response.status_code
            problem = "rate limited" if status == 429 else f"HTTP {status}"
            seconds, refusal = requested_wait_s(error.response.headers), status_error(error, status, hub_call)
        except httpx2.RequestError as error:
            seconds, problem = None, error_text(error)
            fix = "check the network and HF_ENDPOINT, then run the same command again"
            refusal = TransientError(f"{hub_call.repo} cannot be reached ({problem})", hub_call.address, fix)
        except (MalformedResponse, httpx2.InvalidURL) as error:  # a URL in a response, as the hub's own was checked
            seconds, problem = None, f"the response cannot be parsed ({error})"
            what = f"the response for revision {hub_call.revision} cannot be parsed ({error})"
            fix = "run the same command later; if the error persists, check the server at HF_ENDPOINT"
            refusal = TransientError(what, f"{hub_call.repo} on {hub_call.address}", fix)
        if attempt == hub_call.tries or not isinstance(refusal, TransientError):
            raise refusal
        if seconds is None:
            seconds = min(60.0, hub_call.wait_s * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
        attempts = f"{attempt + 1} of {hub_call.tries}"
        logger.warning("%s: %s; attempt %s in %.1f s", hub_call.repo, problem, attempts, seconds)
        time.sleep(seconds)
    raise AssertionError("unreachable: the loop returns or raises")


def _check_address(address: str) -> None:
    """Raise UsageError if an address is not an HTTP URL, or contains a user name."""
    import httpx2

    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host or set("@?#") & set(address):
        rule = "must be http://HOST or https://HOST without a user or query"
        what = f"the URL {rule}, got {redact_address(address)!r}"
        raise UsageError(what, "HF_ENDPOINT", "correct or unset the variable")
