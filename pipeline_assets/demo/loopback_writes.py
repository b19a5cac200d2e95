"""Changes that the real clients make to the hub on loopback.

A large file (LFS) is uploaded to `.objects` in the hub's folder; a commit copies it to a repo. Commits are made one at
a time, but readers may see unfinished commits. The files of earlier commits are kept in `.commits`.
"""

import base64
import binascii
import hmac
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_assets.demo.loopback_files import CHUNK_BYTES, is_folder, open_file, open_folder, stat_file
from pipeline_assets.demo.loopback_http import HubError, HubRequest, Response, json_response
from pipeline_assets.demo.loopback_repos import ATTRIBUTES_FILE, COMMITS_FOLDER, EPOCH, LFS_SUFFIXES, Repo, is_lfs

USER_NAME = "loopback"
OBJECTS_FOLDER = ".objects"
_PUSHED_FOLDER = ".pushed"  # in a repo's folder: an empty file for each large file that was pushed to the repo
# The real hub's rules for each part of owner/name.
REPO_NAME_PATTERN = re.compile(r"(?!.*(--|\.\.|[.-]$|\.git$|\.ipynb$))[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", re.IGNORECASE)
_MAX_PART_BYTES = 200  # per path component; file systems allow 255, and a temporary name is longer
_MAX_PATH_LENGTH = 1024
_UNFINISHED_SUFFIX = ".new"
_Change = tuple[str, bytes | str | None]


class HubWriter:
    """Writer that changes a hub's folder for requests with the write token.

    `read_repo` is called with the hub's folder, a repo's path in that folder and the repo's name; it returns the repo.
    Methods raise HubError if they refuse a request.
    """

    def __init__(self, folder: Path, read_repo: Callable[[Path, str, str], Repo], token: str) -> None:
        self._folder = folder
        self._read_repo = read_repo
        self._token = token
        self._lock = threading.Lock()

    def may_write(self, request: HubRequest) -> bool:
        """Check whether a request has the token, or an address signed with the token."""
        signature = request.query.get("signature", "").encode()
        is_signed = hmac.compare_digest(signature, self._signature(request.path_segments[-1]))
        return is_signed or hmac.compare_digest(request.authorization.encode(), f"Bearer {self._token}".encode())

    def _signature(self, sha256: str) -> bytes:
        return hmac.digest(self._token.encode(), sha256.encode(), "sha256").hex().encode()

    def _check_writer(self, request: HubRequest) -> None:
        """Raise `HubError` if a request has no token, or if its token may only read."""
        if not request.has_token:
            raise HubError(401, "", "Invalid username or password.")
        if not self.may_write(request):
            raise HubError(403, "", "Forbidden: use the token that the hub printed when it started")

    def owners(self) -> list[str]:
        """List possible owners of repos: the user and the folders in `datasets`."""
        if not is_folder(self._folder, "datasets"):
            return [USER_NAME]
        with open_folder(self._folder, "datasets") as datasets, os.scandir(datasets) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return sorted({USER_NAME, *filter(REPO_NAME_PATTERN.fullmatch, names)})

    def create_repo(self, request: HubRequest) -> Response:
        self._check_writer(request)
        form = json.loads(request.body)
        owner, name = form.get("organization") or USER_NAME, form["name"]
        if form.get("type") != "dataset":
            raise HubError(400, "", "Only datasets can be created here")
        if not REPO_NAME_PATTERN.fullmatch(owner) or not REPO_NAME_PATTERN.fullmatch(name):
            raise HubError(400, "", f"{owner!r}/{name!r} is not a valid repo name")
        if owner not in self.owners():
            raise HubError(403, "", f"You don't have the rights to create a dataset under the namespace {owner!r}")
        created = {"url": f"/datasets/{owner}/{name}", "name": f"{owner}/{name}", "id": f"{owner}/{name}"}
        with self._lock, open_folder(self._folder, "datasets", owner, create=True) as folder:
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                return json_response({"error": "You already created this dataset repo", **created}, 409)
            lines = (f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n".encode() for suffix in sorted(LFS_SUFFIXES))
            with open_file(f"{name}/{ATTRIBUTES_FILE}", folder, os.O_WRONLY | os.O_CREAT) as attributes:
                attributes.writelines(lines)
            self._remove_history(owner, name)  # of a repo whose folder was removed by hand
            if form.get("visibility") != "public":
                open_file(f"{name}/.private", folder, os.O_WRONLY | os.O_CREAT).close()
        return json_response(created)

    def change_settings(self, request: HubRequest, repo: Repo) -> Response:
        self._check_writer(request)
        settings = json.loads(request.body)
        marks = {".gated": settings.get("gated"), ".private": settings.get("visibility", "public") == "private"}
        with self._repo_folder(repo) as folder:
            for mark, key in ((".gated", "gated"), (".private", "visibility")):
                if key in settings and marks[mark]:
                    open_file(mark, folder, os.O_WRONLY | os.O_CREAT).close()
                elif key in settings and stat_file(mark, folder):
                    os.unlink(mark, dir_fd=folder)
        return json_response(settings)

    def preupload(self, request: HubRequest, repo: Repo) -> Response:
        """Return the upload mode and current content id of each file in the request."""
        self._check_writer(request)
        files: list[dict[str, object]] = []
        for file in json.loads(request.body)["files"]:
            mode = "lfs" if is_lfs(file["path"], file["size"]) else "regular"
            current = repo.files.get(file["path"])
            oid = {} if current is None else {"oid": current.etag}
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, **oid})
        return json_response({"files": files})

    def register_uploads(self, request: HubRequest, repo: Repo, endpoint: str, storage: str) -> Response:
        """Record a push's large files; return upload addresses (git-lfs's batch API)."""
        self._check_writer(request)
        objects = []
        for entry in json.loads(request.body)["objects"]:
            oid, actions = _check_sha256(entry["oid"]), {}
            with self._repo_folder(repo, _PUSHED_FOLDER) as pushed:
                open_file(oid, pushed, os.O_WRONLY | os.O_CREAT).close()
            if self._stored_size(oid) is None:
                upload = f"{storage}/upload/{oid}?signature={self._signature(oid).decode()}"
                verify = f"{endpoint}/datasets/{repo.name}.git/info/lfs/verify"
                actions = {"actions": {"upload": {"href": upload}, "verify": {"href": verify}}}
            objects.append({**entry, **actions})
        return json_response({"transfer": "basic", "objects": objects})

    def store_upload(self, request: HubRequest, sha256: str) -> Response:
        """Store a large file if the sha256 of its content is the one in the upload URL."""
        if not self.may_write(request):
            raise HubError(403, "", "The address of this upload is not signed")
        if (upload := request.upload) is None or upload.sha256 != _check_sha256(sha256):
            raise HubError(400, "", "The content has another sha256")
        os.replace(upload.file_name, sha256, src_dir_fd=upload.folder_fd, dst_dir_fd=upload.folder_fd)
        return Response(200)

    def squash(self, request: HubRequest, repo: Repo) -> Response:
        """Remove the earlier commits of a repo; the latest commit keeps its id."""
        self._check_writer(request)
        self._remove_history(*repo.name.split("/"))
        return json_response({"commitId": repo.commit})

    def list_large_files(self, request: HubRequest, repo: Repo) -> Response:
        """Return the sha256 and size of each stored upload for a repo."""
        self._check_writer(request)
        with self._repo_folder(repo, _PUSHED_FOLDER) as pushed:
            sizes = {oid: self._stored_size(oid) for oid in sorted(os.listdir(pushed))}
        entries = [{"fileOid": oid, "oid": oid, "size": size} for oid, size in sizes.items() if size is not None]
        return json_response([{"filename": entry["oid"], "pushedAt": EPOCH, **entry} for entry in entries])

    def delete_large_files(self, request: HubRequest) -> Response:
        """Delete the uploads that a request names; copies in commits are kept."""
        self._check_writer(request)
        with open_folder(self._folder, OBJECTS_FOLDER) as objects:
            for oid in map(_check_sha256, json.loads(request.body)["deletions"]["sha"]):
                if stat_file(oid, objects):
                    os.unlink(oid, dir_fd=objects)
        return json_response({"success": True})

    def verify_upload(self, request: HubRequest) -> Response:
        """Check that a large file is stored with the expected size."""
        self._check_writer(request)
        entry = json.loads(request.body)
        if self._stored_size(entry["oid"]) != entry["size"]:
            raise HubError(404, "", "No such object")
        return json_response({})

    def _stored_size(self, oid: str) -> int | None:
        with open_folder(self._folder, OBJECTS_FOLDER) as objects:
            state = stat_file(_check_sha256(oid), objects)
        return None if state is None else state.st_size

    def commit(self, request: HubRequest, repo: Repo) -> Response:
        """Commit changes to a repo; fail if the request's parent commit is not the head."""
        self._check_writer(request)
        if "create_pr" in request.query:
            raise HubError(400, "", "This hub has no pull requests.")
        lines = [json.loads(line) for line in request.body.splitlines() if line.strip()]
        with self._lock:
            head = self._read_repo(self._folder, f"datasets/{repo.name}", repo.name)
            if lines[0]["value"].get("parentCommit") not in (None, head.commit):
                raise HubError(412, "", "A commit has happened since. Please refresh and try again.")
            changes = [self._parse_change(line, head) for line in lines[1:]]
            _check_tree(changes, head)
            self._keep_files(head)
            for path, content in changes:
                self._apply_change(repo, path, content)
            oid = self._read_repo(self._folder, f"datasets/{repo.name}", repo.name).commit
        url = f"/datasets/{repo.name}/commit/{oid}"
        return json_response({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    def _keep_files(self, head: Repo) -> None:
        """Link all files of a repo into `.commits`, before a commit changes them."""
        place = [COMMITS_FOLDER, *head.name.split("/")]
        with open_folder(self._folder, *place, create=True) as commits:
            number = f"{max(map(int, os.listdir(commits)), default=0) + 1:08}"
        for path in head.files:
            *folders, name = path.split("/")
            with (
                self._repo_folder(head, *folders) as source,
                open_folder(self._folder, *place, number, *folders, create=True) as target,
            ):
                os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def _remove_history(self, owner: str, name: str) -> None:
        with open_folder(self._folder, COMMITS_FOLDER, owner, create=True) as commits:
            shutil.rmtree(name, ignore_errors=True, dir_fd=commits)

    def _parse_change(self, line: Mapping[str, Any], repo: Repo) -> _Change:
        """Return a path and its content: bytes, a stored file's sha256, or None to delete."""
        value = line["value"]
        path = _check_path(value["path"])
        match line["key"]:
            case "file":
                try:
                    return path, base64.b64decode(value["content"], validate=True)
                except binascii.Error:
                    raise HubError(400, "", "The content is not base64") from None
            case "lfsFile" if self._stored_size(value["oid"]) is not None:
                return path, str(value["oid"])
            case "lfsFile":
                raise HubError(400, "", "The large file was never sent")
            case "deletedFile" if path in repo.files:
                return path, None
            case "deletedFile":
                raise HubError(404, "EntryNotFound", "A file with this name doesn't exist")
        raise HubError(400, "", f"{line['key']!r} is not a supported commit operation")

    def _apply_change(self, repo: Repo, path: str, content: bytes | str | None) -> None:
        *folders, name = path.split("/")
        with self._repo_folder(repo, *folders) as folder:
            if content is None:
                os.unlink(name, dir_fd=folder)
                return
            new = f".{name}{_UNFINISHED_SUFFIX}"
            with open_file(new, folder, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as output:
                if isinstance(content, bytes):
                    output.write(content)
                else:
                    with open_folder(self._folder, OBJECTS_FOLDER) as objects, open_file(content, objects) as stored:
                        shutil.copyfileobj(stored, output, CHUNK_BYTES)
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _repo_folder(self, repo: Repo, *folders: str) -> AbstractContextManager[int]:
        return open_folder(self._folder, "datasets", *repo.name.split("/"), *folders, create=bool(folders))


def _check_tree(changes: Sequence[_Change], repo: Repo) -> None:
    """Raise `HubError` if a commit would make a path both a file and a folder."""
    paths = set(repo.files) - {path for path, _ in changes} | {path for path, content in changes if content is not None}
    folders = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    if both := sorted(paths & folders):
        raise HubError(400, "", f"{both[0]!r} would be both file and folder")


def _check_sha256(sha256: str) -> str:
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise HubError(400, "", "Not a sha256")
    return sha256


def _check_path(path: str) -> str:
    parts: Sequence[str] = path.split("/")
    if len(path) > _MAX_PATH_LENGTH or any(
        not part
        or (part.startswith(".") and part != ATTRIBUTES_FILE)
        or "\\" in part
        or "\0" in part
        or len(part.encode()) > _MAX_PART_BYTES
        for part in parts
    ):
        raise HubError(400, "", f"{path!r} is not a valid path")
    return path
