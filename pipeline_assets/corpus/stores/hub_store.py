"""Stores on a hub: datasets and read-only buckets.

A commit that writes a `Pointer` names its parent; the hub refuses the commit if the parent is not the newest commit.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote

from pipeline_assets.corpus.publishing.hub_repo import HF_TOKEN_VARIABLE, HubRepo, UploadFile, hf_token
from pipeline_assets.corpus.stores.object_store import Pointer
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FORMAT
from pipeline_assets.spine.plural import pluralize

_MAX_HEAD_MOVES = 8  # how often other writers may move the head during one call
_FIX = "run the same command again when no other process commits to it"
T = TypeVar("T")


@dataclass(frozen=True)
class HubStore:
    """Store in a hub dataset or a hub bucket; it has most methods of `ObjectStore`.

    A write raises RetryableError if other commits repeatedly arrive before its own commit.
    """

    url: str
    repo: HubRepo  # for a bucket, only its name and hub are used
    prefix: str  # empty, or a folder with a `/` at its end
    is_bucket: bool

    def prepare_writes(self) -> None:
        """Create the dataset if missing; UsageError for a bucket, or without a token."""
        if self.is_bucket:
            fix = "push to hf://datasets/OWNER/NAME or to an object store"
            raise UsageError("a hub bucket has no conditional writes, so it is only read", self.url, fix)
        hf_token({HF_TOKEN_VARIABLE: self.repo.hub.token or ""})
        self.repo.check_token()
        if self.repo.access_settings() is None:
            self.repo.create(private=True)

    def list_keys(self, folder: str) -> list[str]:
        from huggingface_hub.errors import RemoteEntryNotFoundError

        client, keys = self.repo.hub.client(), list[str]()
        tree = f"buckets/{self.repo.name}/tree" if self.is_bucket else f"datasets/{self.repo.name}/tree/main"
        url: str | None = f"{client.address}/api/{tree}/{quote(self.prefix + folder, safe='')}?recursive=true"

        def fetch_page(url: str) -> tuple[Any, str | None]:
            with contextlib.suppress(RemoteEntryNotFoundError):  # a missing folder has no entries
                return client.fetch_page(url)
            return [], None

        while url is not None:
            entries, url = self._call_with_retries(functools.partial(fetch_page, url))
            keys += [str(entry["path"]).removeprefix(self.prefix) for entry in entries if entry["type"] == "file"]
        return sorted(keys)

    def read(self, key: str, start: int, size: int, revision: str | None = None) -> bytes:
        client, name = self.repo.hub.client(), self.repo.name
        path = f"buckets/{name}/resolve" if self.is_bucket else f"datasets/{name}/resolve/{revision or 'main'}"

        def fetch() -> bytes:
            url, span = f"{client.address}/{path}/{quote(self.prefix + key)}", f"bytes={start}-{start + size - 1}"
            with client.stream(url, f"{self.url}/{key}", Range=span) as response:
                if response.status_code in (404, 416):
                    return b""
                client.raise_for_status(response)
                return b"".join(client.body_blocks(response))

        return self._call_with_retries(fetch)

    def put(self, files: Sequence[UploadFile]) -> int:
        sent, paths = 0, [replace(file, path=self.prefix + file.path) for file in files]
        for _ in range(_MAX_HEAD_MOVES):
            head = self.repo.hub.resolve(self.repo.name)
            stored = self.repo.list_files(head)
            missing = [file for file in paths if not file.is_stored(stored.get(file.path))]
            if not missing:
                return sent
            sent = sent or sum(file.size for file in missing)
            self.repo.commit(head, f"Add {pluralize(len(missing), 'object')}", missing)
        raise RetryableError(f"other commits moved the head {_MAX_HEAD_MOVES} times", self.url, _FIX)

    def read_pointer(self, key: str, revision: str | None = None) -> Pointer | None:
        data = self.read(key, 0, MANIFEST_FORMAT.max_bytes, revision)
        return Pointer(data) if data else None

    def replace(self, key: str, content: bytes, expected: Pointer | None) -> bool:
        for _ in range(_MAX_HEAD_MOVES):
            head = self.repo.hub.resolve(self.repo.name)
            current = self.read_pointer(key, head)
            if current == Pointer(content) or current != expected:
                return current == Pointer(content)
            self.repo.commit(head, f"Write {key}", [UploadFile.from_bytes(self.prefix + key, content)])
        raise RetryableError(f"other commits moved the head {_MAX_HEAD_MOVES} times", self.url, _FIX)

    def _call_with_retries(self, request: Callable[[], T]) -> T:
        return self.repo.hub.call_with_retries(self.repo.name, "main", request)
