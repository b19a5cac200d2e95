"""Repos of the loopback hub: folders whose files have git and LFS digests."""

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline_assets.demo.loopback_files import CHUNK_BYTES, FileInFolder, open_folder, stat_file

LFS_SUFFIXES = frozenset({".parquet", ".zst", ".gz", ".7z", ".bin", ".arrow", ".safetensors"})
LFS_ABOVE_BYTES = 1 << 20
ATTRIBUTES_FILE = ".gitattributes"  # the only hidden file that counts as a repo's file; a hub writes it on creation
COMMITS_FOLDER = ".commits"  # in a hub's folder: OWNER/NAME/NUMBER, the files of each commit that a client replaced
# Clients require dates; a fixed one keeps responses a function of the content.
EPOCH = "1970-01-01T00:00:00.000Z"
# Two writes within a tick of the file system's clock share an mtime, so a digest that recent is not cached.
MTIME_TICK_NS = 50_000_000


def is_lfs(path: str, size: int) -> bool:
    """Check whether git stores only a pointer to a file's content."""
    return PurePosixPath(path).suffix.lower() in LFS_SUFFIXES or size > LFS_ABOVE_BYTES


@dataclass(frozen=True)
class RepoFile:
    """File of a repo.

    `oid` is git's blob id of the file, or of its pointer if the file is in LFS.
    """

    path: str
    source: FileInFolder
    size: int
    sha256: str
    oid: str
    pointer_size: int | None  # None if not LFS

    @property
    def etag(self) -> str:
        """Content id for the caches of clients: sha256 for LFS, else git's blob id."""
        return self.oid if self.pointer_size is None else self.sha256

    def digests(self) -> dict[str, object]:
        """Return size and digests in the format of `repo_info`."""
        lfs = {"lfs": {"sha256": self.sha256, "size": self.size, "pointerSize": self.pointer_size}}
        return {"size": self.size, "blobId": self.oid} | (lfs if self.pointer_size is not None else {})


@dataclass(frozen=True)
class Repo:
    """Repo as of a commit; `files` maps paths to files."""

    name: str
    files: Mapping[str, RepoFile]
    is_private: bool
    is_gated: bool

    @property
    def commit(self) -> str:
        return _commit_id(self.files.values())

    def paths_below(self, folder: str, recursive: bool) -> list[str]:
        """List the paths of a folder's files and folders, sorted; "" is the root."""
        start = f"{folder}/" if folder else ""
        paths: set[str] = set()
        for path in self.files:
            if path.startswith(start):
                parts = path[len(start) :].split("/")
                depths = range(1, len(parts) + 1) if recursive else [1]
                paths.update(start + "/".join(parts[:depth]) for depth in depths)
        return sorted(paths)

    def tree_item(self, path: str) -> dict[str, object] | None:
        """Return the `tree` entry of a file or folder; None if missing."""
        file = self.files.get(path)
        if file is not None:
            lfs = {"lfs": {"oid": file.sha256, "size": file.size, "pointerSize": file.pointer_size}}
            item = {"type": "file", "path": path, "oid": file.oid, "size": file.size}
            return item | (lfs if file.pointer_size is not None else {})
        contents = [file for file in self.files.values() if file.path.startswith(f"{path}/")]
        return {"type": "directory", "path": path, "oid": _commit_id(contents), "size": 0} if contents else None

    def info(self, with_blobs: bool) -> dict[str, object]:
        """Return the `repo_info` response; `with_blobs` adds sizes and digests of files."""
        access = {"private": self.is_private, "gated": "auto" if self.is_gated else False, "disabled": False}
        dates = {"lastModified": EPOCH, "createdAt": EPOCH}
        siblings = [{"rfilename": file.path, **(file.digests() if with_blobs else {})} for file in self.files.values()]
        counts = {"tags": [], "downloads": 0, "likes": 0}
        return {"id": self.name, "sha": self.commit, **access, **counts, **dates, "siblings": siblings}


def _commit_id(files: Iterable[RepoFile]) -> str:
    r"""Return the sha1 over the sorted lines "<path>\0<sha256 of the content, hex>\n"."""
    lines = sorted(os.fsencode(file.path) + b"\0" + file.sha256.encode() + b"\n" for file in files)
    return hashlib.sha1(b"".join(lines), usedforsecurity=False).hexdigest()


class RepoReader:
    """Reader of repo folders, which caches digests of files by path, size and mtime."""

    def __init__(self) -> None:
        self._hashed: dict[tuple[FileInFolder, int, int], RepoFile] = {}
        self._lock = threading.Lock()

    def read(self, root: Path, repo_path: str, name: str) -> Repo:
        """Read the current state of a repo at `repo_path` below the hub's folder `root`."""
        with self._lock, open_folder(root, *filter(None, repo_path.split("/"))) as folder:
            statuses = sorted(_repo_files(folder))
            files = {path: self._read_file(root, repo_path, path, status) for path, status in statuses}
            marks = set(os.listdir(folder))
        return Repo(name, files, is_private=".private" in marks, is_gated=".gated" in marks)

    def history(self, root: Path, head: Repo) -> list[Repo]:
        """Read a dataset as of each commit, the latest first."""
        with open_folder(root, COMMITS_FOLDER, *head.name.split("/")) as commits:
            numbers = sorted(os.listdir(commits), reverse=True)
        earlier = [self.read(root, f"{COMMITS_FOLDER}/{head.name}/{number}", head.name) for number in numbers]
        return [*{repo.commit: repo for repo in [head, *earlier]}.values()]

    def _read_file(self, root: Path, repo_path: str, path: str, status: os.stat_result) -> RepoFile:
        source = FileInFolder(root, f"{repo_path}/{path}" if repo_path else path)
        key = (source, status.st_size, status.st_mtime_ns)
        if key in self._hashed:
            return self._hashed[key]
        is_stable = abs(time.time_ns() - status.st_mtime_ns) > MTIME_TICK_NS
        file = _hash_file(path, source, status.st_size)
        if is_stable:
            self._hashed[key] = file
        return file


def _repo_files(folder_fd: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and status of each regular file of a repo.

    `folder_fd` is the repo's open descriptor. Hidden files and folders are skipped, except `.gitattributes`.
    """
    for place, folders, names, place_fd in os.fwalk(".", follow_symlinks=False, dir_fd=folder_fd):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if (name == ATTRIBUTES_FILE or not name.startswith(".")) and (state := stat_file(name, place_fd)):
                yield PurePosixPath(place, name).as_posix(), state


def _hash_file(path: str, source: FileInFolder, size: int) -> RepoFile:
    """Compute the sha256 and the git blob id of a file.

    The blob id of an LFS file is the id of its pointer: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md.
    """
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with source.open() as content:
        while chunk := content.read(CHUNK_BYTES):
            sha256.update(chunk)
            blob.update(chunk)
    if not is_lfs(path, size):
        return RepoFile(path, source, size, sha256.hexdigest(), blob.hexdigest(), pointer_size=None)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256.hexdigest()}\nsize {size}\n".encode()
    oid = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer, usedforsecurity=False).hexdigest()
    return RepoFile(path, source, size, sha256.hexdigest(), oid, pointer_size=len(pointer))
