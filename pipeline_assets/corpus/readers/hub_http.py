"""Requests to a hub, which is another party's machine: each answer is bounded, and secrets stay with its own origin.

`huggingface_hub`'s session and headers carry the requests. What a hub says to go on with (a redirect, a next page) is
followed elsewhere too, but without the token; a next page has to be of the origin that named it.
"""

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipeline_assets.corpus.readers.hub_retry import Garbled, reading_answer
from pipeline_assets.corpus.spine.errors import RetryableError

if TYPE_CHECKING:
    import httpx2

PROGRESS_S = 60.0
LEAST_BYTES = 1 << 18  # in that time: what each of eight fetches gets of a line of a third of a megabit a second
_TIMEOUT_S = 30.0  # between two bytes: alone, it would let a file of a gigabyte drip for a thousand years
_MAX_JSON_BYTES = 1 << 26  # a page of a listing has 1,000 entries, each far below a kilobyte
_MAX_REFUSAL_BYTES = 1 << 16
_MAX_REDIRECTS = 5
_USER = re.compile(r"(?<=://)[^/?#]*@")


class Traffic:
    """Bytes of listings and files that a hub sent, counted as they arrive, by any number of threads."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.bytes += count


@dataclass(frozen=True)
class Located:
    """Where the bytes of a file are, and which file the hub says it is: its etag and its size."""

    location: str
    etag: str
    size: int


class HubClient:
    """
    Attributes:
        address: of the hub, without the user and password that an endpoint may hold: fit to be shown.

    Args:
        endpoint: address of the hub; None means the client's own default.
        token: None means the client's own. Not sent where the endpoint holds a user and password: those are.
        progress_s: a body that brings less than LEAST_BYTES in so many seconds counts as cut off.
        traffic: counts what arrives.
    """

    def __init__(self, endpoint: str | None, token: str | None, progress_s: float, traffic: Traffic) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils._headers import build_hf_headers

        self.address, authorization = _without_user(endpoint or constants.ENDPOINT)
        self._headers = {"Accept-Encoding": "identity"} | build_hf_headers(token=token, headers=authorization)
        self._progress_s = progress_s
        self._traffic = traffic

    def page(self, url: str) -> tuple[Any, str | None]:
        """The JSON at an address, and the address of the page that follows.

        Raises:
            Garbled: it is no JSON; the next page is of another origin.
            RetryableError: it is longer than any answer of a hub.
        """
        with self._answer("GET", url) as response:
            self.check(response)
            content = b"".join(self.body(response, _MAX_JSON_BYTES, self.address))
        with reading_answer():
            following = response.links.get("next", {}).get("url")
            if following is None:
                return json.loads(content), None
            address = response.url.join(following)
            if address.origin != response.url.origin:
                raise ValueError(f"its next page is of another origin, {address.scheme}://{address.netloc.decode()}")
            return json.loads(content), str(address)

    def locate(self, url: str) -> Located:
        """What the hub says of the file at an address, without its bytes."""
        with self._answer("HEAD", url) as response:
            self.check(response)
            response.read()
        headers = response.headers
        with reading_answer():
            etag = headers.get("X-Linked-Etag") or headers["ETag"]
            size = int(headers.get("X-Linked-Size") or headers["Content-Length"])
            location = str(response.url.join(headers.get("Location", "")))
        return Located(location, etag.removeprefix("W/").strip('"'), size)

    @contextmanager
    def bytes_at(self, location: str, first: int, last: int) -> "Iterator[httpx2.Response]":
        """The answer to a request for bytes `first` to `last`; its body is unread, and its status may be a refusal."""
        with self._answer("GET", location, {"Range": f"bytes={first}-{last}"}) as response:
            yield response

    def is_own(self, url: str) -> bool:
        """Whether an address is of the hub itself: its origin, the only one that gets the token."""
        import httpx2

        return httpx2.URL(url).origin == httpx2.URL(self.address).origin

    def body(self, response: "httpx2.Response", most_bytes: int, where: str) -> Iterator[bytes]:
        """Blocks of a body, as they arrive: of one that were being filled, a cut would lose all.

        Raises:
            Garbled: it comes compressed, though that wasn't asked for.
            RetryableError: there is more of it than `most_bytes`, all of which were yielded.
            httpx2.ReadTimeout: it drips.
        """
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise Garbled(f"it comes as {encoding}, which wasn't asked for")
        left = most_bytes
        for block in without_drip(response.iter_raw(), self._progress_s):
            if response.is_success:
                self._traffic.add(len(block))
            yield block[:left]
            left -= len(block)
            if left < 0:
                what = f"the answer goes on after the {most_bytes:,} bytes that it may have"
                raise RetryableError(
                    what, where, "run the same command later; if it persists, check what answers there"
                )

    def check(self, response: "httpx2.Response") -> None:
        """
        Raises:
            HfHubHTTPError: it is a refusal, as the client names it by status and headers. What its body says isn't
                used; a short one is read, so that the connection can be used again.
        """
        import httpx2
        from huggingface_hub import hf_raise_for_status

        if response.is_error:
            with suppress(httpx2.RequestError, Garbled, RetryableError):
                list(self.body(response, _MAX_REFUSAL_BYTES, self.address))
        hf_raise_for_status(httpx2.Response(response.status_code, headers=response.headers, request=response.request))

    @contextmanager
    def _answer(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> "Iterator[httpx2.Response]":
        """The answer, after redirects; one that says of a file which it is, is an answer."""
        from huggingface_hub import get_session

        for _ in range(_MAX_REDIRECTS + 1):
            to_send = {**self._headers, **(headers or {})}
            if not self.is_own(url):
                to_send.pop("authorization", None)
            with get_session().stream(
                method, url, headers=to_send, timeout=_TIMEOUT_S, follow_redirects=False
            ) as response:
                if not response.has_redirect_location or (method == "HEAD" and "X-Linked-Etag" in response.headers):
                    yield response
                    return
                url = str(response.url.join(response.headers["Location"]))
        raise Garbled(f"it redirects more than {_MAX_REDIRECTS} times")


def without_drip(
    blocks: Iterable[bytes], progress_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[bytes]:
    """The blocks, until waiting for them took `progress_s` seconds in which less than LEAST_BYTES came.

    The time that is spent on a block by whoever asked for it doesn't count.

    Raises:
        httpx2.ReadTimeout: it did. Everything that came was yielded.
    """
    import httpx2

    coming = iter(blocks)
    waited_s, came = 0.0, 0
    asked_at = clock()
    while (block := next(coming, None)) is not None:
        waited_s += clock() - asked_at
        came += len(block)
        yield block
        if waited_s >= progress_s:
            if came < LEAST_BYTES:
                raise httpx2.ReadTimeout(f"the body drips: {came:,} bytes in {waited_s:.0f} s")
            waited_s, came = 0.0, 0
        asked_at = clock()


def _without_user(endpoint: str) -> tuple[str, dict[str, str]]:
    """(the address, the header that its user and password make)."""
    found = _USER.search(endpoint)
    if found is None:
        return endpoint, {}
    credentials = base64.b64encode(unquote(found[0][:-1]).encode()).decode()
    return _USER.sub("", endpoint, count=1), {"authorization": f"Basic {credentials}"}
