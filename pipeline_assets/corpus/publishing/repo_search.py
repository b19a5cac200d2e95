"""Search for forgotten rows in every reachable commit of a dataset repo.

Each distinct file is downloaded once, searched, and deleted. The removal list contains keyed hashes, so only a whole
value can match: an id, a text, one side of a text pair, or a URL. Searched values are the strings of Parquet and JSON
files, lines and words of other text, and decoded rows of token files. URLs are compared only in rows, because cards
contain links, too. Short values such as `7` are compared with ids only in id columns; elsewhere they may be counts.
"""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.codecs import detect_codec, read_decompressed
from pipeline_assets.corpus.formats.compression import align_to_lines
from pipeline_assets.corpus.formats.npy_header import map_npy
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.publishing.hub_repo import HubRepo
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.removals import NUMBERED_ID, Removals, RowKeys
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, RetryableError

_WORD_PATTERN = re.compile(rb"[^\s\"'`,;()<>\[\]{}|]+")
_MAX_JSON_BYTES = 64 << 20  # per line, and per file that is not lines
_MAX_URL_LENGTH, _MIN_ID_LENGTH = 4096, 8  # characters
_ID_COLUMNS = ("id", "doc_id", "uid")
_BATCH_ROWS = 256
_BLOCK_BYTES = 256 << 10  # of a file without compression
_TOKENS_FILE, _ROWS_FILE = "tokens.npy", "rows.parquet"


@dataclass
class RepoSearchResult:
    """Search result of a repo. A place is `REF@COMMIT:PATH`."""

    commits_by_ref: Mapping[str, list[str]]  # newest first
    lfs_hashes_by_ref: Mapping[str, set[str]]  # sha256 of the large files (LFS) in the trees of these commits
    places_by_hash: dict[str, list[str]] = field(default_factory=dict)  # by the hash of the entry found there
    unread_places: list[str] = field(default_factory=list)  # of files that are not text, or are damaged


@dataclass(frozen=True)
class RepoSearch:
    """Search of dataset repos for the entries of a removal list.

    `decode` converts Harmony token ids to text.
    """

    removals: Removals
    decode: Callable[[NDArray[np.int32]], str]
    cache_folder: Path  # for downloads; removed before and after a search

    def search(self, repo: HubRepo, commits_by_ref: Mapping[str, list[str]]) -> RepoSearchResult:
        """Search every file in every commit of each ref; skip files deleted from storage."""
        fresh = replace(repo, hub=replace(repo.hub, cache=self.cache_folder))
        durable.remove(self.cache_folder)
        result = RepoSearchResult(commits_by_ref, list_lfs_hashes(fresh, commits_by_ref))
        stored = repo.call_library(
            lambda api: {None, *(file.file_oid for file in api.list_lfs_files(repo.name, repo_type="dataset"))}
        )
        known: dict[str, Collection[str] | None] = {}
        for ref, commit in ((ref, commit) for ref, reached in commits_by_ref.items() for commit in reached):
            files = fresh.list_files(commit)
            for path, file in files.items():
                rows_path = path.removesuffix(_TOKENS_FILE) + _ROWS_FILE
                rows_file = files.get(rows_path) if path.endswith(_TOKENS_FILE) else None
                key = f"{file.digest} {rows_file and rows_file.digest}"
                if key not in known:
                    is_deleted = _lfs_sha256(file) not in stored and _is_deleted(fresh, commit, file)
                    known[key] = () if is_deleted else self._search_file(fresh, commit, file, rows_file)
                place = f"{ref}@{commit}:{path}"
                if (entries := known[key]) is None:
                    result.unread_places.append(place)
                for entry in entries or ():
                    result.places_by_hash.setdefault(entry, []).append(place)
        durable.remove(self.cache_folder)
        return result

    def _search_file(self, repo: HubRepo, commit: str, file: HubFile, index: HubFile | None) -> Collection[str] | None:
        """Return the hashes of the entries that match a file; None if it is unreadable.

        If reading fails after the first match, the matches are returned. `index` is the row index of a token file, and
        None for other files.
        """
        paths = [repo.hub.fetch(repo.name, commit, part).path for part in (file, index) if part is not None]
        values = read_row_keys(paths[0]) if index is None else self._decode_rows(*paths)
        found = set[str]()
        try:
            for row in values:
                found |= self.removals.matching_hashes(row)
            return found
        except RetryableError:  # this machine's disk failed
            raise
        except (InputError, ValueError, LookupError, TypeError):
            return found or None
        finally:
            for path in paths:
                path.unlink()

    def _decode_rows(self, tokens_file: Path, rows_file: Path) -> Iterator[RowKeys]:
        """Decode each row of a token file; raise ValueError if a row is not Harmony text."""
        ids = map_npy(tokens_file)
        with StoredParquet(rows_file) as table:
            for batch in table.iter_batches(columns=["first_token", "tokens"]):
                for first, count in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    text = self.decode(ids[first : first + count])
                    if not text.startswith("<|start|>"):
                        raise ValueError("not Harmony")
                    yield RowKeys("", (text,))


def list_lfs_hashes(repo: HubRepo, commits_by_ref: Mapping[str, list[str]]) -> dict[str, set[str]]:
    """Return the sha256 of the large files (LFS) in the trees of commits, by ref."""
    return {
        ref: {
            digest for commit in reached for file in repo.list_files(commit).values() if (digest := _lfs_sha256(file))
        }
        for ref, reached in commits_by_ref.items()
    }


def _lfs_sha256(file: HubFile) -> str | None:
    """Return the digits of a file's sha256; None if the file is not in LFS."""
    kind, _, digits = file.digest.partition(":")
    return digits if kind == "sha256" else None


def read_row_keys(path: Path) -> Iterator[RowKeys]:
    """Yield the values of a Parquet, JSON or text file as `RowKeys` (id, texts, URL).

    JSON and text may be compressed. An .npy file with a loss mask has no values; other binary files raise ValueError.
    """
    with open(path, "rb", buffering=0) as file:
        head = file.read(1 << 10)
        if head.startswith(b"PAR1"):
            with StoredParquet(path) as table:
                for batch in table.iter_batches(_BATCH_ROWS):
                    yield from _row_keys(batch.to_pylist(), is_row=True)
            return
        if head.startswith(b"\x93NUMPY") and b"'|b1'" in head:
            return  # a loss mask
        codec = detect_codec(head)
        if codec is None and b"\0" in head:
            raise ValueError("not text")
        if head[:1] in (b"{", b"[") and path.stat().st_size <= _MAX_JSON_BYTES:
            yield from _json_keys(path.read_bytes(), is_row=False)
        file.seek(0)
        block_bytes = 1 if codec else _BLOCK_BYTES  # search all lines before the damage of a compressed file
        for block in align_to_lines(read_decompressed(file, codec, path, "", block_bytes), path, "", _MAX_JSON_BYTES):
            for line in block.splitlines():
                yield from _json_keys(line, is_row=True)
                parts = [part.decode(errors="replace") for part in (line, *_WORD_PATTERN.findall(line))]
                yield from _row_keys(parts, is_row=False)


def _json_keys(json_text: bytes, *, is_row: bool) -> Iterator[RowKeys]:
    with contextlib.suppress(ValueError, RecursionError):
        yield from _row_keys(json.loads(json_text), is_row=is_row)


def _row_keys(value: object, *, is_row: bool) -> Iterator[RowKeys]:
    """Yield `RowKeys` for each string and each key in nested lists and mappings.

    If `is_row`, each string that is short enough for a URL is also the URL in its `RowKeys`.
    """
    waiting = [("", value)]
    while waiting:
        match waiting.pop():
            case name, str(text):
                row_id = text if name in _ID_COLUMNS or len(text) >= _MIN_ID_LENGTH else ""
                yield RowKeys(row_id, (text,), text if is_row and len(text) <= _MAX_URL_LENGTH else "")
                if name in _ID_COLUMNS and (numbered := NUMBERED_ID.fullmatch(text)):
                    yield RowKeys(numbered[1], ())
            case _, dict(mapping):
                waiting += [*mapping.items(), *(("", key) for key in mapping)]
            case name, list(items):
                waiting += [(name, item) for item in items]


def _is_deleted(repo: HubRepo, commit: str, file: HubFile) -> bool:
    """Check whether the content of a file was deleted from the storage."""
    client = repo.hub.client()
    url = f"{client.address}/datasets/{repo.name}/resolve/{commit}/{quote(file.path)}"

    def fetch() -> bool:
        with client.stream(url, url, Range="bytes=0-0") as response:
            is_deleted = response.status_code in (403, 404, 410)
            if not is_deleted:
                client.raise_for_status(response)
            return is_deleted

    return repo.hub.call_with_retries(repo.name, commit, fetch)
