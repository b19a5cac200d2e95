"""Files of a repo at one hub commit: listed once, fetched by exact path and byte range, never used unchecked.

Every call is retried the same way, every answer held against the listing, every byte kept in the cache under the hash
of its file, so that nothing is downloaded twice and a commit that was read once needs no network. What a hub says
becomes part of a path only where it can be nothing but a hash.
"""

import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pipeline_assets.corpus.readers import hub_http
from pipeline_assets.corpus.readers.hub_listing import (
    HubFile,
    is_digest,
    listed_file,
    read_cached_listing,
    write_listing,
)
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError, UsageError
from pipeline_assets.spine.files import blocks, file_sha256

logger = logging.getLogger("corpusmill")
F = TypeVar("F")
T = TypeVar("T")
_PARTIAL = ".part"
_NAMES: dict[hub_http.RepoType, tuple[re.Pattern[str], str]] = {
    "dataset": (re.compile(r"[\w.-]+/[\w.-]+"), "HuggingFaceFW/fineweb-edu"),
    "model": (re.compile(r"(\w[\w.-]*/)?\w[\w.-]*"), "unsloth/gpt-oss-120b"),  # the oldest ones have no owner
}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_ENTRIES = 1_000_000  # the hub advises fewer than 100,000 files
CACHE_FOLDER = "hub_cache"  # below a data root


@dataclass(frozen=True)
class Span:
    """Bytes [start, stop) of a hub file, in a local file."""

    start: int
    stop: int
    local: Path


@dataclass(frozen=True)
class HubFiles:
    """Reading access to datasets on a hub, or to its models: `dataset` is then the name of one.

    Attributes:
        cache: folder for listings and bytes; may be deleted at any time between builds.
        endpoint: address of the hub; None means the client's own default (HF_ENDPOINT, else the public hub).
        token: for gated and private datasets; None means the client's own (HF_TOKEN, or the saved login).
        tries: how often a call is tried in all.
        wait_s: first wait between tries, doubled each time up to 60 s, unless the hub says how long.
        progress_s: a body that brings less than `hub_session.LEAST_BYTES` in so many seconds is cut off.
        traffic: counts what comes over the wire.
        repo_type: what repos are read; those of models have a cache beside that of datasets.
    """

    cache: Path
    endpoint: str | None = None
    token: str | None = None
    tries: int = 6
    wait_s: float = 1.0
    progress_s: float = hub_http.PROGRESS_S
    traffic: hub_http.Traffic = field(default_factory=hub_http.Traffic, compare=False, repr=False)
    repo_type: hub_http.RepoType = "dataset"

    def for_models(self) -> "HubFiles":
        """The same for models, with the same counter."""
        return replace(self, repo_type="model")

    def resolve(self, dataset: str, revision: str = "main") -> str:
        """The commit, 40 hex digits, that a branch or tag points to now.

        Raises:
            UsageError: `dataset` is no name of one: owner/name, of a model maybe without owner.
        """
        check_name(dataset, self.repo_type)
        return self.call(dataset, revision, lambda: self._commit(dataset, revision))

    def list_files(self, dataset: str, commit: str) -> list[HubFile]:
        """Every file at the commit, sorted by path; asked once, then kept.

        Raises:
            InputError: `commit` is no commit, or the hub doesn't know it or doesn't show it.
        """
        if not _COMMIT.fullmatch(commit):
            raise InputError(f"{commit!r} is not a commit of 40 hex digits", dataset, "run `corpusmill pin` to get one")
        kept = self.listing_path(dataset, commit)
        files = read_cached_listing(kept)
        if files is None:
            files = self.call(dataset, commit, lambda: self._list(dataset, commit))
            durable.make_folder(kept.parent)
            write_listing(kept, files)
        return files

    def fetch(self, dataset: str, commit: str, file: HubFile, start: int = 0, stop: int | None = None) -> Span:
        """Fetch bytes [start, stop) of a file into the cache, by default the whole file.

        An interrupted download resumes. A whole file is checked against its hash in the listing. For a part, the hub
        must state that it belongs to the file with that hash; its own sha256 is stored and checked at every later use.

        Raises:
            InputError: the hub has other bytes under this name, or does not return them.
        """
        stop = file.size if stop is None else stop
        folder = self.bytes_folder(dataset, file.digest)
        durable.make_folder(folder)
        with _exclusive(folder):
            kept = _cached_span(folder, start, stop)
            if kept is None:
                partial = _partial(folder, start, stop)
                self.call(dataset, commit, lambda: self._download(dataset, commit, file, start, stop, partial))
                if (start, stop) == (0, file.size) and _file_digest([partial], file) != file.digest:
                    partial.unlink()
                    raise _not_as_listed(file.digest, f"{dataset}@{commit}:{file.path}")
                kept = folder / f"{start}-{stop}.{file_sha256(partial)}"
                durable.rename(partial, kept)
        return Span(start, stop, kept)

    def count_missing_bytes(self, dataset: str, file: HubFile, start: int, stop: int) -> int:
        """Count the bytes of [start, stop) that a fetch would request from the hub.

        A cached span with exactly these bounds, or the start of one from an interrupted download, is not requested.
        Only names and sizes are compared: damage shows when the bytes are used.
        """
        folder = self.bytes_folder(dataset, file.digest)
        going_on = _partial_name(start, stop)
        have = 0
        for path in folder.glob(f"{start}-{stop}.*"):
            size = path.stat().st_size
            if path.name == going_on or (path.suffix != _PARTIAL and size == stop - start):
                have = max(have, size)
        return max(0, stop - start - have)

    def _commit(self, dataset: str, revision: str) -> str:
        client = self.client()
        answer, _ = client.page(f"{self._api(client, dataset)}/revision/{quote(revision, safe='')}")
        with hub_http.parsing_response():
            sha = answer["sha"]
            if not _COMMIT.fullmatch(sha):
                raise ValueError(f"{sha!r} is no commit")
            return str(sha)

    def _list(self, dataset: str, commit: str) -> list[HubFile]:
        """List the files on all pages of the tree; a repeated path ends a cycle of pages."""
        client = self.client()
        files: list[HubFile] = []
        paths: set[str] = set()
        url: str | None = f"{self._api(client, dataset)}/tree/{commit}?recursive=true&expand=false"
        while url is not None:
            entries, url = client.page(url)
            with hub_http.parsing_response():
                if url is not None and not entries:
                    raise ValueError("an empty page names a next one")
                for entry in entries:
                    if entry["path"] in paths:
                        raise ValueError(f"{entry['path']!r} is listed twice")
                    paths.add(entry["path"])
                    if entry["type"] != "directory":
                        files.append(listed_file(entry))
            if len(paths) > _MAX_ENTRIES:
                what = f"the listing goes on after {_MAX_ENTRIES:,} files and folders"
                raise InputError(what, f"{dataset}@{commit} on {client.address}", "check what answers at HF_ENDPOINT")
        return sorted(files, key=lambda file: file.path)

    def _check_kept_listing(self, dataset: str, commit: str, file: HubFile) -> None:
        """Remove the cached listing, and raise, if the hub doesn't list the file as it does: it came damaged."""
        kept = self.listing_path(dataset, commit)
        if file in (read_cached_listing(kept) or ()) and file not in self._list(dataset, commit):
            kept.unlink()
            what = f"the cached listing of {dataset}@{commit} has {file.path} with {file.digest} of {file.size} bytes"
            raise RetryableError(f"{what}, the hub's has not", kept, "run again: the listing is asked for anew")

    def _download(self, dataset: str, commit: str, file: HubFile, start: int, stop: int, partial: Path) -> None:
        """One try: asks where the bytes are, checks that they are the listed file's, appends what is missing."""
        import httpx2

        durable.step("create", partial)
        partial.touch()
        first = start + partial.stat().st_size
        if first >= stop:
            return
        client = self.client()
        where = f"{dataset}@{commit}:{file.path}"
        place = f"datasets/{dataset}" if self.repo_type == "dataset" else dataset
        found = client.locate(f"{client.address}/{place}/resolve/{commit}/{quote(file.path)}")
        if found.etag != file.digest.partition(":")[2] or found.size != file.size:
            self._check_kept_listing(dataset, commit, file)
            listed = f"the listing says {file.digest} of {file.size} bytes"
            raise _changed(f"the hub has {found.etag} of {found.size} bytes, {listed}", where)
        with client.stream(found.location, where, Range=f"bytes={first}-{stop - 1}") as response:
            if response.status_code in (401, 403, 404) and not client.is_own(found.location):
                what = f"the storage that the hub names refuses the bytes (HTTP {response.status_code})"
                fix = "run the same command later: it goes on; if it persists, pin a new commit"
                raise TransientError(what, where, fix)
            client.check(response)
            if response.status_code != 206 and (first, stop) != (0, file.size):
                raise InputError("the hub ignores byte ranges", where, "use a hub that serves ranges")
            asked, served = f"bytes {first}-{stop - 1}/{file.size}", response.headers.get("Content-Range")
            if response.status_code == 206 and served not in (asked, asked.replace(f"/{file.size}", "/*")):
                raise _changed(f"the hub sends `{served}` for `{asked}`", where)
            with durable.naming_file(partial), open(partial, "ab") as output:
                try:
                    for block in client.body(response):
                        durable.step("append", partial)
                        output.write(block)
                except RetryableError:  # an answer that is longer than asked for is not used as far as it was
                    partial.unlink()
                    raise
                output.flush()
                durable.step("fsync", partial)
                os.fsync(output.fileno())
        if partial.stat().st_size < stop - start:
            raise httpx2.ReadError("the body ended early")

    def call(self, dataset: str, revision: str, call: Callable[[], T], *, writes: bool = False) -> T:
        """As `with_retries`, with this patience."""
        address, patience = self.client().address, (self.tries, self.wait_s)
        return hub_http.with_retries(
            call, hub_http.HubCall(dataset, revision, address, *patience, writes, self.repo_type)
        )

    def client(self) -> hub_http.HubClient:
        """Whose requests a call may make."""
        return hub_http.HubClient(self.endpoint, self.token, self.progress_s, self.traffic)

    def listing_path(self, dataset: str, commit: str) -> Path:
        """Where the cache keeps what a dataset holds at a commit."""
        return self._cache_folder(dataset) / "listings" / f"{commit}.json"

    def bytes_folder(self, dataset: str, digest: str) -> Path:
        """Where the cache keeps bytes of a file: spans named `<start>-<stop>.<their sha256>`, downloads `.part`.

        Raises:
            InputError: `digest` is none.
        """
        folder = self._cache_folder(dataset)
        if not is_digest(digest):
            raise InputError(f"{digest!r} is no hash of a file", dataset, "list the files at their commit again")
        return folder / "bytes" / digest.replace(":", "-")

    def _cache_folder(self, dataset: str) -> Path:
        """The cache of one dataset; no dataset's is called `models`, since each has `--` in its name."""
        check_name(dataset, self.repo_type)
        return (self.cache if self.repo_type == "dataset" else self.cache / "models") / dataset.replace("/", "--")

    def _api(self, client: hub_http.HubClient, dataset: str) -> str:
        return f"{client.address}/api/{self.repo_type}s/{dataset}"


def in_order(work: Callable[[F], T], items: Iterable[F], threads: int) -> Iterator[T]:
    """What is made of each item, in their order, several at a time; what hasn't begun when one fails never begins."""
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def check_file_hash(file: HubFile, spans: Sequence[Span], where: str) -> None:
    """Raise InputError if spans, all bytes of the file in order, lack its hash; the cache loses them then."""
    if _file_digest([span.local for span in spans], file) != file.digest:
        delete_spans(spans)
        raise _not_as_listed(file.digest, where)


def delete_spans(spans: Iterable[Span]) -> None:
    """Removes spans from the cache: damaged bytes must not be what the next try finds."""
    for span in spans:
        span.local.unlink(missing_ok=True)


def _not_as_listed(digest: str, where: str) -> InputError:
    what = f"downloaded bytes don't hash to {digest}, which the listing says"
    return RetryableError(what, where, "run again; if it persists, the hub's copy is damaged")


def _changed(what: str, where: str) -> InputError:
    return InputError(what, where, "the file changed under its name: pin a new commit")


def is_name(name: str, repo_type: hub_http.RepoType) -> bool:
    """Whether a dataset, or a model, may be called so on a hub."""
    return _NAMES[repo_type][0].fullmatch(name) is not None


def check_name(name: str, repo_type: hub_http.RepoType = "dataset") -> None:
    """Raise UsageError if a name is none of a dataset, or of a model."""
    if not is_name(name, repo_type):
        raise UsageError(f"this is no {repo_type}", name, f"write owner/name, such as {_NAMES[repo_type][1]}")


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """One process, and one thread of it, at a time: two builds may want the same bytes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _cached_span(folder: Path, start: int, stop: int) -> Path | None:
    """A cached span that is still what it was; a damaged one is removed."""
    for path in folder.glob(f"{start}-{stop}.*"):
        if path.suffix == _PARTIAL:
            continue
        if file_sha256(path) == path.suffix[1:]:
            return path
        logger.warning("%s: cached bytes are damaged; they are fetched again", path)
        path.unlink()
    return None


def _partial(folder: Path, start: int, stop: int) -> Path:
    """Where a download goes on; what another boot of the machine left may hold bytes never synced, and is removed."""
    partial = folder / _partial_name(start, stop)
    for other in folder.glob(f"{start}-{stop}.*{_PARTIAL}"):
        if other != partial:
            durable.remove(other)
    return partial


def _partial_name(start: int, stop: int) -> str:
    return f"{start}-{stop}.{durable.boot()}{_PARTIAL}"


def _file_digest(parts: Sequence[Path], file: HubFile) -> str:
    """Digest of the parts' bytes, of the kind that the listing has for the file."""
    kind = file.digest.partition(":")[0]
    digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    for part in parts:
        with open(part, "rb", buffering=0) as data:
            for block in blocks(data):
                digest.update(block)
    return f"{kind}:{digest.hexdigest()}"
