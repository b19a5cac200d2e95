"""A dataset repo on a hub, to which `huggingface_hub` sends files and commits.

Temporary failures are retried. Each commit names its parent, so a retry after a lost response cannot commit twice.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline_assets.corpus.readers.hub_errors import RETRIED_STATUSES
from pipeline_assets.corpus.readers.hub_files import HubFiles, check_name
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse, convert_parse_errors
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi

T = TypeVar("T")
HF_TOKEN_VARIABLE = "HF_TOKEN"
_INVALID_NAME_PATTERN = re.compile(r"--|\.\.|(^|/)[-.]|[-.](/|$)|\.git$")  # Names that huggingface_hub rejects.
_MAX_NAME_LENGTH = 96


def hf_token(variables: Mapping[str, str]) -> str:
    """Return HF_TOKEN of `variables`; UsageError if unset (saved logins are ignored)."""
    token = variables.get(HF_TOKEN_VARIABLE, "").strip()
    if not token:
        fix = "set it to a token with write access; a saved login is not used"
        raise UsageError("no token is set", HF_TOKEN_VARIABLE, fix)
    return token


def check_repo_name(name: str) -> None:
    """Raise UsageError if hubs do not allow this name for a dataset repo."""
    check_name(name)
    if _INVALID_NAME_PATTERN.search(name) or len(name) > _MAX_NAME_LENGTH:
        fix = "use letters and digits, with one `-`, `_` or `.` between them, and no `.git` at the end"
        raise UsageError("hubs do not allow this repo name", name, fix)


@dataclass(frozen=True)
class UploadFile:
    """File to publish: path in the repo, content or local path, size and sha256."""

    path: str
    source: Path | bytes
    size: int
    sha256: str

    @classmethod
    def from_bytes(cls, path: str, content: bytes) -> "UploadFile":
        return cls(path, content, len(content), hashlib.sha256(content).hexdigest())

    def is_stored(self, file: HubFile | None) -> bool:
        """Check by size and hash whether a repo's file has this content; False for None."""
        if file is None or file.size != self.size:
            return False
        kind, _, digest = file.digest.partition(":")
        if kind == "sha256":
            return digest == self.sha256
        content = self.source if isinstance(self.source, bytes) else self.source.read_bytes()
        return digest == hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class HubRepo:
    """Access to one dataset repo, which may not exist yet."""

    name: str
    hub: HubFiles  # with the publisher's token

    @classmethod
    def open(cls, name: str, hub: HubFiles, token: str | None) -> "HubRepo":
        """Return access to a repo; raise UsageError if hubs do not allow its name."""
        check_repo_name(name)
        return cls(name, replace(hub, token=token))

    def limit_requests(self) -> AbstractContextManager[None]:
        """Limit time and size of requests in the context; send the token only to the hub."""
        from pipeline_assets.corpus.readers.hub_library import limited_session

        return limited_session(self.hub.client().address, self.hub.progress_s)

    @property
    def url(self) -> str:
        return f"{self.hub.client().address}/datasets/{self.name}"

    def check_token(self) -> list[str]:
        """Return the names of the token's user and organizations.

        Raise RetryableError if the hub rejects the token, or if the token cannot write.
        """
        from huggingface_hub.errors import HfHubHTTPError

        def send() -> list[str]:
            client = self.hub.client()
            try:
                identity, _ = client.fetch_page(f"{client.address}/api/whoami-v2")
            except HfHubHTTPError as error:
                if error.response.status_code in (401, 403):
                    what = f"{client.address} rejects the token"
                    raise RetryableError(what, HF_TOKEN_VARIABLE, "set it to a valid token with write access") from None
                raise
            with convert_parse_errors():
                if ((identity.get("auth") or {}).get("accessToken") or {}).get("role") == "read":
                    fix = "set it to a token with write access"
                    raise RetryableError("the token is read-only", HF_TOKEN_VARIABLE, fix)
                return [str(owner["name"]) for owner in (identity, *(identity.get("orgs") or []))]

        return self.hub.call_with_retries(self.name, "main", send)

    def access_settings(self) -> dict[str, Any] | None:
        """Return `private` and `gated` of the repo; None if it is missing or not visible."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def send() -> dict[str, Any] | None:
            client = self.hub.client()
            try:
                answer, _ = client.fetch_page(f"{client.address}/api/datasets/{self.name}")
            except RepositoryNotFoundError:
                return None
            with convert_parse_errors():
                return {"private": bool(answer["private"]), "gated": answer["gated"]}

        return self.hub.call_with_retries(self.name, "main", send)

    def create(self, *, private: bool) -> None:
        """Create an empty repo, unless the repo exists."""
        from huggingface_hub.errors import HfHubHTTPError

        def create(api: "HfApi") -> None:
            try:
                api.create_repo(self.name, repo_type="dataset", private=private)
            except HfHubHTTPError as error:
                if error.response.status_code != 409:  # It exists: the response of an earlier attempt was lost.
                    raise

        self.call_library(create)

    def require_agreement(self, mode: str) -> None:
        """Make readers agree to terms; mode `manual` also requires the owner's approval."""
        self.call_library(lambda api: api.update_repo_settings(self.name, repo_type="dataset", gated=mode))  # type: ignore[arg-type]

    def list_files(self, commit: str) -> dict[str, HubFile]:
        return {file.path: file for file in self.hub.list_files(self.name, commit)}

    def commit(self, parent: str, title: str, uploads: Sequence[UploadFile], deletions: Sequence[str] = ()) -> None:
        """Commit uploads and deletions, unless the head has moved from `parent`.

        Large files are sent before the head is checked, so they are sent even if no commit follows. Raise InputError if
        a local file does not match its sha256.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete
        from huggingface_hub.errors import HfHubHTTPError

        additions = [CommitOperationAdd(item.path, item.source) for item in uploads]
        for item, addition in zip(uploads, additions, strict=True):
            if addition.upload_info.sha256.hex() != item.sha256:
                where = item.source if isinstance(item.source, Path) else item.path
                raise InputError("the file differs from its manifest", where, "run `corpusmill verify`")
        unique = {addition.upload_info.sha256: addition for addition in additions}
        for batch in ([*unique.values()], additions):  # equal content is sent once
            self.call_library(lambda api, sent=batch: api.preupload_lfs_files(self.name, sent, repo_type="dataset"))  # type: ignore[misc]
        operations: list[Any] = [*additions, *(CommitOperationDelete(path, is_folder=False) for path in deletions)]

        def create_commit(api: "HfApi") -> None:
            if self.hub.resolve(self.name) != parent:  # This commit, after a lost response, or another one.
                return
            try:
                api.create_commit(
                    self.name, operations, commit_message=title, repo_type="dataset", parent_commit=parent
                )
            except HfHubHTTPError as error:
                if error.response.status_code != 412:  # Another commit moved the head.
                    raise

        self.call_library(create_commit)

    def call_library(self, call: Callable[["HfApi"], T]) -> T:
        """Call `call` under `limit_requests`, with retries; convert errors of the library."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        def unwrap() -> T:
            try:
                with convert_parse_errors():
                    try:
                        return call(HfApi(endpoint=self.hub.client().address, token=self.hub.token))
                    except RuntimeError as error:  # The client wraps errors of large files.
                        if isinstance(error, RecursionError) or error.__cause__ is None:
                            raise MalformedResponse(str(error)) from None
                        raise error.__cause__ from None
            except HfHubHTTPError as error:
                self._raise_if_storage_refused(error.response)
                raise
            except MalformedResponse as error:
                if "Invalid metadata in README.md" in str(error):
                    what, fix = f"the hub refuses the card: {error}", "correct the card's YAML"
                    raise InputError(what, self.name, fix) from None
                raise

        with self.limit_requests():
            return self.hub.call_with_retries(self.name, "main", unwrap, writes=True)

    def _raise_if_storage_refused(self, response: "httpx2.Response") -> None:
        """Raise RetryableError if storage outside the hub's API refused an upload."""
        status, url = response.status_code, response.request.url
        is_api = "/api/" in url.path or url.path.endswith("/info/lfs/objects/batch")
        if status not in RETRIED_STATUSES and not (is_api and self.hub.client().is_on_hub(str(url))):
            fix = "run the same command again; if the error persists, contact the operator of the hub"
            where = f"{url.scheme}://{url.netloc.decode()}"
            raise RetryableError(f"the storage of the hub refused an upload (HTTP {status})", where, fix)
