"""A small Hugging Face hub on loopback for the real clients.

Clients read the hub's address from `HF_ENDPOINT` on import. Like the real hub, this hub has two origins. The hub itself
answers API calls, sends small files, and redirects requests for large files (LFS) to the storage. If both had one
origin, a client would follow the redirect itself and miss the redirect's metadata.
"""

import errno
import os
import re
import secrets
import threading
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, quote, urlencode

from pipeline_assets.demo.loopback_files import is_folder
from pipeline_assets.demo.loopback_http import (
    Handler,
    HubError,
    HubRequest,
    Origin,
    OriginServer,
    Response,
    json_response,
)
from pipeline_assets.demo.loopback_repos import COMMITS_FOLDER, EPOCH, Repo, RepoFile, RepoReader
from pipeline_assets.demo.loopback_writes import OBJECTS_FOLDER, REPO_NAME_PATTERN, USER_NAME, HubWriter
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import require_folder

HUB_FOLDER = "hub"  # in a data root; served as a hub on loopback
_BYTE_RANGE_PATTERN = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class LoopbackHub:
    """Hub of the repos in `folder/datasets/<owner>/<name>` and `folder/models/…`.

    Each request reads the folder, without following links. A revision is `main` or a commit id, which is a hash of the
    commit's files. Earlier commits are kept until a squash. If a repo has a file `.gated`, reading its files requires a
    token. If it has a file `.private`, requests without a token cannot see the repo. Any token may read. Writing
    requires `writable` and the token `token`, which is random by default. Port 0 picks a free port.
    """

    page_size = 1000  # maximum items per response on a repo's tree
    handler: type[Handler] = Handler

    def __init__(self, folder: Path, port: int = 0, *, writable: bool = False, token: str | None = None) -> None:
        self.folder = folder
        self.token = token or f"hf_{secrets.token_hex(16)}"
        self.port = port
        self.endpoint = ""
        self._storage = ""
        self._reader = RepoReader()
        self._writer = HubWriter(folder, self._reader.read, self.token) if writable else None
        self._servers: list[OriginServer] = []

    def start(self) -> None:
        """Start the servers; raise InputError if the port or the folder cannot be used."""
        require_folder(self.folder, "choose a folder that contains datasets/<owner>/<name>/…")
        if self._writer is not None:
            self.uploads.mkdir(exist_ok=True)
            if not is_folder(self.folder, OBJECTS_FOLDER):
                raise UsageError("uploads would be stored behind a link", self.uploads, "remove it")
        try:
            self._servers.append(OriginServer("hub", self.port, self, self.handler))
        except (OSError, OverflowError) as error:
            is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            what = "the port is in use" if is_taken else f"the port is not available ({error})"
            raise InputError(what, f"127.0.0.1:{self.port}", "choose another port with --port") from error
        self._servers.append(OriginServer("storage", 0, self, self.handler))
        hub, storage = self._servers
        self.endpoint = f"http://127.0.0.1:{hub.server_port}"
        self._storage = f"http://localhost:{storage.server_port}"
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        while self._servers:
            self._servers.pop().close()

    @property
    def uploads(self) -> Path:
        return self.folder / OBJECTS_FOLDER

    def may_write(self, request: HubRequest) -> bool:
        return self._writer is not None and self._writer.may_write(request)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def client_environment(self) -> dict[str, str]:
        """Return environment variables that direct clients to this hub."""
        reading = {"HF_ENDPOINT": self.endpoint, "HF_HUB_OFFLINE": "0", "no_proxy": "127.0.0.1,localhost"}
        # Large files are sent by git-lfs, because this hub has no Xet storage.
        return reading if self._writer is None else {**reading, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": self.token}

    def commits(self) -> dict[str, str]:
        """Map repo names, "owner/name" or "models/owner/name", to their latest commits."""
        commits = {}
        for folder in sorted(self.folder.glob("datasets/*/*")) + sorted(self.folder.glob("models/*/*")):
            repo_type, owner, name = folder.parts[-3:]
            if (repo := self._find_repo(repo_type, owner, name)) is not None:
                commits[repo.name if repo_type == "datasets" else f"{repo_type}/{repo.name}"] = repo.commit
        return commits

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        try:
            return self._answer_storage(request) if origin == "storage" else self._answer_hub(request)
        except HubError as refused:
            return refused.response
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # not the body of a client
            return json_response({"error": "The request cannot be read"}, 400)
        except OSError as error:  # a file was removed or cannot be read
            return json_response({"error": f"{type(error).__name__} while reading the repo"}, 500)

    def _answer_hub(self, request: HubRequest) -> Response:
        match request.path_segments:
            case ["api", "whoami-v2"] if request.has_token:
                return self._whoami(request)
            case ["api", "whoami-v2"]:
                raise HubError(401, "", "Invalid username or password.")
            case ["api", "repos", "create"] if self._writer is not None:
                return self._writer.create_repo(request)
            case ["api", "validate-yaml"]:
                return json_response({"errors": [], "warnings": []})  # cards are not validated
            case ["datasets" as repo_type, owner, name, "info", "lfs", "objects", "batch"] if self._writer is not None:
                repo = self._require_repo(request, repo_type, owner, name.removesuffix(".git"))
                return self._writer.register_uploads(request, repo, self.endpoint, self._storage)
            case ["datasets", _, _, "info", "lfs", "verify"] if self._writer is not None:
                return self._writer.verify_upload(request)
            case ["api", "datasets" | "models" as repo_type, owner, name, *segments]:
                repo = self._require_repo(request, repo_type, owner, name)
                return self._answer_api(request, repo_type, repo, segments)
            case ["api", "datasets" | "models", _]:  # repos without an owner do not exist here
                raise _unknown_repo(request)
            case ["datasets" as repo_type, owner, name, "resolve", revision, *path]:
                return self._resolve(request, repo_type, owner, name, revision, "/".join(path))
            case [owner, name, "resolve", revision, *path]:
                return self._resolve(request, "models", owner, name, revision, "/".join(path))
        raise HubError(404, "", "No such address")

    def _answer_api(self, request: HubRequest, repo_type: str, repo: Repo, segments: list[str]) -> Response:
        writer = self._writer if repo_type == "datasets" else None  # models are read-only
        match request.method, segments:
            case "GET", [] | ["revision", _]:
                revised = self._history(repo_type, repo, segments[1] if segments else "main")[0]
                return json_response(revised.info(with_blobs=request.query.get("blobs") == "true"))
            case "GET", ["tree", revision, *folder]:
                revised = self._readable_repo(request, repo_type, repo, revision)
                return self._list_tree(request, revised, "/".join(folder).strip("/"))
            case "POST", ["paths-info", revision]:
                revised = self._readable_repo(request, repo_type, repo, revision)
                paths = parse_qs(request.body.decode(errors="replace")).get("paths", [])
                items = [revised.tree_item(path.strip("/")) for path in paths]  # in the requested order
                return json_response([item for item in items if item is not None])
            case "GET", ["refs"]:
                main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repo.commit}
                return json_response({"branches": [main], "converts": [], "tags": [], "pullRequests": []})
            case "GET", ["commits", revision]:
                dated = {"title": "", "message": "", "date": EPOCH, "authors": []}
                commits = self._history(repo_type, repo, revision)
                return json_response([{"id": earlier.commit, **dated} for earlier in commits])
            case "GET", ["lfs-files"] if writer is not None:
                return writer.list_large_files(request, repo)
            case "POST", ["super-squash", "main"] if writer is not None:
                return writer.squash(request, repo)
            case "POST", ["lfs-files", "batch"] if writer is not None:
                return writer.delete_large_files(request)
            case "PUT", ["settings"] if writer is not None:
                return writer.change_settings(request, repo)
            case "POST", ["preupload", "main"] if writer is not None:
                return writer.preupload(request, repo)
            case "POST", ["commit", "main"] if writer is not None:
                return writer.commit(request, repo)
        raise HubError(404, "", "No such address")

    def _whoami(self, request: HubRequest) -> Response:
        owners = [USER_NAME] if self._writer is None else self._writer.owners()
        orgs = [{"type": "org", "name": owner} for owner in owners if owner != USER_NAME]
        token = {"displayName": "token", "role": "write" if self.may_write(request) else "read"}
        auth = {"type": "access_token", "accessToken": token}
        return json_response({"type": "user", "name": USER_NAME, "orgs": orgs, "auth": auth})

    def _list_tree(self, request: HubRequest, repo: Repo, folder: str) -> Response:
        """Return one page of a folder's items, starting after the request's cursor."""
        paths = repo.paths_below(folder, recursive=request.query.get("recursive") == "true")
        if folder and not paths:
            raise HubError(404, "EntryNotFound", "No such folder", repo.commit)
        rest = [path for path in paths if path > request.query.get("cursor", "")]
        page = [repo.tree_item(path) for path in rest[: self.page_size]]
        if len(rest) <= self.page_size:
            return json_response(page)
        query = urlencode({**request.query, "cursor": rest[self.page_size - 1]})
        return json_response(page, headers={"Link": f'<{self.endpoint}{request.raw_path}?{query}>; rel="next"'})

    def _resolve(
        self, request: HubRequest, repo_type: str, owner: str, name: str, revision: str, path: str
    ) -> Response:
        """Return a small file; for an LFS file, a redirect with the file's metadata."""
        repo = self._readable_repo(request, repo_type, self._require_repo(request, repo_type, owner, name), revision)
        file = repo.files.get(path)
        if file is None:  # Clients cache the absence under the commit.
            raise HubError(404, "EntryNotFound", "Entry not found", repo.commit)
        if file.pointer_size is None:
            return _content_response(file, request.byte_range, repo.commit)
        location = f"{self._storage}/{repo_type}/{repo.name}/{file.sha256}/{quote(os.fsencode(path))}"
        linked = {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(file.size), "X-Repo-Commit": repo.commit}
        return Response(302, {**linked, "Location": location})

    def _answer_storage(self, request: HubRequest) -> Response:
        """Store an upload, or serve a large file by its digest; serving needs no token."""
        match request.method, request.path_segments:
            case "PUT", ["upload", sha256] if self._writer is not None:
                return self._writer.store_upload(request, sha256)
            case "GET", [repo_type, owner, name, sha256, *path]:
                repo = self._find_repo(repo_type, owner, name)
                for earlier in self._history(repo_type, repo, "main") if repo else ():
                    file = earlier.files.get("/".join(path))
                    if file and file.sha256 == sha256:
                        return _content_response(file, request.byte_range, earlier.commit)
        raise HubError(404, "", "No such object")

    def _require_repo(self, request: HubRequest, repo_type: str, owner: str, name: str) -> Repo:
        repo = self._find_repo(repo_type, owner, name)
        if repo is None or (repo.is_private and not request.has_token):
            raise _unknown_repo(request)
        return repo

    def _find_repo(self, repo_type: str, owner: str, name: str) -> Repo | None:
        is_valid = repo_type in ("datasets", "models") and all(map(REPO_NAME_PATTERN.fullmatch, (owner, name)))
        if not is_valid or not is_folder(self.folder, repo_type, owner, name):
            return None
        return self._reader.read(self.folder, f"{repo_type}/{owner}/{name}", f"{owner}/{name}")

    def _history(self, repo_type: str, repo: Repo, revision: str) -> list[Repo]:
        """Return a repo at a revision and at each earlier commit, newest first."""
        has_more = repo_type == "datasets" and is_folder(self.folder, COMMITS_FOLDER, *repo.name.split("/"))
        commits = self._reader.history(self.folder, repo) if has_more else [repo]
        for position, commit in enumerate(commits):
            if revision in ("main", commit.commit):
                return commits[position:]
        raise HubError(404, "RevisionNotFound", "No such revision")

    def _readable_repo(self, request: HubRequest, repo_type: str, repo: Repo, revision: str) -> Repo:
        """Return a repo as of a revision; raise HubError if the request may not read it."""
        if repo.is_gated and not request.has_token:
            raise HubError(403, "GatedRepo", "Access to this repo is restricted: request access, then pass a token")
        return self._history(repo_type, repo, revision)[0]


def _content_response(file: RepoFile, byte_range: str, commit: str) -> Response:
    """Return a file, a range of it, or status 416 for a range beyond its end."""
    headers = {"ETag": f'"{file.etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
    whole = Response(200, headers, file.source, 0, file.size)
    requested = _BYTE_RANGE_PATTERN.fullmatch(byte_range)
    if requested is None or requested[0] == "bytes=-":
        return whole  # invalid and multiple ranges are ignored (RFC 9110)
    first, last = requested.groups()
    start = int(first) if first else max(file.size - int(last), 0)
    end = min(int(last) + 1, file.size) if first and last else file.size
    if start >= file.size:
        return Response(416, {**headers, "Content-Range": f"bytes */{file.size}"})
    if start >= end:
        return whole
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    return Response(206, headers, file.source, start, end - start)


def _unknown_repo(request: HubRequest) -> HubError:
    """Return the error for a repo that does not exist, or is hidden from the request."""
    if request.has_token:
        return HubError(404, "RepoNotFound", "Repository not found")
    return HubError(401, "RepoNotFound", "Invalid username or password.")
