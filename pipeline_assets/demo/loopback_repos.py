"""Repos of the hub on loopback: folders of files, each with the digests that a hub reports for it."""

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline_assets.demo.loopback_files import FileBelow, open_folder, regular_file
from pipeline_assets.demo.loopback_http import CHUNK_BYTES

LFS_SUFFIXES = frozenset({".parquet", ".zst", ".gz", ".7z", ".bin", ".arrow", ".safetensors"})
LFS_ABOVE_BYTES = 1 << 20
ATTRIBUTES = ".gitattributes"  # the only dot file of a repo: a real hub writes it when a repo is created
# Clients want dates; one that never moves leaves every answer a function of the content.
EPOCH = "1970-01-01T00:00:00.000Z"
# A file written twice within one tick of the file system's clock keeps its mtime: a digest that fresh is not kept.
MTIME_TICK_NS = 50_000_000


def is_lfs(path: str, size: int) -> bool:
    """Whether git stores a pointer to the content alone."""
    return PurePosixPath(path).suffix.lower() in LFS_SUFFIXES or size > LFS_ABOVE_BYTES


@dataclass(frozen=True)
class RepoFile:
    """One file of a repo. `oid` is git's: the blob's sha1, for LFS that of the pointer file which git stores."""

    path: str
    source: FileBelow
    size: int
    sha256: str
    oid: str
    pointer_size: int | None  # None: not LFS, git stores the content itself

    @property
    def etag(self) -> str:
        """What the client takes the content by: sha256 for LFS, else git's blob id."""
        return self.oid if self.pointer_size is None else self.sha256

    def digests(self) -> dict[str, object]:
        """Size and digests as `repo_info` has them."""
        lfs = {"lfs": {"sha256": self.sha256, "size": self.size, "pointerSize": self.pointer_size}}
        return {"size": self.size, "blobId": self.oid} | (lfs if self.pointer_size is not None else {})


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

    def tree_item(self, path: str) -> dict[str, object] | None:
        """What `tree` and `paths-info` say of a file or folder; None where there is neither."""
        file = self.files.get(path)
        if file is not None:
            lfs = {"lfs": {"oid": file.sha256, "size": file.size, "pointerSize": file.pointer_size}}
            item = {"type": "file", "path": path, "oid": file.oid, "size": file.size}
            return item | (lfs if file.pointer_size is not None else {})
        below = [file for file in self.files.values() if file.path.startswith(f"{path}/")]
        return {"type": "directory", "path": path, "oid": _content_id(below), "size": 0} if below else None

    def info(self, blobs: bool) -> dict[str, object]:
        """What `repo_info` says; sizes and digests of files only with `blobs`."""
        access = {"private": self.is_private, "gated": "auto" if self.is_gated else False, "disabled": False}
        dates = {"lastModified": EPOCH, "createdAt": EPOCH}
        siblings = [{"rfilename": file.path, **(file.digests() if blobs else {})} for file in self.files.values()]
        counts = {"tags": [], "downloads": 0, "likes": 0}
        return {"id": self.name, "sha": self.commit, **access, **counts, **dates, "siblings": siblings}


def _content_id(files: Iterable[RepoFile]) -> str:
    lines = sorted(os.fsencode(file.path) + b"\0" + file.sha256.encode() + b"\n" for file in files)
    return hashlib.sha1(b"".join(lines), usedforsecurity=False).hexdigest()


def repo_commit(folder: Path) -> str:
    r"""The commit under which a hub shows this repo folder: 40 hex digits, or clients do not cache by commit.

    sha1 over the lines "<path>\0<sha256 of the content, hex>\n", sorted: it depends on the files' paths and contents
    alone, never on time or place. Symbolic links, and dot files but .gitattributes, are not part of a repo.
    """
    return RepoReader().read(folder, "", folder.name).commit


class RepoReader:
    """Reads repo folders, and the content of each file once: digests are kept by path, size and mtime."""

    def __init__(self) -> None:
        self._hashed: dict[tuple[FileBelow, int, int], RepoFile] = {}
        self._lock = threading.Lock()

    def read(self, root: Path, place: str, name: str) -> Repo:
        """Read a repo as it is now.

        Args:
            place: path of the repo below `root`; links below `root` are not followed.
        Raises:
            OSError: a file was removed or replaced by a link during the reading.
        """
        with self._lock, open_folder(root, *filter(None, place.split("/"))) as folder:
            files = {path: self._file(root, place, path, state) for path, state in sorted(_repo_files(folder))}
            marks = set(os.listdir(folder))
        return Repo(name, files, is_private=".private" in marks, is_gated=".gated" in marks)

    def _file(self, root: Path, place: str, path: str, state: os.stat_result) -> RepoFile:
        source = FileBelow(root, f"{place}/{path}" if place else path)
        key = (source, state.st_size, state.st_mtime_ns)
        if key in self._hashed:
            return self._hashed[key]
        is_settled = abs(time.time_ns() - state.st_mtime_ns) > MTIME_TICK_NS
        file = _hash_file(path, source, state.st_size)
        if is_settled:
            self._hashed[key] = file
        return file


def _repo_files(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and state of a repo's files. Links are omitted, so that nothing outside the folder is served."""
    for place, folders, names, inner in os.fwalk(".", follow_symlinks=False, dir_fd=folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if (name == ATTRIBUTES or not name.startswith(".")) and (state := regular_file(name, inner)) is not None:
                yield PurePosixPath(place, name).as_posix(), state


def _hash_file(path: str, source: FileBelow, size: int) -> RepoFile:
    """Both digests in one reading; pointer file as in https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md."""
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
