"""A small Hugging Face hub on loopback that the real clients read from: for the demo and for tests.

Clients find it by `HF_ENDPOINT=http://127.0.0.1:<port>`, which they read when imported. Like the real hub it has two
origins: the hub answers the API and small files, and redirects to a storage origin for large ones (LFS). The two must
differ, or the client follows the redirect by itself and misses the metadata on it.
"""

import errno
import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, quote, urlencode

from pipeline_assets.corpus.spine.errors import InputError, UsageError
from resources.loopback_faults import Fault, Faults
from resources.loopback_http import CHUNK_BYTES, Answer, Ask, Origin, OriginServer, Refused, Request, json_answer

LFS_SUFFIXES = frozenset({".parquet", ".zst", ".gz", ".7z", ".bin", ".arrow"})
LFS_ABOVE_BYTES = 1 << 20
# A file written twice within one tick of the file system's clock keeps its mtime: a digest that fresh is not kept.
MTIME_TICK_NS = 50_000_000
# Clients want dates; one that never moves leaves every answer a function of the content.
EPOCH = "1970-01-01T00:00:00.000Z"
BYTE_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
REPO_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")


@dataclass(frozen=True)
class RepoFile:
    """One file of a repo. `oid` is git's: the blob's sha1, for LFS that of the pointer file which git stores."""

    path: str
    source: Path
    size: int
    sha256: str
    oid: str
    pointer_size: int | None  # None: not LFS, git stores the content itself

    @property
    def etag(self) -> str:
        """What the client takes the content by: sha256 for LFS, else git's blob id."""
        return self.oid if self.pointer_size is None else self.sha256


@dataclass(frozen=True)
class Repo:
    """A repo as it was when a request came in. Whatever is asked for is looked up in `files`, so no path leaves it."""

    name: str
    files: Mapping[str, RepoFile]
    is_private: bool
    is_gated: bool

    @property
    def commit(self) -> str:
        return _content_id(self.files.values())

    def paths_below(self, folder: str, recursive: bool) -> list[str]:
        """Files and folders in a folder ("" is the root), sorted; empty where there is no such folder."""
        start = f"{folder}/" if folder else ""
        found: set[str] = set()
        for path in self.files:
            if path.startswith(start):
                parts = path[len(start) :].split("/")
                depths = range(1, len(parts) + 1) if recursive else [1]
                found.update(start + "/".join(parts[:depth]) for depth in depths)
        return sorted(found)

    def tree_item(self, path: str, expand: bool) -> dict[str, object] | None:
        """What `tree` and `paths-info` say of a file or folder; None where there is neither."""
        file = self.files.get(path)
        if file is not None:
            item: dict[str, object] = {"type": "file", "path": path, "oid": file.oid, "size": file.size}
            if file.pointer_size is not None:
                item["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
        elif below := [file for file in self.files.values() if file.path.startswith(f"{path}/")]:
            item = {"type": "directory", "path": path, "oid": _content_id(below), "size": 0}
        else:
            return None
        if expand:  # the client reads these keys without looking whether they are there
            item["lastCommit"] = {"id": self.commit, "title": "Content of the folder", "date": EPOCH}
            item["securityFileStatus"] = {"status": "safe", "avScan": None, "pickleImportScan": None}
        return item

    def info(self, blobs: bool) -> dict[str, object]:
        """What `repo_info` says; sizes and digests of files only with `blobs`."""
        access = {"private": self.is_private, "gated": "auto" if self.is_gated else False, "disabled": False}
        dates = {"lastModified": EPOCH, "createdAt": EPOCH}
        siblings = [_sibling(file, blobs) for file in self.files.values()]
        counts = {"tags": [], "downloads": 0, "likes": 0}
        return {"id": self.name, "sha": self.commit, **access, **counts, **dates, "siblings": siblings}


def _sibling(file: RepoFile, blobs: bool) -> dict[str, object]:
    if not blobs:
        return {"rfilename": file.path}
    sibling: dict[str, object] = {"rfilename": file.path, "size": file.size, "blobId": file.oid}
    if file.pointer_size is not None:
        sibling["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
    return sibling


def _content_id(files: Iterable[RepoFile]) -> str:
    lines = sorted(os.fsencode(file.path) + b"\0" + file.sha256.encode() + b"\n" for file in files)
    return hashlib.sha1(b"".join(lines), usedforsecurity=False).hexdigest()


def repo_commit(folder: Path) -> str:
    r"""The commit under which a hub shows this repo folder: 40 hex digits, or clients do not cache by commit.

    sha1 over the lines "<path>\0<sha256 of the content, hex>\n", sorted: it depends on the files' paths and contents
    alone, never on time or place. Dot files and symbolic links are not part of a repo.
    """
    return RepoReader().read(folder, folder.name).commit


class RepoReader:
    """Reads repo folders, and the content of each file once: digests are kept by path, size and mtime."""

    def __init__(self) -> None:
        self._hashed: dict[tuple[Path, int, int], RepoFile] = {}
        self._lock = threading.Lock()

    def read(self, folder: Path, name: str) -> Repo:
        """The repo as it is now; OSError if a file goes away meanwhile."""
        with self._lock:
            files = {path: self._file(folder, path) for path in _repo_paths(folder)}
        return Repo(name, files, is_private=(folder / ".private").exists(), is_gated=(folder / ".gated").exists())

    def _file(self, folder: Path, path: str) -> RepoFile:
        source = folder / path
        state = source.stat()
        key = (source, state.st_size, state.st_mtime_ns)
        if key in self._hashed:
            return self._hashed[key]
        is_settled = abs(time.time_ns() - state.st_mtime_ns) > MTIME_TICK_NS
        file = _hash_file(path, source, state.st_size)
        if is_settled:
            self._hashed[key] = file
        return file


def _repo_paths(folder: Path) -> list[str]:
    """Sorted paths of a repo's files. Links are left out, so that nothing outside the folder is served."""
    sources: list[Path] = []
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        sources += [Path(place, name) for name in names if not name.startswith(".")]
    plain = [source for source in sources if source.is_file() and not source.is_symlink()]
    return sorted(source.relative_to(folder).as_posix() for source in plain)


def _hash_file(path: str, source: Path, size: int) -> RepoFile:
    """Both digests in one reading; pointer file as in https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md."""
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with source.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            sha256.update(chunk)
            blob.update(chunk)
    if source.suffix.lower() not in LFS_SUFFIXES and size <= LFS_ABOVE_BYTES:
        return RepoFile(path, source, size, sha256.hexdigest(), blob.hexdigest(), pointer_size=None)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256.hexdigest()}\nsize {size}\n".encode()
    oid = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer, usedforsecurity=False).hexdigest()
    return RepoFile(path, source, size, sha256.hexdigest(), oid, pointer_size=len(pointer))


class LoopbackHub:
    """A running hub over folder/datasets/<owner>/<name> and folder/models/<owner>/<name>.

    A repo has one commit at a time, its content: that id and `main` reach it, any other revision is not found, and both
    move when a file changes. A file `.gated` in a repo asks for a token to list or read files, `.private` to see the
    repo at all; any token will do.

    Args:
        folder: holds the repos; read anew at each request.
        port: of the hub, 0 for a free one; the storage origin always takes a free one.
        page_size: items on one page of a tree, at most.
        faults: what goes wrong from the start, on both origins.
    """

    def __init__(self, folder: Path, port: int = 0, page_size: int = 1000, faults: Sequence[Fault] = ()) -> None:
        self.folder = folder
        self.port = port
        self.page_size = page_size
        self.endpoint = ""
        self.requests: list[Request] = []
        self._storage = ""
        self._faults = Faults(faults)
        self._reader = RepoReader()
        self._servers: list[OriginServer] = []

    def start(self) -> None:
        """Answers from now on; UsageError if the folder is missing, InputError if the port is taken."""
        if not self.folder.is_dir():
            what = "this is a file" if self.folder.exists() else "there is no such folder"
            raise UsageError(what, self.folder, "give a folder with datasets/<owner>/<name>/… inside")

        def disturb(path: str, answer: Answer, is_head: bool) -> Answer:
            return self._faults.disturb(path, answer, is_head)  # those in force when it is asked

        try:
            self._servers.append(OriginServer("hub", self.port, self.answer, self.requests, disturb))
        except (OSError, OverflowError) as error:
            is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            what = "the port is taken" if is_taken else f"the port can't be had ({error})"
            raise InputError(what, f"127.0.0.1:{self.port}", "give another one with --port") from error
        self._servers.append(OriginServer("storage", 0, self.answer, self.requests, disturb))
        hub, storage = self._servers
        self.endpoint = f"http://127.0.0.1:{hub.server_port}"
        self._storage = f"http://localhost:{storage.server_port}"
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Closes both origins and every connection still open."""
        while self._servers:
            self._servers.pop().close()

    def inject(self, *faults: Fault) -> None:
        """From now on these faults in place of those before; none at all heals the hub."""
        self._faults = Faults(faults)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def variables(self) -> dict[str, str]:
        """The environment in which clients find it: with no proxy in between, and where they are told to be offline."""
        return {"HF_ENDPOINT": self.endpoint, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1,localhost"}

    def commits(self) -> dict[str, str]:
        """Commit by repo: "owner/name" for a dataset, "models/owner/name" for a model; sorted."""
        found = {}
        for folder in sorted(self.folder.glob("datasets/*/*")) + sorted(self.folder.glob("models/*/*")):
            kind, owner, name = folder.parts[-3:]
            if (repo := self._find(kind, owner, name)) is not None:
                found[repo.name if kind == "datasets" else f"{kind}/{repo.name}"] = repo.commit
        return found

    def answer(self, origin: Origin, ask: Ask) -> Answer:
        """The answer to one request; pure but for reading the folder."""
        try:
            return self._answer_storage(ask) if origin == "storage" else self._answer_hub(ask)
        except Refused as refused:
            return refused.answer
        except OSError as error:  # a file went away or cannot be read
            return json_answer({"error": f"{type(error).__name__} while reading the repo"}, 500)

    def _answer_hub(self, ask: Ask) -> Answer:
        match ask.parts:
            case ["api", "whoami-v2"] if ask.has_token:
                return json_answer({"type": "user", "name": "loopback", "orgs": [], "auth": {"type": "access_token"}})
            case ["api", "whoami-v2"]:
                raise Refused(401, "", "Invalid username or password.")
            case ["api", "datasets" | "models" as kind, owner, name, *rest]:
                return self._answer_api(ask, self._repo(ask, kind, owner, name), rest)
            case ["api", "datasets" | "models", _]:  # a repo without an owner: there are none here
                raise _unknown_repo(ask)
            case ["datasets" as kind, owner, name, "resolve", revision, *path]:
                return self._resolve(ask, kind, self._repo(ask, kind, owner, name), revision, "/".join(path))
            case [owner, name, "resolve", revision, *path]:
                return self._resolve(ask, "models", self._repo(ask, "models", owner, name), revision, "/".join(path))
        raise Refused(404, "", "No such address")

    def _answer_api(self, ask: Ask, repo: Repo, rest: list[str]) -> Answer:
        match ask.method, rest:
            case "GET", [] | ["revision", _]:
                _check_revision(repo, rest[1] if rest else "main")
                return json_answer(repo.info(blobs=ask.query.get("blobs") == "true"))
            case "GET", ["refs"]:
                main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repo.commit}
                return json_answer({"branches": [main], "converts": [], "tags": [], "pullRequests": []})
            case "GET", ["tree", revision, *folder]:
                _check_content(ask, repo, revision)
                return self._tree(ask, repo, "/".join(folder).strip("/"))
            case "POST", ["paths-info", revision]:
                _check_content(ask, repo, revision)
                return _paths_info(ask, repo)
        raise Refused(404, "", "No such address")

    def _tree(self, ask: Ask, repo: Repo, folder: str) -> Answer:
        """One page of a folder, in path order; the cursor is the last path shown."""
        paths = repo.paths_below(folder, recursive=ask.query.get("recursive") == "true")
        if folder and not paths:
            raise Refused(404, "EntryNotFound", "No such folder", repo.commit)
        limit = ask.query.get("limit", "")
        shown = min(int(limit), self.page_size) if re.fullmatch("[1-9][0-9]{0,8}", limit) else self.page_size
        rest = [path for path in paths if path > ask.query.get("cursor", "")]
        page = [repo.tree_item(path, expand=ask.query.get("expand") == "true") for path in rest[:shown]]
        if len(rest) <= shown:
            return json_answer(page)
        query = urlencode({**ask.query, "cursor": rest[shown - 1]})
        return json_answer(page, headers={"Link": f'<{self.endpoint}{ask.raw_path}?{query}>; rel="next"'})

    def _resolve(self, ask: Ask, kind: str, repo: Repo, revision: str, path: str) -> Answer:
        """A small file itself; for LFS a redirect that carries what the client wants to know of the content."""
        _check_content(ask, repo, revision)
        file = repo.files.get(path)
        if file is None:  # with the commit, under which clients cache the absence
            raise Refused(404, "EntryNotFound", "Entry not found", repo.commit)
        if file.pointer_size is None:
            return _content_answer(file, ask.byte_range, repo.commit)
        location = f"{self._storage}/{kind}/{repo.name}/{file.sha256}/{quote(os.fsencode(path))}"
        linked = {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(file.size), "X-Repo-Commit": repo.commit}
        return Answer(302, {**linked, "Location": location})

    def _answer_storage(self, ask: Ask) -> Answer:
        """Large files by digest, to whoever was given the address: no token gets here, as with a signed address."""
        match ask.method, ask.parts:
            case "GET", [kind, owner, name, sha256, *path]:
                repo = self._find(kind, owner, name)
                file = repo.files.get("/".join(path)) if repo else None
                if repo and file and file.sha256 == sha256:
                    return _content_answer(file, ask.byte_range, repo.commit)
        raise Refused(404, "", "No such object")

    def _repo(self, ask: Ask, kind: str, owner: str, name: str) -> Repo:
        repo = self._find(kind, owner, name)
        if repo is None or (repo.is_private and not ask.has_token):
            raise _unknown_repo(ask)
        return repo

    def _find(self, kind: str, owner: str, name: str) -> Repo | None:
        folder = self.folder / kind / owner / name
        is_repo = kind in ("datasets", "models") and REPO_NAME.fullmatch(owner) and REPO_NAME.fullmatch(name)
        return self._reader.read(folder, f"{owner}/{name}") if is_repo and folder.is_dir() else None


def _content_answer(file: RepoFile, byte_range: str, commit: str) -> Answer:
    """A file: 200, or 206 for one range, or 416 past the end. What is no single range is ignored (RFC 9110, 14.2)."""
    headers = {"ETag": f'"{file.etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
    whole = Answer(200, headers, file.source, 0, file.size)
    asked = BYTE_RANGE.fullmatch(byte_range)
    if asked is None or asked[0] == "bytes=-":
        return whole
    first, last = asked[1], asked[2]
    start = int(first) if first else max(file.size - int(last), 0)
    end = min(int(last) + 1, file.size) if first and last else file.size
    if start >= file.size:
        return Answer(416, {**headers, "Content-Range": f"bytes */{file.size}"})
    if start >= end:
        return whole
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    return Answer(206, headers, file.source, start, end - start)


def _unknown_repo(ask: Ask) -> Refused:
    """To strangers the hub does not tell a private repo from none at all."""
    if ask.has_token:
        return Refused(404, "RepoNotFound", "Repository not found")
    return Refused(401, "RepoNotFound", "Invalid username or password.")


def _check_content(ask: Ask, repo: Repo, revision: str) -> None:
    """What listing and reading ask for beyond the repo's information: a token where it is gated."""
    if repo.is_gated and not ask.has_token:
        raise Refused(403, "GatedRepo", "Access to this repo is restricted: ask for it, then give a token")
    _check_revision(repo, revision)


def _check_revision(repo: Repo, revision: str) -> None:
    if revision not in ("main", repo.commit):
        raise Refused(404, "RevisionNotFound", "No such revision")


def _paths_info(ask: Ask, repo: Repo) -> Answer:
    """Files and folders among the paths asked for, in that order; unknown ones are left out."""
    form = parse_qs(ask.body.decode(errors="replace"))
    expand = form.get("expand") == ["true"]
    items = [repo.tree_item(path.strip("/"), expand) for path in form.get("paths", [])]
    return json_answer([item for item in items if item is not None])


def serve(folder: Path, port: int, faults: Sequence[Fault] = ()) -> None:
    """Serves a folder until SIGINT or SIGTERM; says on stdout where it is, which commits it has, how to use it.

    Raises:
        UsageError: it holds no dataset.
    """
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    with LoopbackHub(folder, port, faults=faults) as hub:
        commits = hub.commits()
        if not commits:
            raise UsageError("it holds no dataset", folder, "give a folder that holds datasets/<owner>/<name>/…")
        print(f"hub: {hub.endpoint}")
        for repo, commit in commits.items():
            print(repo, commit)
        print(f"use: HF_ENDPOINT={hub.endpoint} HF_HUB_DISABLE_TELEMETRY=1 <command>; Ctrl-C ends it", flush=True)
        is_over.wait()
