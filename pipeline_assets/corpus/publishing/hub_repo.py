"""A dataset repo of a hub for a publisher: access, files, and commits on its head.

`huggingface_hub` sends files and commits. Temporary failures are retried; a commit is made only on its parent, so one
whose answer was lost is not made twice.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_assets.corpus.readers.hub_files import HubFiles, check_name
from pipeline_assets.corpus.readers.hub_http import RETRIED_STATUS
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse, parsing_response
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi

TOKEN = "HF_TOKEN"
_INVALID = re.compile(r"--|\.\.|(^|/)[-.]|[-.](/|$)|\.git$")  # as huggingface_hub refuses names
_NAME_CHARACTERS = 96


def hf_token(variables: Mapping[str, str]) -> str:
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
    def from_bytes(cls, path: str, content: bytes) -> "Item":
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
class HubRepo:
    """Access to one repo, which may not be there yet.

    Attributes:
        hub: how it is asked, with the token of whoever writes.
    """

    name: str
    hub: HubFiles

    @classmethod
    def open(cls, name: str, hub: HubFiles, token: str) -> "HubRepo":
        """
        Raises:
            UsageError: `name` is not owner/name, or none that a hub takes.
        """
        check_name(name)
        if _INVALID.search(name) or len(name) > _NAME_CHARACTERS:
            fix = "write letters, digits, and one `-`, `_` or `.` between them; `.git` can't be its end"
            raise UsageError("no hub takes this name", name, fix)
        return cls(name, replace(hub, token=token))

    def limits(self) -> AbstractContextManager[None]:
        """Limit the time, size and recipients of all requests that `huggingface_hub` makes for this hub."""
        from pipeline_assets.corpus.readers.hub_library import limited_session

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

        def send() -> list[str]:
            client = self.hub.client()
            try:
                said, _ = client.page(f"{client.address}/api/whoami-v2")
            except HfHubHTTPError as error:
                if error.response.status_code in (401, 403):
                    what = f"{client.address} doesn't know the token"
                    raise RetryableError(what, TOKEN, "set it to a token of yours, with write access") from None
                raise
            with parsing_response():
                if ((said.get("auth") or {}).get("accessToken") or {}).get("role") == "read":
                    raise RetryableError("the token may only read", TOKEN, "set it to a token with write access")
                return [str(one["name"]) for one in (said, *(said.get("orgs") or []))]

        return self.hub.call(self.name, "main", send)

    def settings(self) -> dict[str, Any] | None:
        """Return whether the repo is private and gated; None if the token sees no such repo."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def send() -> dict[str, Any] | None:
            client = self.hub.client()
            try:
                answer, _ = client.page(f"{client.address}/api/datasets/{self.name}")
            except RepositoryNotFoundError:
                return None
            with parsing_response():
                return {"private": bool(answer["private"]), "gated": answer["gated"]}

        return self.hub.call(self.name, "main", send)

    def create(self, *, private: bool) -> None:
        """Make the repo, empty."""
        from huggingface_hub.errors import HfHubHTTPError

        def make() -> None:
            try:
                self._api().create_repo(self.name, repo_type="dataset", private=private)
            except HfHubHTTPError as error:
                if error.response.status_code != 409:  # it is there: made by a try whose answer was lost
                    raise

        self._written(make)

    def gate(self, how: str) -> None:
        """Whoever wants to read asks first: `auto` lets in who agrees, `manual` whom the owner lets in."""
        self._written(lambda: self._api().update_repo_settings(self.name, repo_type="dataset", gated=how))  # type: ignore[arg-type]

    def files(self, commit: str) -> dict[str, HubFile]:
        """What is there at a commit, by path."""
        return {file.path: file for file in self.hub.list_files(self.name, commit)}

    def commit(self, parent: str, title: str, items: Sequence[Item], deletions: Sequence[str] = ()) -> None:
        """Make a commit on a parent; nothing is committed if the parent is no longer the head. Large files go first.

        Raises:
            InputError: a file differs from its sealed hash.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete
        from huggingface_hub.errors import HfHubHTTPError

        api, additions = self._api(), [CommitOperationAdd(item.path, item.source) for item in items]
        for item, addition in zip(items, additions, strict=True):
            if addition.upload_info.sha256.hex() != item.sha256:
                where = item.source if isinstance(item.source, Path) else item.path
                raise InputError("it is not as it was sealed, and isn't published", where, "see `corpusmill verify`")
        once = {addition.upload_info.sha256: addition for addition in additions}
        for sent in ([*once.values()], additions):  # files of equal content are sent once
            self._written(functools.partial(api.preupload_lfs_files, self.name, sent, repo_type="dataset"))
        operations: list[Any] = [*additions, *(CommitOperationDelete(path, is_folder=False) for path in deletions)]

        def make() -> None:
            if self.hub.resolve(self.name) != parent:  # made by a try whose answer was lost, or another's
                return
            try:
                api.create_commit(
                    self.name, operations, commit_message=title, repo_type="dataset", parent_commit=parent
                )
            except HfHubHTTPError as error:
                if error.response.status_code != 412:  # the parent isn't the head any more
                    raise

        self._written(make)

    def _written(self, call: Callable[[], object]) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        def unwrapped() -> None:
            try:
                with parsing_response():
                    try:
                        call()
                    except RuntimeError as error:  # what the client says of a large file, around what was wrong
                        if isinstance(error, RecursionError) or error.__cause__ is None:
                            raise MalformedResponse(str(error)) from None
                        raise error.__cause__ from None
            except HfHubHTTPError as error:
                self._check_storage(error.response)
                raise
            except MalformedResponse as error:
                if "Invalid metadata in README.md" in str(error):
                    raise InputError(f"the hub refuses the card: {error}", self.name, "tell who wrote it") from None
                raise

        with self.limits():
            self.hub.call(self.name, "main", unwrapped, writes=True)

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
