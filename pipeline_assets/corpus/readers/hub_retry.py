"""Calls to a hub, tried again after what passes by itself; what doesn't pass is one line that says what to do."""

import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from pipeline_assets.corpus.spine.errors import InputError, RetryableError, TransientError, UsageError

logger = logging.getLogger("corpusmill")
T = TypeVar("T")
_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)
_LONGEST_WAIT_S = 600.0  # that a hub may ask for: the public one counts in windows of 300 s
_SHOWN_CHARACTERS = 200
_UNPRINTABLE = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff]+")


@dataclass(frozen=True)
class HubCall:
    """What a call asks for, where, and how patiently.

    Attributes:
        address: of the hub.
        tries: how often the call is tried in all.
        wait_s: first wait between tries, doubled each time up to 60 s, unless the hub says how long.
    """

    dataset: str
    revision: str
    address: str
    tries: int
    wait_s: float


class Garbled(Exception):
    """An answer that is none of the hub's: cut by a proxy, or its login page."""


@contextmanager
def reading_answer() -> Iterator[None]:
    """
    Raises:
        Garbled: the answer's JSON is none, or has other fields.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Garbled(_shown(error)) from None


def with_retries(call: Callable[[], T], asked: HubCall) -> T:
    """The call's result, tried again after what passes by itself: 408, 429, 5xx, a cut or refused connection.

    Raises:
        UsageError: there is no such dataset or revision, or the address is none.
        InputError: it doesn't pass, or not within the tries; says what to do.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    _check_address(asked.address)
    for attempt in range(1, asked.tries + 1):
        try:
            return call()
        except HfHubHTTPError as error:
            status = error.response.status_code if error.response is not None else 0
            if status not in _RETRIED_STATUS or attempt == asked.tries:
                raise _explain(error, status, asked) from None
            seconds = _asked_wait_s(error.response.headers)
            problem = "rate limited" if status == 429 else f"HTTP {status}"
        except httpx2.RequestError as error:
            if attempt == asked.tries:
                raise _unreachable(error, asked) from None
            seconds, problem = None, _shown(error)
        except (Garbled, httpx2.InvalidURL) as error:  # of what the hub names: its own address was checked
            if attempt == asked.tries:
                what = f"the answer for revision {asked.revision} can't be read ({error})"
                fix = "run the same command later; if it persists, check what answers at HF_ENDPOINT"
                raise TransientError(what, f"{asked.dataset} on {asked.address}", fix) from None
            seconds, problem = None, f"an answer that can't be read ({error})"
        seconds = (
            min(60.0, asked.wait_s * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25) if seconds is None else seconds
        )
        logger.warning("%s: %s; try %d of %d in %.1f s", asked.dataset, problem, attempt + 1, asked.tries, seconds)
        time.sleep(seconds)
    raise AssertionError("the last try returns or raises")


def _check_address(address: str) -> None:
    """
    Raises:
        UsageError: no call could reach a hub by it.
    """
    import httpx2

    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host or "@" in address:
        shown = re.sub(r"(?s)^(.*?://)?.*@", r"\1", address)  # what is left of a password that no client would find
        what = f"the hub's address is {shown!r}"
        raise UsageError(what, "HF_ENDPOINT", "write it as http://HOST or https://HOST, or unset it")


def _explain(error: Exception, status: int, asked: HubCall) -> InputError:
    from huggingface_hub.errors import (
        GatedRepoError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"{asked.dataset} on {asked.address}"
    match error:
        case GatedRepoError():
            return RetryableError(
                "the dataset is gated", where, "accept its terms on its page, then set HF_TOKEN to your token"
            )
        case RevisionNotFoundError():
            return UsageError(
                f"it has no revision {asked.revision}", where, f"run `corpusmill pin {asked.dataset}` for its head"
            )
        case RemoteEntryNotFoundError():
            return InputError("the commit has no such file", where, "delete the cached listing, or pin a new commit")
    if status == 429:
        return TransientError(
            f"rate limited, after {asked.tries} tries", where, "run the same command later: it goes on"
        )
    if status in (401, 404):
        # Without the hub's word that there is none, what answered may be a proxy, or may not know the token.
        kind = UsageError if isinstance(error, RepositoryNotFoundError) else RetryableError
        fix = "check its name; if it is private, set HF_TOKEN to a token that may read it"
        return kind(f"there is no such dataset, or it is private (HTTP {status})", where, fix)
    if status == 403:
        return RetryableError("the token may not read it (HTTP 403)", where, "set HF_TOKEN to a token with read access")
    kind = TransientError if status in _RETRIED_STATUS else RetryableError
    return kind(f"HTTP {status} after {asked.tries} tries", where, "run the same command later: it goes on")


def _unreachable(error: Exception, asked: HubCall) -> InputError:
    fix = "check the network and HF_ENDPOINT, then run the same command again"
    return TransientError(f"{asked.dataset} can't be reached ({_shown(error)})", asked.address, fix)


def _shown(error: Exception) -> str:
    """An error whose text may be a hub's: in one line, and not for long."""
    text = _UNPRINTABLE.sub(" ", f"{type(error).__name__}: {error}")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def not_as_listed(digest: str, where: str) -> InputError:
    what = f"downloaded bytes don't hash to {digest}, which the listing says"
    return RetryableError(what, where, "run again; if it persists, the hub's copy is damaged")


def changed_under_its_name(what: str, where: str) -> InputError:
    return InputError(what, where, "the file changed under its name: pin a new commit")


def refused_by_storage(status: int, where: str) -> InputError:
    what = f"the storage that the hub names refuses the bytes (HTTP {status})"
    return TransientError(what, where, "run the same command later: it goes on; if it persists, pin a new commit")


def _asked_wait_s(headers: object) -> float | None:
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
