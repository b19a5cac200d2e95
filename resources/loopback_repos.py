"""Repos of the hub on loopback: folders, of which each file has the digests that a hub tells of it. They are made,
files sent, commits made, as the real clients ask for it.

What is sent as a large file (LFS) waits below `.objects` of the hub's folder until a commit names it. A commit is there
whole or not at all, to whoever asks this hub; what its author said of it is in the repo's `.commits.jsonl`.
"""

import base64
import binascii
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from resources.loopback_http import CHUNK_BYTES, Answer, Ask, Refused, json_answer

LFS_SUFFIXES = frozenset({".parquet", ".zst", ".gz", ".7z", ".bin", ".arrow", ".safetensors"})
LFS_ABOVE_BYTES = 1 << 20
# Clients want dates; one that never moves leaves every answer a function of the content.
EPOCH = "1970-01-01T00:00:00.000Z"
# A file written twice within one tick of the file system's clock keeps its mtime: a digest that fresh is not kept.
MTIME_TICK_NS = 50_000_000
USER = "loopback"
READ_ONLY = "hf_read"  # how a token begins that may only read
OBJECTS = ".objects"
_COMMITS = ".commits.jsonl"
_NEW = ".new"


def is_lfs(path: str, size: int) -> bool:
    """Whether git stores a pointer to the content alone."""
    return PurePosixPath(path).suffix.lower() in LFS_SUFFIXES or size > LFS_ABOVE_BYTES


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
    if not is_lfs(path, size):
        return RepoFile(path, source, size, sha256.hexdigest(), blob.hexdigest(), pointer_size=None)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256.hexdigest()}\nsize {size}\n".encode()
    oid = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer, usedforsecurity=False).hexdigest()
    return RepoFile(path, source, size, sha256.hexdigest(), oid, pointer_size=len(pointer))


def check_writer(ask: Ask) -> None:
    """
    Raises:
        Refused: who asks has no token, or one that may only read.
    """
    if not ask.has_token:
        raise Refused(401, "", "Invalid username or password.")
    if role_of(ask) != "write":
        raise Refused(403, "", "Forbidden: pass a token with write access")


def role_of(ask: Ask) -> str:
    """What a token may do."""
    return "read" if ask.authorization.removeprefix("Bearer ").startswith(READ_ONLY) else "write"


@dataclass(frozen=True)
class _Change:
    """What a commit does to one path: its content, or the object that it is, or nothing: it goes."""

    path: str
    content: bytes | None = None
    sha256: str | None = None


class HubWrites:
    """Writes below a hub's folder, one at a time.

    Args:
        read: a repo as it is now.
    """

    def __init__(self, folder: Path, read: Callable[[Path, str], Repo]) -> None:
        self._folder = folder
        self._read = read
        self._lock = threading.Lock()

    @property
    def objects(self) -> Path:
        """Where large files lie, by their sha256."""
        return self._folder / OBJECTS

    def owners(self) -> list[str]:
        """Who may own repos here: the user, and whoever has a folder."""
        return sorted({USER, *(folder.name for folder in self._folder.glob("datasets/*"))})

    def create(self, ask: Ask) -> Answer:
        """A new dataset repo, empty."""
        check_writer(ask)
        asked = json.loads(ask.body)
        owner = asked.get("organization") or USER
        name, folder = f"{owner}/{asked['name']}", self._folder / "datasets" / owner / str(asked["name"])
        if asked.get("type") != "dataset":
            raise Refused(400, "", "Only datasets are made here")
        if owner not in self.owners():
            raise Refused(403, "", f"You don't have the rights to create a dataset under the namespace {owner!r}")
        said = {"url": f"/datasets/{name}", "name": name, "id": name}
        with self._lock:
            if folder.exists():
                return json_answer({"error": "You already created this dataset repo", **said}, 409)
            folder.mkdir(parents=True)
            if asked.get("visibility") != "public":
                (folder / ".private").touch()
        return json_answer(said)

    def change_settings(self, ask: Ask, repo: Repo) -> Answer:
        """Whether a repo is gated, and who may see it."""
        check_writer(ask)
        asked, folder = json.loads(ask.body), self._repo_folder(repo)
        marks = {".gated": asked.get("gated"), ".private": asked.get("visibility", "public") == "private"}
        for mark, key in ((".gated", "gated"), (".private", "visibility")):
            if key in asked:
                (folder / mark).touch() if marks[mark] else (folder / mark).unlink(missing_ok=True)
        return json_answer(asked)

    def preupload(self, ask: Ask, repo: Repo) -> Answer:
        """How each file is to be sent, and which of that name is there."""
        check_writer(ask)
        files: list[dict[str, object]] = []
        for file in json.loads(ask.body)["files"]:
            mode = "lfs" if is_lfs(file["path"], file["size"]) else "regular"
            there = repo.files.get(file["path"])
            oid = {} if there is None else {"oid": there.etag}
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, **oid})
        return json_answer({"files": files})

    def offer(self, ask: Ask, repo: Repo, endpoint: str, storage: str) -> Answer:
        """Where large files go; those that are here needn't be sent (git-lfs, docs/api/batch.md)."""
        check_writer(ask)
        objects = []
        for asked in json.loads(ask.body)["objects"]:
            oid, actions = asked["oid"], {}
            if not (self.objects / _fit_name(oid)).exists():
                verify = f"{endpoint}/datasets/{repo.name}.git/info/lfs/verify"
                actions = {"actions": {"upload": {"href": f"{storage}/upload/{oid}"}, "verify": {"href": verify}}}
            objects.append({**asked, **actions})
        return json_answer({"transfer": "basic", "objects": objects})

    def keep(self, ask: Ask, sha256: str) -> Answer:
        """A large file that was sent, if it is the one that was announced."""
        if ask.upload is None or ask.upload.sha256 != sha256:
            raise Refused(400, "", "The bytes are of another sha256")
        os.replace(ask.upload.path, self.objects / _fit_name(sha256))
        return Answer(200)

    def confirm(self, ask: Ask) -> Answer:
        """Whether a large file arrived in its size."""
        asked = json.loads(ask.body)
        file = self.objects / _fit_name(asked["oid"])
        if not file.exists() or file.stat().st_size != asked["size"]:
            raise Refused(404, "", "No such object")
        return json_answer({})

    def commit(self, ask: Ask, repo: Repo) -> Answer:
        """A commit on the head, which must be the parent that it names, if it names one."""
        check_writer(ask)
        lines = [json.loads(line) for line in ask.body.splitlines() if line.strip()]
        header, folder = lines[0]["value"], self._repo_folder(repo)
        with self._lock:
            now = self._read(folder, repo.name)
            if header.get("parentCommit") not in (None, now.commit):
                raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
            changes = [self._change(line, now) for line in lines[1:]]
            for change in changes:
                self._apply(folder, change)
            oid = self._read(folder, repo.name).commit
            said = {"id": oid, "title": header["summary"], "message": header.get("description", "")}
            with open(folder / _COMMITS, "a", encoding="utf-8") as history:
                history.write(json.dumps(said) + "\n")
        url = f"/datasets/{repo.name}/commit/{oid}"
        return json_answer({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    def history(self, repo: Repo) -> list[dict[str, object]]:
        """Commits, the newest first; of content that lay there without one, the first."""
        try:
            said = (self._repo_folder(repo) / _COMMITS).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            said = []
        commits = [json.loads(line) for line in reversed(said)]
        if not commits or commits[0]["id"] != repo.commit:
            commits.insert(0, {"id": repo.commit, "title": "Content of the folder", "message": ""})
        return [{**one, "authors": [{"user": USER}], "date": EPOCH} for one in commits]

    def _change(self, line: Mapping[str, Any], repo: Repo) -> _Change:
        value = line["value"]
        path = _fit_path(value["path"])
        match line["key"]:
            case "file":
                try:
                    return _Change(path, content=base64.b64decode(value["content"], validate=True))
                except binascii.Error:
                    raise Refused(400, "", "The content is no base64") from None
            case "lfsFile" if (self.objects / _fit_name(value["oid"])).exists():
                return _Change(path, sha256=value["oid"])
            case "lfsFile":
                raise Refused(400, "", "The large file was never sent")
            case "deletedFile" if path in repo.files:
                return _Change(path)
            case "deletedFile":
                raise Refused(404, "EntryNotFound", "A file with this name doesn't exist")
        raise Refused(400, "", f"{line['key']!r} is nothing that a commit does here")

    def _apply(self, folder: Path, change: _Change) -> None:
        place = folder / change.path
        if change.content is None and change.sha256 is None:
            place.unlink()
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}{_NEW}")
        if change.content is not None:
            new.write_bytes(change.content)
        else:
            shutil.copyfile(self.objects / str(change.sha256), new)
        os.replace(new, place)

    def _repo_folder(self, repo: Repo) -> Path:
        return self._folder / "datasets" / repo.name


def check_card(ask: Ask) -> Answer:
    """What the hub finds wrong with a card before it is committed."""
    head, _, _ = json.loads(ask.body)["content"].partition("\n---\n")
    try:
        metadata = yaml.safe_load(head.removeprefix("---\n")) if head.startswith("---\n") else {}
        errors = [] if isinstance(metadata, dict) else [{"message": "metadata is no mapping"}]
    except yaml.YAMLError as error:
        errors = [{"message": str(error)}]
    return json_answer({"errors": errors, "warnings": []}, 400 if errors else 200)


def _fit_name(sha256: str) -> str:
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise Refused(400, "", "This is no sha256")
    return sha256


def _fit_path(path: str) -> str:
    parts: Sequence[str] = path.split("/")
    if any(not part or part.startswith(".") or "\\" in part for part in parts):
        raise Refused(400, "", f"{path!r} is no path of a repo")
    return path
