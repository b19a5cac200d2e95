"""Requests to a hub, which is another party's machine: each answer is bounded, secrets stay with its own origin, and
what passes by itself is tried again.

What a hub says to go on with (a redirect, a next page) is followed elsewhere too, but without the token; a next page
has to be of the origin that named it. What doesn't pass is one line that says what to do.
"""

import itertools
import json
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, TransientError, UsageError

if TYPE_CHECKING:
    import httpx2

    from pipeline_assets.corpus.readers.hub_session import LimitedClient

logger = logging.getLogger("corpusmill")
T = TypeVar("T")
RepoType = Literal["dataset", "model"]
PROGRESS_S = 60.0
_REFUSAL_BLOCKS = 4
RETRIED_STATUS = (408, 429, 500, 502, 503, 504)
_LONGEST_WAIT_S = 600.0  # that a hub may ask for: the public one counts in windows of 300 s
_SHOWN_CHARACTERS = 200
_UNPRINTABLE = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff]+")


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
    """Requests with the endpoint, token, patience and counter of a `HubFiles`."""

    def __init__(self, endpoint: str | None, token: str | None, progress_s: float, traffic: Traffic) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils._headers import build_hf_headers

        self.address = endpoint or constants.ENDPOINT
        self._headers = build_hf_headers(token=token)
        self._progress_s = progress_s
        self._traffic = traffic

    @property
    def _session(self) -> "LimitedClient":
        from pipeline_assets.corpus.readers.hub_session import limited_client

        return limited_client(self.address, self._progress_s)

    def page(self, url: str) -> tuple[Any, str | None]:
        """The JSON at an address, and the address of the page that follows.

        Raises:
            Garbled: it is no JSON; the next page is of another origin.
            RetryableError: it is longer than any answer of a hub.
        """
        with self.stream(url, self.address) as response:
            self.check(response)
            content = b"".join(self.body(response))
        with parsing_response():
            following = response.links.get("next", {}).get("url")
            if following is None:
                return json.loads(content), None
            address = response.url.join(following)
            if address.origin != response.url.origin:
                raise ValueError(f"its next page is of another origin, {address.scheme}://{address.netloc.decode()}")
            return json.loads(content), str(address)

    def locate(self, url: str) -> Located:
        """What the hub says of the file at an address, without its bytes; a redirect that names a file is an answer."""
        session = self._session
        response = session.head(url, headers=self._headers, follow_redirects=False)
        for _ in range(session.max_redirects):
            if response.next_request is None or "X-Linked-Etag" in response.headers:
                break
            response = session.send(response.next_request, follow_redirects=False)
        else:
            raise MalformedResponse(f"it redirects more than {session.max_redirects} times")
        self.check(response)
        headers = response.headers
        with parsing_response():
            etag = headers.get("X-Linked-Etag") or headers["ETag"]
            size = int(headers.get("X-Linked-Size") or headers["Content-Length"])
            location = str(response.url.join(headers.get("Location", "")))
        return Located(location, etag.removeprefix("W/").strip('"'), size)

    def stream(self, url: str, where: str, **headers: str) -> "AbstractContextManager[httpx2.Response]":
        """The answer to a GET, its body unread, and its status maybe a refusal.

        Args:
            where: what an error about the body's size names.
        """
        return self._session.stream("GET", url, headers=self._headers | headers, extensions={"where": where})

    def is_own(self, url: str) -> bool:
        """Whether an address is of the hub itself: its origin, the only one that gets the token."""
        import httpx2

        return httpx2.URL(url).origin == httpx2.URL(self.address).origin

    def body(self, response: "httpx2.Response") -> Iterator[bytes]:
        """Blocks of a body, as they arrive: of one that were being filled, a cut would lose all.

        Raises:
            RetryableError: it is longer than was asked for.
            httpx2.ReadTimeout: it drips.
        """
        for block in response.iter_raw():
            self._traffic.add(len(block))
            yield block

    def check(self, response: "httpx2.Response") -> None:
        """Raise the client's HfHubHTTPError for a refusal, by its status and headers.

        What its body says isn't used; a short one is read, so that the connection can be used again.
        """
        import httpx2
        from huggingface_hub import hf_raise_for_status

        if response.is_error and not response.is_closed:
            with suppress(httpx2.RequestError):
                list(itertools.islice(response.iter_raw(), _REFUSAL_BLOCKS))
        hf_raise_for_status(httpx2.Response(response.status_code, headers=response.headers, request=response.request))


class HubCall(NamedTuple):
    """What a call asks for, of the hub at an address, and how patiently: `tries` and `wait_s` as in `HubFiles`;
    whether it changes something there; and what `dataset` is the name of.
    """

    dataset: str
    revision: str
    address: str
    tries: int
    wait_s: float
    writes: bool = False
    repo_type: RepoType = "dataset"


class MalformedResponse(Exception):
    """An answer that is none of the hub's: cut by a proxy, or its login page."""


@contextmanager
def parsing_response() -> Iterator[None]:
    """Raise Garbled inside the context if the answer's JSON is none, or has other fields."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedResponse(_shown(error)) from None


def with_retries(call: Callable[[], T], asked: HubCall) -> T:
    """The call's result, tried again after what passes by itself: 408, 429, 5xx, a cut or refused connection.

    Raises:
        UsageError: there is no such dataset, model or revision, or the address is none.
        InputError: it doesn't pass, or not within the tries; says what to do.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    _check_address(asked.address)
    for attempt in itertools.count(1):
        try:
            return call()
        except HfHubHTTPError as error:
            status = error.response.status_code
            problem = "rate limited" if status == 429 else f"HTTP {status}"
            seconds, refusal = requested_wait_s(error.response.headers), _explain(error, status, asked)
        except httpx2.RequestError as error:
            seconds, problem = None, _shown(error)
            fix = "check the network and HF_ENDPOINT, then run the same command again"
            refusal = TransientError(f"{asked.dataset} can't be reached ({problem})", asked.address, fix)
        except (MalformedResponse, httpx2.InvalidURL) as error:  # of what the hub names: its own address was checked
            seconds, problem = None, f"an answer that can't be read ({error})"
            what = f"the answer for revision {asked.revision} can't be read ({error})"
            fix = "run the same command later; if it persists, check what answers at HF_ENDPOINT"
            refusal = TransientError(what, f"{asked.dataset} on {asked.address}", fix)
        if attempt == asked.tries or not isinstance(refusal, TransientError):
            raise refusal
        if seconds is None:
            seconds = min(60.0, asked.wait_s * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
        logger.warning("%s: %s; try %d of %d in %.1f s", asked.dataset, problem, attempt + 1, asked.tries, seconds)
        time.sleep(seconds)
    raise AssertionError("a call ends with its result, or is refused")


def _check_address(address: str) -> None:
    """Raise UsageError if no call could reach a hub by an address."""
    import httpx2

    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host or "@" in address:
        shown = re.sub(r"(?s)^(.*?://)?.*@", r"\1", address)  # without a password
        what = f"the hub's address is {shown!r}"
        fix = "write it as http://HOST or https://HOST, without a user, or unset it"
        raise UsageError(what, "HF_ENDPOINT", fix)


def _explain(error: Exception, status: int, asked: HubCall) -> InputError:
    """What a status comes to; a `TransientError` where it passes by itself."""
    from huggingface_hub import errors

    where, later = f"{asked.dataset} on {asked.address}", "run the same command later: it goes on"
    if status == 429:
        return TransientError(f"rate limited, after {asked.tries} tries", where, later)
    if status in RETRIED_STATUS:
        return TransientError(f"HTTP {status} after {asked.tries} tries", where, later)
    page = f"{asked.address}/{'datasets/' * (asked.repo_type == 'dataset')}{asked.dataset}"
    match error:
        case errors.GatedRepoError():
            fix = f"accept its terms on {page}, then set HF_TOKEN to your token"
            return DeniedError(f"the {asked.repo_type} is gated", where, fix)
        case errors.RevisionNotFoundError():
            is_model = asked.repo_type == "model"
            fix = f"run `corpusmill pin {asked.dataset}{' --model' * is_model}` for its head"
            fix += "" if is_model else ", with --recipe NAME to move the pin of a recipe"
            return UsageError(f"it has no revision {asked.revision}", where, fix)
        case errors.RemoteEntryNotFoundError():
            return InputError("the commit has no such file", where, "delete the cached listing, or pin a new commit")
    if asked.writes and status in (401, 403, 404):
        what = f"the token may not write to it (HTTP {status})"
        return RetryableError(what, where, "set HF_TOKEN to a token with write access to it, and check its name")
    if status in (401, 404):
        # Without the hub's word that there is none, what answered may be a proxy, or may not know the token.
        kind = UsageError if isinstance(error, errors.RepositoryNotFoundError) else RetryableError
        fix = "check its name; if it is private, set HF_TOKEN to a token that may read it"
        return kind(f"there is no such {asked.repo_type}, or it is private (HTTP {status})", where, fix)
    if status == 403:
        fix = f"accept its terms on {page} if it is gated, or set HF_TOKEN to a token with read access"
        return DeniedError("the token may not read it (HTTP 403)", where, fix)
    return RetryableError(f"HTTP {status} after {asked.tries} tries", where, later)


def _shown(error: Exception) -> str:
    """An error whose text may be a hub's: in one line, and not for long."""
    text = _UNPRINTABLE.sub(" ", f"{type(error).__name__}: {error}")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def requested_wait_s(headers: object) -> float | None:
    """Seconds that the hub asks to wait, by RateLimit or Retry-After; None if it doesn't say."""
    from huggingface_hub.utils._http import parse_ratelimit_headers

    try:
        limits = parse_ratelimit_headers(headers)  # type: ignore[arg-type]
        if limits is not None and limits.remaining == 0:
            return min(_LONGEST_WAIT_S, limits.reset_in_seconds)
        seconds = int(headers["Retry-After"])  # type: ignore[index]
    except (KeyError, ValueError):  # a date, which servers may send too, is not worth a clock
        return None
    return min(_LONGEST_WAIT_S, seconds) if seconds >= 0 else None
