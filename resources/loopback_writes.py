"""The writing side of the hub on loopback: repos are made, files sent, commits made, as the real clients ask for it.

What is sent as a large file (LFS) waits below `.objects` of the hub's folder until a commit names it. A commit is there
whole or not at all, to whoever asks this hub; what its author said of it is in the repo's `.commits.jsonl`.
"""

import base64
import binascii
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from resources.loopback_http import Answer, Ask, Refused, json_answer
from resources.loopback_repos import EPOCH, Repo, is_lfs

USER = "loopback"
READ_ONLY = "hf_read"  # how a token begins that may only read
OBJECTS = ".objects"
_COMMITS = ".commits.jsonl"
_NEW = ".new"


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
