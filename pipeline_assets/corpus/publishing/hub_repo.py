"""A dataset repo of a hub, as whoever writes to it sees it: who may, what is there, commits on its head.

`huggingface_hub` sends files and commits. Everything that passes by itself is tried again; a commit whose answer was
lost is looked for before it is made a second time.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles, check_name
from pipeline_assets.corpus.readers.hub_http import RETRIED_STATUS, Garbled, reading_answer
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, TransientError, UsageError

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import CommitOperationAdd, HfApi

T = TypeVar("T")
TOKEN = "HF_TOKEN"
_UNFIT = re.compile(r"--|\.\.|(^|/)[-.]|[-.](/|$)|\.git$")  # as huggingface_hub refuses names
_NAME_CHARACTERS = 96
_COMMIT = re.compile("[0-9a-f]{40}")
_SEND_FILES = 100  # at once: what is asked of the hub before any of them is sent


def token_of(variables: Mapping[str, str]) -> str:
    """The token of whoever publishes: of the environment, never one that was saved.

    Raises:
        UsageError: there is none.
    """
    token = variables.get(TOKEN, "").strip()
    if not token:
        raise UsageError("it isn't set", TOKEN, "set it to a token with write access; a saved login isn't used")
    return token


@dataclass(frozen=True)
class Item:
    """A file as a repo is to have it: its content, or where that lies, and its digest."""

    path: str
    source: Path | bytes
    size: int
    sha256: str

    @classmethod
    def of(cls, path: str, content: bytes) -> "Item":
        return cls(path, content, len(content), hashlib.sha256(content).hexdigest())

    def is_there(self, file: HubFile | None) -> bool:
        """Whether a repo has it already. Git's own digest, which small files have, is worked out here."""
        if file is None or file.size != self.size:
            return False
        kind, _, digest = file.digest.partition(":")
        return digest == (self.sha256 if kind == "sha256" else self._git_sha1())

    def _git_sha1(self) -> str:
        content = self.source if isinstance(self.source, bytes) else self.source.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Commit:
    """One of a repo's commits: its id, and what its author said."""

    id: str
    title: str
    message: str


@dataclass(frozen=True)
class HubRepo:
    """Access to one repo, which may not be there yet.

    Attributes:
        hub: how it is asked, with the token of whoever writes.
    """

    name: str
    hub: HubFiles

    @classmethod
    def of(cls, name: str, hub: HubFiles, token: str) -> "HubRepo":
        """
        Raises:
            UsageError: `name` is not owner/name, or none that a hub takes.
        """
        check_name(name)
        if _UNFIT.search(name) or len(name) > _NAME_CHARACTERS:
            fix = "write letters, digits, and one `-`, `_` or `.` between them; `.git` can't be its end"
            raise UsageError("no hub takes this name", name, fix)
        return cls(name, replace(hub, token=token))

    def limits(self) -> AbstractContextManager[None]:
        """Limit the time, size and recipients of all requests that `huggingface_hub` makes for this hub."""
        from pipeline_assets.corpus.readers.hub_session import limited_session

        return limited_session(self.hub.client().address, self.hub.progress_s)

    @property
    def url(self) -> str:
        """Where people look at it."""
        return f"{self.hub.client().address}/datasets/{self.name}"

    def check_token(self) -> list[str]:
        """Whose the token is, and the organisations that it is known to be of.

        Raises:
            RetryableError: the hub doesn't know the token, or it may only read.
        """
        from huggingface_hub.errors import HfHubHTTPError

        def ask() -> list[str]:
            client = self.hub.client()
            try:
                said, _ = client.page(f"{client.address}/api/whoami-v2")
            except HfHubHTTPError as error:
                if error.response.status_code in (401, 403):
                    what = f"{client.address} doesn't know the token"
                    raise RetryableError(what, TOKEN, "set it to a token of yours, with write access") from None
                raise
            with reading_answer():
                if ((said.get("auth") or {}).get("accessToken") or {}).get("role") == "read":
                    raise RetryableError("the token may only read", TOKEN, "set it to a token with write access")
                return [str(one["name"]) for one in (said, *(said.get("orgs") or []))]

        return self.hub.call(self.name, "main", ask)

    def settings(self, kind: str = "datasets") -> dict[str, Any] | None:
        """What the hub says of the repo; None where there is none that the token may see."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def ask() -> dict[str, Any] | None:
            client = self.hub.client()
            try:
                answer, _ = client.page(f"{client.address}/api/{kind}/{self.name}")
            except RepositoryNotFoundError:
                return None
            with reading_answer():
                return {"private": bool(answer["private"]), "gated": answer["gated"]}

        return self.hub.call(self.name, "main", ask)

    def create(self, *, private: bool) -> None:
        """The repo, empty.

        Raises:
            UsageError: a model has the name.
            InputError: the token may not make it.
        """
        if self.settings("models") is not None:
            raise UsageError("this is a model", self.name, "give the name of a dataset, or of none")
        try:
            self._written(functools.partial(self._create, private))
        except RetryableError as error:
            if isinstance(error, TransientError) or "may not write" not in error.what:
                raise
            owners = ", ".join(self.check_token())
            raise UsageError(f"{error.what}; it is of {owners}", error.where, error.fix) from None

    def _create(self, private: bool) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self._api().create_repo(self.name, repo_type="dataset", private=private)
        except HfHubHTTPError as error:
            if error.response.status_code != 409:  # it is there: made by a try whose answer was lost
                raise

    def gate(self, how: str) -> None:
        """Whoever wants to read asks first: `auto` lets in who agrees, `manual` whom the owner lets in."""
        self._written(lambda: self._api().update_repo_settings(self.name, repo_type="dataset", gated=how))  # type: ignore[arg-type]

    def head(self) -> Commit:
        """The head of main."""

        def ask() -> Commit:
            client = self.hub.client()
            answer, _ = client.page(f"{client.address}/api/datasets/{self.name}/commits/main")
            with reading_answer():
                if not isinstance(answer, list) or not answer:
                    raise ValueError("the history must be a list of at least one commit")
                commits = [Commit(_commit_id(one["id"]), str(one["title"]), str(one["message"])) for one in answer]
                return commits[0]

        return self.hub.call(self.name, "main", ask)

    def files(self, commit: str) -> dict[str, HubFile]:
        """What is there at a commit, by path."""
        return {file.path: file for file in self.hub.list_files(self.name, commit)}

    def commit(
        self, parent: str, title: str, run: str, part: str, items: Sequence[Item], deletions: Sequence[str] = ()
    ) -> str:
        """Make a commit on a parent, which must be the head, and return its id. Large files go first.

        Args:
            run: a line of the message that all commits of the run have.
            part: the next line, by which the commit is found if its answer was lost.
        Raises:
            InputError: a file isn't as it was sealed; another commit is the head.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete
        from huggingface_hub.errors import HfHubHTTPError

        additions = [CommitOperationAdd(item.path, item.source) for item in items]
        content = {item.sha256: addition for item, addition in zip(items, additions, strict=True)}
        self._send([*content.values()])
        self._send(additions)  # which are there by now, under whatever name
        for item, addition in zip(items, additions, strict=True):
            _check_sent(item, addition)
        operations: list[Any] = [*additions, *(CommitOperationDelete(path, is_folder=False) for path in deletions)]
        message = f"{run}\n{part}"

        def make() -> str:
            if (head := self.head()).id != parent:
                return self._already_made(head, run, message)
            try:
                done = self._api().create_commit(
                    self.name,
                    operations,
                    commit_message=title,
                    commit_description=message,
                    repo_type="dataset",
                    parent_commit=parent,
                )
            except HfHubHTTPError as error:
                if error.response.status_code != 412:  # the parent isn't the head any more
                    raise
                return self._already_made(self.head(), run, message)
            return _commit_id(done.oid)

        return self._written(make)

    def _already_made(self, head: Commit, run: str, message: str) -> str:
        """Return the id of the head if it is the commit of this message, whose answer was lost; else raise."""
        if message not in head.message:
            raise taken_over(self, head, run)
        return head.id

    def _send(self, additions: "Sequence[CommitOperationAdd]") -> None:
        send = functools.partial(self._api().preupload_lfs_files, self.name, repo_type="dataset")
        for first in range(0, len(additions), _SEND_FILES):
            self._written(functools.partial(send, additions[first : first + _SEND_FILES]))

    def _written(self, call: Callable[[], T]) -> T:
        from huggingface_hub.errors import HfHubHTTPError

        def unwrapped() -> T:
            try:
                with reading_answer():
                    try:
                        return call()
                    except RuntimeError as error:  # what the client says of a large file, around what was wrong
                        if isinstance(error, RecursionError) or error.__cause__ is None:
                            raise Garbled(str(error)) from None
                        raise error.__cause__ from None
            except HfHubHTTPError as error:
                self._check_storage(error.response)
                raise
            except Garbled as error:
                if "Invalid metadata in README.md" in str(error):
                    raise InputError(f"the hub refuses the card: {error}", self.name, "tell who wrote it") from None
                raise

        with self.limits():
            return self.hub.call(self.name, "main", unwrapped, writes=True)

    def _check_storage(self, refusal: "httpx2.Response") -> None:
        """Raise RetryableError if content was refused for good, and not a call of the hub's API."""
        status, url = refusal.status_code, refusal.request.url
        is_api = "/api/" in url.path or url.path.endswith("/info/lfs/objects/batch")
        if status not in RETRIED_STATUS and not (is_api and self.hub.client().is_own(str(url))):
            fix = "run the same command again; if it persists, ask who runs the hub"
            where = f"{url.scheme}://{url.netloc.decode()}"
            raise RetryableError(f"the storage of the hub refused an upload (HTTP {status})", where, fix)

    def _api(self) -> "HfApi":
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.hub.client().address, token=self.hub.token)


def taken_over(repo: HubRepo, head: Commit, run: str) -> InputError:
    """Another's commit is where ours was to be.

    Args:
        run: what a commit of the same run says.
    """
    if run in head.message:
        return RetryableError("another process publishes the same", repo.name, "run the same command when it is done")
    what = f"somebody else committed to it: {head.id} {head.title!r} is its head"
    words = f"`corpusmill nemotron publish {repo.name} FOLDER --onto {head.id}` goes on from it"
    return UsageError(what, repo.name, f"look at {repo.url}/commits/main; {words}")


def _commit_id(value: object) -> str:
    """Return a commit id, or raise ValueError."""
    if not isinstance(value, str) or not _COMMIT.fullmatch(value):
        raise ValueError(f"a commit id must be 40 hex digits, got {value!r:.60}")
    return value


def _check_sent(item: Item, addition: "CommitOperationAdd") -> None:
    """
    Raises:
        InputError: what was read of a file is not what was sealed.
    """
    if addition.upload_info.sha256.hex() != item.sha256:
        what = "it is not as it was sealed, and isn't published"
        raise InputError(what, item.source if isinstance(item.source, Path) else item.path, "see `corpusmill verify`")
