"""A small Hugging Face hub on loopback that the real clients read from and write to.

Clients find it by `HF_ENDPOINT=http://127.0.0.1:<port>`, which they read when imported. Like the real hub it has two
origins: the hub answers the API and small files, and redirects to a storage origin for large ones (LFS). The two must
differ, or the client follows the redirect by itself and misses the metadata on it.
"""

import errno
import os
import re
import secrets
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self
from urllib.parse import parse_qs, quote, urlencode

import typer

from pipeline_assets.demo.loopback_files import is_folder
from pipeline_assets.demo.loopback_http import Answer, Handler, HubRequest, Origin, OriginServer, Refused, json_answer
from pipeline_assets.demo.loopback_repos import Repo, RepoFile, RepoReader
from pipeline_assets.demo.loopback_writes import OBJECTS, REPO_NAME, USER, HubWrites
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.visible import in_one_line

BYTE_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class LoopbackHub:
    """A running hub over folder/datasets/<owner>/<name> and folder/models/<owner>/<name>.

    A repo has one commit at a time, its content: that id and `main` reach it, any other revision is not found, and both
    move when a file changes. A file `.gated` in a repo asks for a token to list or read files, `.private` to see the
    repo at all. Any token may read; only `token` may write. Links below the folder are not followed.

    Args:
        folder: holds the repos; read anew at each request.
        port: of the hub, 0 for a free one; the storage origin always takes a free one.
        writable: whether datasets may be made and changed.
        token: the token that may write; by default a new one.

    Attributes:
        page_size: items on one page of a tree, at most.
        handler: what reads requests and sends answers.
    """

    page_size = 1000
    handler: type[Handler] = Handler

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        writable: bool = False,
        token: str | None = None,
    ) -> None:
        self.folder = folder
        self.token = token or f"hf_{secrets.token_hex(16)}"
        self.port = port
        self.endpoint = ""
        self._storage = ""
        self._reader = RepoReader()
        self._writes = HubWrites(folder, self._reader.read, self.token) if writable else None
        self._servers: list[OriginServer] = []

    def start(self) -> None:
        """Answers from now on; UsageError if the folder is missing, InputError if the port is taken."""
        if not self.folder.is_dir():
            what = "this is a file" if self.folder.exists() else "there is no such folder"
            raise UsageError(what, self.folder, "give a folder with datasets/<owner>/<name>/… inside")

        if self._writes is not None:
            self.uploads.mkdir(exist_ok=True)
            if not is_folder(self.folder, OBJECTS):
                raise UsageError("uploads would be stored behind a link", self.uploads, "remove it")
        try:
            self._servers.append(OriginServer("hub", self.port, self, self.handler))
        except (OSError, OverflowError) as error:
            is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            what = "the port is taken" if is_taken else f"the port can't be had ({error})"
            raise InputError(what, f"127.0.0.1:{self.port}", "give another one with --port") from error
        self._servers.append(OriginServer("storage", 0, self, self.handler))
        hub, storage = self._servers
        self.endpoint = f"http://127.0.0.1:{hub.server_port}"
        self._storage = f"http://localhost:{storage.server_port}"
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Closes both origins and every connection still open."""
        while self._servers:
            self._servers.pop().close()

    @property
    def uploads(self) -> Path:
        """Folder of large files that no commit names yet."""
        return self.folder / OBJECTS

    def may_write(self, ask: HubRequest) -> bool:
        """Check whether datasets may be changed here, and a request may change them."""
        return self._writes is not None and self._writes.may_write(ask)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def variables(self) -> dict[str, str]:
        """The environment in which clients find it: with no proxy in between, and where they are told to be offline."""
        reading = {"HF_ENDPOINT": self.endpoint, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1,localhost"}
        # Large files come by git-lfs: the content store that clients would rather send them to isn't here.
        return reading if self._writes is None else {**reading, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": self.token}

    def commits(self) -> dict[str, str]:
        """Commit by repo: "owner/name" for a dataset, "models/owner/name" for a model; sorted."""
        found = {}
        for folder in sorted(self.folder.glob("datasets/*/*")) + sorted(self.folder.glob("models/*/*")):
            kind, owner, name = folder.parts[-3:]
            if (repo := self._find(kind, owner, name)) is not None:
                found[repo.name if kind == "datasets" else f"{kind}/{repo.name}"] = repo.commit
        return found

    def answer(self, origin: Origin, ask: HubRequest) -> Answer:
        """The answer to one request; pure but for reading the folder."""
        try:
            return self._answer_storage(ask) if origin == "storage" else self._answer_hub(ask)
        except Refused as refused:
            return refused.answer
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # not a body of a client
            return json_answer({"error": "The request can't be read"}, 400)
        except OSError as error:  # a file went away or cannot be read
            return json_answer({"error": f"{type(error).__name__} while reading the repo"}, 500)

    def _answer_hub(self, ask: HubRequest) -> Answer:
        match ask.parts:
            case ["api", "whoami-v2"] if ask.has_token:
                return self._whoami(ask)
            case ["api", "whoami-v2"]:
                raise Refused(401, "", "Invalid username or password.")
            case ["api", "repos", "create"] if self._writes is not None:
                return self._writes.create(ask)
            case ["api", "validate-yaml"]:
                return json_answer({"errors": [], "warnings": []})  # of a card, which any text may be here
            case ["datasets" as kind, owner, name, "info", "lfs", "objects", "batch"] if self._writes is not None:
                repo = self._repo(ask, kind, owner, name.removesuffix(".git"))
                return self._writes.offer(ask, repo, self.endpoint, self._storage)
            case ["datasets", _, _, "info", "lfs", "verify"] if self._writes is not None:
                return self._writes.confirm(ask)
            case ["api", "datasets" | "models" as kind, owner, name, *rest]:
                return self._answer_api(ask, kind, self._repo(ask, kind, owner, name), rest)
            case ["api", "datasets" | "models", _]:  # a repo without an owner: there are none here
                raise _unknown_repo(ask)
            case ["datasets" as kind, owner, name, "resolve", revision, *path]:
                return self._resolve(ask, kind, self._repo(ask, kind, owner, name), revision, "/".join(path))
            case [owner, name, "resolve", revision, *path]:
                return self._resolve(ask, "models", self._repo(ask, "models", owner, name), revision, "/".join(path))
        raise Refused(404, "", "No such address")

    def _answer_api(self, ask: HubRequest, kind: str, repo: Repo, rest: list[str]) -> Answer:
        writes = self._writes if kind == "datasets" else None  # models are read, and that is all
        match ask.method, rest:
            case "GET", [] | ["revision", _]:
                _check_revision(repo, rest[1] if rest else "main")
                return json_answer(repo.info(blobs=ask.query.get("blobs") == "true"))
            case "GET", ["tree", revision, *folder]:
                _check_content(ask, repo, revision)
                return self._tree(ask, repo, "/".join(folder).strip("/"))
            case "POST", ["paths-info", revision]:
                _check_content(ask, repo, revision)
                return _paths_info(ask, repo)
            case "PUT", ["settings"] if writes is not None:
                return writes.change_settings(ask, repo)
            case "POST", ["preupload", "main"] if writes is not None:
                return writes.preupload(ask, repo)
            case "POST", ["commit", "main"] if writes is not None:
                return writes.commit(ask, repo)
        raise Refused(404, "", "No such address")

    def _whoami(self, ask: HubRequest) -> Answer:
        owners = [USER] if self._writes is None else self._writes.owners()
        orgs = [{"type": "org", "name": owner} for owner in owners if owner != USER]
        token = {"displayName": "token", "role": "write" if self.may_write(ask) else "read"}
        auth = {"type": "access_token", "accessToken": token}
        return json_answer({"type": "user", "name": USER, "orgs": orgs, "auth": auth})

    def _tree(self, ask: HubRequest, repo: Repo, folder: str) -> Answer:
        """One page of a folder, in path order; the cursor is the last path shown."""
        paths = repo.paths_below(folder, recursive=ask.query.get("recursive") == "true")
        if folder and not paths:
            raise Refused(404, "EntryNotFound", "No such folder", repo.commit)
        rest = [path for path in paths if path > ask.query.get("cursor", "")]
        page = [repo.tree_item(path) for path in rest[: self.page_size]]
        if len(rest) <= self.page_size:
            return json_answer(page)
        query = urlencode({**ask.query, "cursor": rest[self.page_size - 1]})
        return json_answer(page, headers={"Link": f'<{self.endpoint}{ask.raw_path}?{query}>; rel="next"'})

    def _resolve(self, ask: HubRequest, kind: str, repo: Repo, revision: str, path: str) -> Answer:
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

    def _answer_storage(self, ask: HubRequest) -> Answer:
        """Large files by digest, to whoever was given the address: no token gets here, as with a signed address."""
        match ask.method, ask.parts:
            case "PUT", ["upload", sha256] if self._writes is not None:
                return self._writes.keep(ask, sha256)
            case "GET", [kind, owner, name, sha256, *path]:
                repo = self._find(kind, owner, name)
                file = repo.files.get("/".join(path)) if repo else None
                if repo and file and file.sha256 == sha256:
                    return _content_answer(file, ask.byte_range, repo.commit)
        raise Refused(404, "", "No such object")

    def _repo(self, ask: HubRequest, kind: str, owner: str, name: str) -> Repo:
        repo = self._find(kind, owner, name)
        if repo is None or (repo.is_private and not ask.has_token):
            raise _unknown_repo(ask)
        return repo

    def _find(self, kind: str, owner: str, name: str) -> Repo | None:
        is_repo = kind in ("datasets", "models") and REPO_NAME.fullmatch(owner) and REPO_NAME.fullmatch(name)
        if not is_repo or not is_folder(self.folder, kind, owner, name):
            return None
        return self._reader.read(self.folder, f"{kind}/{owner}/{name}", f"{owner}/{name}")


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


def _unknown_repo(ask: HubRequest) -> Refused:
    """To strangers the hub does not tell a private repo from none at all."""
    if ask.has_token:
        return Refused(404, "RepoNotFound", "Repository not found")
    return Refused(401, "RepoNotFound", "Invalid username or password.")


def _check_content(ask: HubRequest, repo: Repo, revision: str) -> None:
    """What listing and reading ask for beyond the repo's information: a token where it is gated."""
    if repo.is_gated and not ask.has_token:
        raise Refused(403, "GatedRepo", "Access to this repo is restricted: ask for it, then give a token")
    _check_revision(repo, revision)


def _check_revision(repo: Repo, revision: str) -> None:
    if revision not in ("main", repo.commit):
        raise Refused(404, "RevisionNotFound", "No such revision")


def _paths_info(ask: HubRequest, repo: Repo) -> Answer:
    """Files and folders among the paths asked for, in that order; unknown ones are left out."""
    form = parse_qs(ask.body.decode(errors="replace"))
    items = [repo.tree_item(path.strip("/")) for path in form.get("paths", [])]
    return json_answer([item for item in items if item is not None])


def serve(
    folder: Annotated[Path, typer.Argument(help="Holds datasets/<owner>/<name>/… and models/<owner>/<name>/…")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 0,
    writable: Annotated[bool, typer.Option("--writable", help="Datasets can be made, and written to.")] = False,
    fault: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Example: corpusmill hub serve ./hub --port 8123"""
    if fault:
        raise UsageError("hub serve has no faults", "--fault", "use FaultyHub of tests/faulty_hub.py, which has them")
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    with LoopbackHub(folder, port, writable=writable) as hub:
        commits = hub.commits()
        if not commits and not writable:
            fix = "give a folder that holds datasets/<owner>/<name>/… or models/<owner>/<name>/…"
            raise UsageError("it holds no dataset and no model", folder, fix)
        print(f"hub: {hub.endpoint}")
        for repo, commit in commits.items():
            print(in_one_line(repo), commit)
        settings = f"HF_HUB_DISABLE_XET=1 HF_TOKEN={hub.token} " if writable else ""
        use = f"HF_ENDPOINT={hub.endpoint} HF_HUB_DISABLE_TELEMETRY=1 {settings}<command>"
        print(f"use: {use}; Ctrl-C ends it", flush=True)
        is_over.wait()
