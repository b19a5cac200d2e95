"""Errors for the statuses of hub responses, and the waits that responses request."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, TransientError, UsageError

RepoType = Literal["dataset", "model"]
RETRIED_STATUSES = (408, 429, 500, 502, 503, 504)
_MAX_WAIT_S = 600.0  # longest wait that a hub may request; the public hub's rate limit windows have 300 s


class HubCall(NamedTuple):
    """Call to a hub: names for error messages, and the retry settings of `HubFiles`."""

    repo: str
    revision: str
    address: str
    tries: int
    wait_s: float
    writes: bool = False
    repo_type: RepoType = "dataset"


def status_error(error: Exception, status: int, hub_call: HubCall) -> InputError:
    """Convert an HTTP status to an error with a fix; `TransientError` if temporary."""
    from huggingface_hub import errors

    where, later = f"{hub_call.repo} on {hub_call.address}", "run the same command later to resume"
    if status == 429:
        return TransientError(f"rate limited after {hub_call.tries} attempts", where, later)
    if status in RETRIED_STATUSES:
        return TransientError(f"HTTP {status} after {hub_call.tries} attempts", where, later)
    page = f"{hub_call.address}/{'datasets/' * (hub_call.repo_type == 'dataset')}{hub_call.repo}"
    match error:
        case errors.GatedRepoError():
            fix = f"accept the terms on {page}, then set HF_TOKEN to your token"
            return DeniedError(f"the {hub_call.repo_type} is gated", where, fix)
        case errors.RevisionNotFoundError():
            is_model = hub_call.repo_type == "model"
            fix = f"run `corpusmill pin {hub_call.repo}{' --model' * is_model}` to get the latest commit"
            fix += "" if is_model else ", with --recipe NAME to update a recipe"
            return UsageError(f"revision {hub_call.revision} not found", where, fix)
        case errors.RemoteEntryNotFoundError():
            return InputError("file not found at the commit", where, "delete the cached listing, or pin a new commit")
    if hub_call.writes and status in (401, 403, 404):
        what = f"the token has no write access (HTTP {status})"
        return RetryableError(what, where, "set HF_TOKEN to a token with write access, and check the name")
    if status in (401, 404):
        # Unless the hub confirms that the repository is missing, a proxy may have answered, or the token is invalid.
        kind = UsageError if isinstance(error, errors.RepositoryNotFoundError) else RetryableError
        fix = "check the name; if it is private, set HF_TOKEN to a token with read access"
        return kind(f"{hub_call.repo_type} not found or private (HTTP {status})", where, fix)
    if status == 403:
        fix = f"accept the terms on {page} if it is gated, or set HF_TOKEN to a token with read access"
        return DeniedError("the token has no read access (HTTP 403)", where, fix)
    return RetryableError(f"HTTP {status} after {hub_call.tries} attempts", where, later)


def requested_wait_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait (at most 600 s) that headers request, or None if they do not."""
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

    try:
        limits = parse_ratelimit_headers(headers)
        if limits is not None and limits.remaining == 0:
            return min(_MAX_WAIT_S, limits.reset_in_seconds)
        seconds = int(headers["Retry-After"])
    except (KeyError, ValueError):  # Retry-After may also be an HTTP date; ignore that form.
        return None
    return min(_MAX_WAIT_S, seconds) if seconds >= 0 else None
