"""Loopback hub that keeps the history of its datasets, as the real hub does.

Every commit stays readable by its id while a ref reaches it. `.history/<owner>--<name>/refs.json` has the refs and the
parent of each commit; a folder next to it has the files of each commit, which a `LoopbackHub` of its own answers.
"""

import hashlib
import json
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from faulty_hub import FaultyHub, _FaultyHandler

from pipeline_assets.demo.loopback_http import HubRequest, Origin, Response, json_response
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.loopback_repos import EPOCH, Repo, RepoReader
from pipeline_assets.demo.loopback_writes import HubWriter

MAIN = "refs/heads/main"
_SQUASHES = ".squashes"
_KINDS = {"refs/heads/": "branches", "refs/tags/": "tags", "refs/convert/": "converts", "refs/pr/": "pullRequests"}


class History(msgspec.Struct):
    """Refs of a repo, and the parent of each commit; None for a first commit."""

    refs: dict[str, str] = {}
    parents: dict[str, str | None] = {}

    def ancestors(self, commit: str | None) -> list[str]:
        found = []
        while commit is not None:
            found.append(commit)
            commit = self.parents[commit]
        return found

    def reachable(self) -> set[str]:
        return {commit for ref in self.refs.values() for commit in self.ancestors(ref)}


@dataclass(frozen=True)
class SquashedRepo(Repo):
    """Repo whose commit ids change with each squash of a branch."""

    squashes: int = 0

    @property
    def commit(self) -> str:
        content = super().commit
        return hashlib.sha1(f"{content} {self.squashes}".encode()).hexdigest() if self.squashes else content


class SquashedReader(RepoReader):
    def read(self, root: Path, place: str, name: str) -> Repo:
        marker = root / place / _SQUASHES
        squashes = int(marker.read_text()) if marker.exists() else 0
        return SquashedRepo(**vars(super().read(root, place, name)), squashes=squashes)


class HistoryHandler(_FaultyHandler):
    do_DELETE = _FaultyHandler.do_GET


class HistoryHub(FaultyHub):
    """A hub with commits, branches, tags, conversions and pull requests of datasets."""

    handler = HistoryHandler

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reader = SquashedReader()
        self._writer = HubWriter(self.folder, self._reader.read, self.token)
        self._guard = threading.RLock()
        self.keeps_commits = False  # True: a commit that no ref reaches answers, until the hub collects it

    def history(self, name: str) -> History:
        path = self._place(name) / "refs.json"
        return msgspec.json.decode(path.read_bytes(), type=History) if path.exists() else History()

    def set_ref(self, name: str, ref: str, commit: str | None) -> None:
        """Set a ref to a commit, or delete the ref."""
        with self._guard:
            history = self.history(name)
            history.refs.pop(ref, None)
            if commit is not None:
                history.refs[ref] = commit
            self._store(name, history)

    def add_commit(self, name: str, files: dict[str, bytes], parent: str | None = None) -> str:
        """Add a commit of some files, as an owner of a pull request does; return its id."""
        with self._guard:
            folder = self._place(name) / "new"
            shutil.rmtree(folder, ignore_errors=True)
            for path, content in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
            commit = self._reader.read(folder, "", name).commit
            self._snapshot(name, folder, commit)
            history = self.history(name)
            history.parents[commit] = parent
            self._store(name, history)
            return commit

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        with self._guard:
            return self._answer_origin(origin, request)

    def _answer_origin(self, origin: Origin, request: HubRequest) -> Response:
        if origin == "storage":
            return self._answer_content(request)
        match request.path_segments:
            case ["api", "datasets", owner, name, *rest] if (self.folder / "datasets" / owner / name).is_dir():
                return self._answer_dataset(request, f"{owner}/{name}", rest)
            case ["datasets", owner, name, "resolve", revision, *_]:
                return self._answer_revision(request, f"{owner}/{name}", revision, 4)
        return super().answer(origin, request)

    def _answer_dataset(self, request: HubRequest, name: str, rest: list[str]) -> Response:
        if request.method != "GET" and not self.may_write(request):
            return json_response({"error": "Forbidden"}, 403)
        self._record(name)
        history = self.history(name)
        match request.method, rest:
            case "GET", ["refs"]:
                return json_response(_listed_refs(history, "include_prs" in request.query))
            case "GET", ["commits", revision]:
                commit = self._commit(name, revision)
                dated = {"title": "", "message": "", "date": EPOCH, "authors": []}
                return (
                    json_response([{"id": entry, **dated} for entry in history.ancestors(commit)])
                    if commit
                    else _unknown()
                )
            case "POST", ["super-squash", branch]:
                return self._squash(name, f"refs/heads/{branch}")
            case "POST", ["tag", revision]:
                ref, commit = f"refs/tags/{json.loads(request.body)['tag']}", self._commit(name, revision)
                if ref in history.refs:
                    return json_response({"error": "Tag reference exists already"}, 409)
                self.set_ref(name, ref, commit)
                return json_response({})
            case "DELETE", ["tag", tag]:
                if f"refs/tags/{tag}" not in history.refs:
                    return _unknown()
                self.set_ref(name, f"refs/tags/{tag}", None)
                return json_response({})
            case "POST", ["lfs-files", "batch"]:
                self._set_deleted(self._deleted() | {*json.loads(request.body)["deletions"]["sha"]})
            case _, ["revision" | "tree" | "paths-info", revision, *_]:
                return self._answer_revision(request, name, revision, 5)
        answer = super().answer("hub", request)
        self._record(name)
        return answer

    def _answer_revision(self, request: HubRequest, name: str, revision: str, position: int) -> Response:
        """Let the hub of a commit's files answer, as if the commit were its only one."""
        self._record(name)
        commit = self._commit(name, revision)
        if commit is None:
            return _unknown() if (self.folder / "datasets" / name).is_dir() else super().answer("hub", request)
        parts = [quote(part, safe="") for part in request.path_segments]
        parts[position] = commit
        hub = LoopbackHub(self._place(name) / commit)
        hub._reader, hub.endpoint, hub._storage, hub.page_size = (
            self._reader,
            self.endpoint,
            self._storage,
            self.page_size,
        )
        return hub.answer("hub", replace(request, raw_path="/" + "/".join(parts)))

    def _answer_content(self, request: HubRequest) -> Response:
        """Send a large file of any commit, unless it was deleted."""
        match request.method, request.path_segments:
            case "PUT", ["upload", sha256]:
                self._set_deleted(self._deleted() - {sha256})
            case "GET", [_, _, _, sha256, *_] if sha256 in self._deleted():
                return json_response({"error": "No such object"}, 404)
            case "GET", [_, owner, name, _, *_]:
                for folder in self._place(f"{owner}/{name}").glob("*/"):
                    hub = LoopbackHub(folder)
                    hub._reader = self._reader
                    if (answer := hub.answer("storage", request)).status < 300:
                        return answer
        return super().answer("storage", request)

    def _squash(self, name: str, ref: str) -> Response:
        history = self.history(name)
        if ref not in history.refs:
            return _unknown()
        folder = self.folder / "datasets" / name
        if ref != MAIN:  # a branch without a folder of its own
            shutil.rmtree(self._place(name) / "new", ignore_errors=True)
            folder = self._place(name) / "new"
            shutil.copytree(self._place(name) / history.refs[ref] / "datasets" / name, folder)
        marker = folder / _SQUASHES
        marker.write_text(str(1 + (int(marker.read_text()) if marker.exists() else 0)))
        commit = self._reader.read(folder, "", name).commit
        self._snapshot(name, folder, commit)
        history.parents[commit] = None
        history.refs[ref] = commit
        self._store(name, history)
        return json_response({"commitId": commit})

    def _record(self, name: str) -> None:
        """Record the files of a repo's folder as the head of `main`."""
        history, head = self.history(name), self._reader.read(self.folder, f"datasets/{name}", name).commit
        if head != history.refs.get(MAIN):
            self._snapshot(name, self.folder / "datasets" / name, head)
            history.parents.setdefault(head, history.refs.get(MAIN))
            history.refs[MAIN] = head
            self._store(name, history)

    def _snapshot(self, name: str, folder: Path, commit: str) -> None:
        target = self._place(name) / commit / "datasets" / name
        if not target.exists():
            shutil.copytree(folder, target)

    def _commit(self, name: str, revision: str) -> str | None:
        history = self.history(name)
        for ref in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if ref in history.refs:
                return history.refs[ref]
        return revision if revision in (history.parents if self.keeps_commits else history.reachable()) else None

    def _place(self, name: str) -> Path:
        return self.folder / ".history" / name.replace("/", "--")

    def _store(self, name: str, history: History) -> None:
        self._place(name).mkdir(parents=True, exist_ok=True)
        (self._place(name) / "refs.json").write_bytes(msgspec.json.encode(history))

    def _deleted(self) -> set[str]:
        path = self.folder / ".history" / "deleted.json"
        return set(json.loads(path.read_text())) if path.exists() else set()

    def _set_deleted(self, digests: set[str]) -> None:
        (self.folder / ".history").mkdir(exist_ok=True)
        (self.folder / ".history" / "deleted.json").write_text(json.dumps(sorted(digests)))


def _listed_refs(history: History, with_pull_requests: bool) -> dict[str, Any]:
    listed: dict[str, Any] = {kind: [] for kind in _KINDS.values() if with_pull_requests or kind != "pullRequests"}
    for ref, commit in history.refs.items():
        for start, kind in _KINDS.items():
            if ref.startswith(start) and kind in listed:
                name = ref.removeprefix("refs/") if kind == "converts" else ref.removeprefix(start)
                listed[kind].append({"name": name, "ref": ref, "targetCommit": commit})
    return listed


def _unknown() -> Response:
    return json_response({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
