"""Access to the files of hub repositories at a commit, through a local cache.

Files are checked against the commit's listing. Listings and bytes are cached, so files that were read once need no
network. Local paths contain only hashes from a hub's responses, so a hub cannot choose a path.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pipeline_assets.corpus.readers import hub_cache, hub_http, hub_listing
from pipeline_assets.corpus.readers.hub_cache import Span
from pipeline_assets.corpus.readers.hub_errors import HubCall, RepoType
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse, convert_parse_errors
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.folder_lock import lock_folder

F = TypeVar("F")
T = TypeVar("T")
_NAME_RULES: dict[RepoType, tuple[re.Pattern[str], str]] = {
    "dataset": (re.compile(r"\w[\w.-]*/[\w.-]+"), "HuggingFaceFW/fineweb-edu"),
    "model": (re.compile(r"(\w[\w.-]*/)?\w[\w.-]*"), "unsloth/gpt-oss-120b"),  # the oldest models have no owner
}
_CHANGED_FIX = "the file changed on the hub: pin a new commit"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_ENTRIES = 1_000_000  # the hub advises fewer than 100,000 files
_MAX_PATH_CHARACTERS = 1024  # limit of S3; a million entries then need at most 1 GB
CACHE_FOLDER = "hub_cache"  # relative to a data root


@dataclass(frozen=True)
class HubFiles:
    """Read access to the datasets or models of a hub.

    Methods that send requests raise the errors of `hub_http.call_with_retries`.

    Attributes:
        cache: Folder for listings and bytes; may be deleted between builds.
        endpoint: URL of the hub; None uses the client's default (HF_ENDPOINT, else the public hub).
        token: Token for gated and private datasets; None uses the client's own (HF_TOKEN, or the saved login).
        tries: Maximum number of attempts per call.
        wait_s: Seconds before the second attempt, doubled each time up to 60 s, ± 25 %; the hub may set another wait.
        progress_s: An attempt fails if fewer than `hub_session.MIN_PROGRESS_BYTES` arrive in this many seconds.
        timeout_s: An attempt fails after this many seconds without any byte, capped at `hub_session.TIMEOUT_S`.
        traffic: Counter of received bytes.
        repo_type: Type of every repository that is named by a parameter `repo`.
    """

    cache: Path
    endpoint: str | None = None
    token: str | None = None
    tries: int = 6
    wait_s: float = 1.0
    progress_s: float = hub_http.PROGRESS_S
    timeout_s: float = math.inf
    traffic: hub_http.Traffic = field(default_factory=hub_http.Traffic, compare=False, repr=False)
    repo_type: RepoType = "dataset"

    def for_models(self) -> "HubFiles":
        """Return access to models instead of datasets, with the same traffic counter."""
        return replace(self, repo_type="model")

    def resolve(self, repo: str, revision: str = "main") -> str:
        """Return the commit (40 hex digits) that a branch or tag points to."""
        check_name(repo, self.repo_type)
        return self.call_with_retries(repo, revision, lambda: self._fetch_commit(repo, revision))

    def list_files(self, repo: str, commit: str) -> list[HubFile]:
        """List every file at a commit, sorted by path; the listing is cached.

        Raise InputError if `commit` is not 40 hex digits.
        """
        if not _COMMIT.fullmatch(commit):
            fix = "run `corpusmill pin` to get the commit"
            raise InputError(f"{commit!r} is not a commit of 40 hex digits", repo, fix)
        path = self.listing_path(repo, commit)
        files = hub_listing.read_cached_listing(path)
        if files is None:
            files = self.call_with_retries(repo, commit, lambda: self._fetch_listing_twice(repo, commit))
            durable.make_folder(path.parent)
            hub_listing.write_listing(path, files)
        return files

    def confirm_file(self, repo: str, commit: str, file: HubFile) -> None:
        """Raise InputError if the hub's hash or size of a file differs from the listing.

        If only the cached listing is wrong, delete the listing and raise RetryableError. No request is sent if the
        cache has a folder for the file's hash: `fetch` created it, and confirms the file before each download.
        """
        if not self.spans_folder(repo, file.digest).exists():
            self.call_with_retries(repo, commit, lambda: self._locate(repo, commit, file))

    def fetch(self, repo: str, commit: str, file: HubFile, start: int = 0, stop: int | None = None) -> Span:
        """Fetch bytes [start, stop) of a file into the cache, by default the whole file.

        An interrupted download resumes. If the hub's hash of the file differs from the listing, raise the errors of
        `confirm_file`. Raise RetryableError if a whole file has a wrong hash. Spans are checked at each later use.
        """
        stop = file.size if stop is None else stop
        folder = self.spans_folder(repo, file.digest)
        durable.make_folder(folder)
        with lock_folder(folder):
            path = hub_cache.find_span_file(folder, start, stop)
            if path is None:
                part = Span(start, stop, hub_cache.prepare_partial_path(folder, start, stop))
                self.call_with_retries(repo, commit, lambda: self._download(repo, commit, file, part))
                if (start, stop) == (0, file.size):
                    hub_cache.check_file_hash(file, [part], f"{repo}@{commit}:{file.path}")
                path = folder / f"{start}-{stop}.{file_sha256(part.path)}"
                durable.rename(part.path, path)
        return Span(start, stop, path)

    def count_missing_bytes(self, repo: str, file: HubFile, start: int, stop: int) -> int:
        """Count the bytes of [start, stop) that a fetch would request from the hub."""
        return hub_cache.count_missing_bytes(self.spans_folder(repo, file.digest), start, stop)

    def _fetch_commit(self, repo: str, revision: str) -> str:
        client = self.client()
        answer, _ = client.fetch_page(f"{self._api_url(client, repo)}/revision/{quote(revision, safe='')}")
        with convert_parse_errors():
            sha = answer["sha"]
            if not _COMMIT.fullmatch(sha):
                raise ValueError(f"{sha!r} is not a commit")
            return str(sha)

    def _fetch_listing_twice(self, repo: str, commit: str) -> list[HubFile]:
        files = self._fetch_listing(repo, commit)
        if self._fetch_listing(repo, commit) != files:  # a hub states no hash of a listing
            raise MalformedResponse("two listings of one commit differ")
        return files

    def _fetch_listing(self, repo: str, commit: str) -> list[HubFile]:
        """Fetch all pages of the hub's file tree; MalformedResponse for a repeated path."""
        client = self.client()
        found: dict[str, HubFile | None] = {}  # by path; None for a folder
        url: str | None = f"{self._api_url(client, repo)}/tree/{commit}?recursive=true&expand=false"
        while url is not None:
            entries, url = client.fetch_page(url)
            with convert_parse_errors():
                if url is not None and not entries:
                    raise ValueError("an empty page has a next page")
                for entry in entries:
                    if entry["path"] in found:
                        raise ValueError(f"{entry['path']!r} is listed twice")
                    if len(entry["path"]) > _MAX_PATH_CHARACTERS:
                        raise ValueError(f"a path has more than {_MAX_PATH_CHARACTERS:,} characters")
                    is_folder = entry["type"] == "directory"
                    found[entry["path"]] = None if is_folder else hub_listing.parse_tree_entry(entry)
            if len(found) > _MAX_ENTRIES:
                what = f"the listing has more than {_MAX_ENTRIES:,} files and folders"
                raise InputError(what, f"{repo}@{commit} on {client.address}", "check what answers at HF_ENDPOINT")
        return sorted(filter(None, found.values()), key=lambda file: file.path)

    def _discard_outdated_listing(self, repo: str, commit: str, file: HubFile) -> None:
        """Raise RetryableError if only the cached listing has `file`; delete the listing."""
        path = self.listing_path(repo, commit)
        if file in (hub_listing.read_cached_listing(path) or ()) and file not in self._fetch_listing(repo, commit):
            path.unlink()
            what = f"the cached listing of {repo}@{commit} has {file.path} with {file.digest} of {file.size} bytes"
            raise RetryableError(f"{what}, but the hub has not", path, "run again to fetch the listing")

    def _locate(self, repo: str, commit: str, file: HubFile) -> hub_http.FileLocation:
        """Locate a file's bytes; raise if the hub's hash or size differs from `file`."""
        client = self.client()
        repo_path = f"datasets/{repo}" if self.repo_type == "dataset" else repo
        located = client.locate(f"{client.address}/{repo_path}/resolve/{commit}/{quote(file.path)}")
        if located.etag != file.digest.partition(":")[2] or located.size != file.size:
            self._discard_outdated_listing(repo, commit, file)
            listed = f"the listing has {file.digest} of {file.size} bytes"
            what = f"the hub has {located.etag} of {located.size} bytes, {listed}"
            raise InputError(what, f"{repo}@{commit}:{file.path}", _CHANGED_FIX)
        return located

    def _download(self, repo: str, commit: str, file: HubFile, span: Span) -> None:
        """Append the missing bytes of a span to its local file; raise if `file` changed."""
        import httpx2

        partial, stop = span.path, span.stop
        durable.call_failpoint("create", partial)
        partial.touch()
        durable.share_file(partial)
        first = span.start + partial.stat().st_size
        if first >= stop:
            return
        client, where = self.client(), f"{repo}@{commit}:{file.path}"
        located = self._locate(repo, commit, file)
        with client.stream(located.url, where, Range=f"bytes={first}-{stop - 1}") as response:
            if response.status_code in (401, 403, 404) and not client.is_on_hub(located.url):
                what = f"the hub's storage refused the download (HTTP {response.status_code})"
                fix = "run the same command later to resume; if the error persists, pin a new commit"
                raise TransientError(what, where, fix)
            client.raise_for_status(response)
            if response.status_code != 206 and (first, stop) != (0, file.size):
                raise InputError("the hub ignores byte ranges", where, "use a hub that supports ranges")
            requested, served = f"bytes {first}-{stop - 1}/{file.size}", response.headers.get("Content-Range")
            if response.status_code == 206 and served not in (requested, requested.replace(f"/{file.size}", "/*")):
                raise InputError(f"the hub sent `{served}` for `{requested}`", where, _CHANGED_FIX)
            with durable.name_file_in_errors(partial), open(partial, "ab") as output:
                try:
                    for block in client.body_blocks(response):
                        durable.call_failpoint("append", partial)
                        output.write(block)
                except RetryableError:  # the response is longer than requested, so its first bytes are not used either
                    partial.unlink()
                    raise
                output.flush()
                durable.call_failpoint("fsync", partial)
                os.fsync(output.fileno())
        if span.start + partial.stat().st_size < stop:
            raise httpx2.ReadError("the body ended early")

    def call_with_retries(self, repo: str, revision: str, call: Callable[[], T], *, writes: bool = False) -> T:
        address = self.client().address
        hub_call = HubCall(repo, revision, address, self.tries, self.wait_s, writes, self.repo_type)
        return hub_http.call_with_retries(call, hub_call)

    def client(self) -> hub_http.HubClient:
        return hub_http.HubClient(self.endpoint, self.token, self.progress_s, self.timeout_s, self.traffic)

    def listing_path(self, repo: str, commit: str) -> Path:
        """Return the path of a commit's listing in the cache."""
        return self._cache_folder(repo) / "listings" / f"{commit}.json"

    def spans_folder(self, repo: str, digest: str) -> Path:
        """Return the cache folder of a file's spans; raise InputError for an invalid hash."""
        folder = self._cache_folder(repo)
        if not hub_listing.is_digest(digest):
            raise InputError(f"{digest!r} is not a file hash", repo, "list the files at their commit again")
        return folder / "bytes" / digest.replace(":", "-")

    def _cache_folder(self, repo: str) -> Path:
        """Return a repository's cache folder; for a model, it is in the folder `models`."""
        check_name(repo, self.repo_type)
        return (self.cache if self.repo_type == "dataset" else self.cache / "models") / repo.replace("/", "--")

    def _api_url(self, client: hub_http.HubClient, repo: str) -> str:
        return f"{client.address}/api/{self.repo_type}s/{repo}"


def map_in_order(work: Callable[[F], T], items: Iterable[F], threads: int) -> Iterator[T]:
    """Yield the results of `work` in the order of `items`, using several threads.

    After an error, or if the iterator is closed, `work` is called for no further items.
    """
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        yield from pool.map(work, items)  # when this iterator ends early, it cancels the waiting calls


def is_repo_name(name: str, repo_type: RepoType) -> bool:
    """Check whether a name is valid for a hub repository of this type."""
    return _NAME_RULES[repo_type][0].fullmatch(name) is not None


def check_name(name: str, repo_type: RepoType = "dataset") -> None:
    """Raise UsageError if a name is not valid for a repository of this type."""
    if name.removeprefix("hf://").startswith("buckets/"):
        raise UsageError("a bucket has no commits, so it cannot be pinned", name, "copy its files to a dataset")
    if not is_repo_name(name, repo_type):
        raise UsageError(f"not a {repo_type} name", name, f"write owner/name, such as {_NAME_RULES[repo_type][1]}")
