"""Removal list of a data root: keyed hashes of the rows that builds leave out.

The list is `removals/list.json`, which is only ever extended. An entry has no id, URL or text in clear: its hash is a
BLAKE2b keyed with `removals/secret.json`, so the list can be published, but not the secret. Selectors of entries:

    id     id of a document, conversation or pair, as its source gives it or as it is derived from the text
    text   text in Unicode NFC, with each run of whitespace as one space
    url    URL in the form of `corpus.urls`
    host   host of a URL; the entry also matches URLs of its subdomains
"""

import functools
import hashlib
import os
import secrets
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, Self

import msgspec

from pipeline_assets.corpus.urls import list_domains, split_url
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.metadata_file import MetadataFile

FORGOTTEN = "forgotten"  # reason of these rows in ledgers
REMOVALS = "removals"  # folder in a data root; key of the list's position in provenance and plans
Selector = Literal["id", "text", "url", "host"]


class RowKeys(NamedTuple):
    """Values of a row that entries can match; `texts` are its text or its sides."""

    id: str
    texts: Iterable[str]
    url: str = ""


class Entry(msgspec.Struct, frozen=True):
    """Entry of the list: date, reason in the user's words, selector, and hex hash."""

    added: str
    reason: str
    selector: Selector
    hash: str


_FIX = "restore it from a backup"
_LIST: MetadataFile[list[Entry]] = MetadataFile("removal list", 1 << 30, _FIX, list[Entry])
_SECRET: MetadataFile[str] = MetadataFile("key of the removal list", 1024, _FIX, str)


@dataclass(frozen=True)
class Removals:
    """Removal list of a data root, or some of its entries.

    Attributes:
        secret: Key of the hashes.
        entries: Selector of each entry by hash, in the order of the list.
        positions: Hash of the list before the first of these entries, and after each of them.
    """

    secret: bytes = field(default=b"", repr=False)
    entries: Mapping[str, Selector] = field(default_factory=dict, repr=False)
    positions: tuple[str, ...] = field(default=("",), repr=False)

    def contains(self, row: RowKeys) -> bool:
        """Check whether an entry matches a row."""
        return any(keyed_hash(self.secret, *value) in self.entries for value in _values(row, self._selectors))

    def matches(self, row: RowKeys) -> set[str]:
        """Return the hashes of all entries that match a row."""
        return {keyed_hash(self.secret, *value) for value in _values(row, self._selectors)} & self.entries.keys()

    def count_at(self, position: str | None) -> int:
        """Return the number of entries up to a position; 0 if the list never had it."""
        return self.positions.index(position) if position in self.positions else 0

    def part(self, start: int, stop: int | None = None) -> Self:
        """Return the entries from number `start` to before `stop` of a whole list."""
        stop = len(self.entries) if stop is None else stop
        chosen = dict([*self.entries.items()][start:stop])
        return replace(self, entries=chosen, positions=self.positions[start : stop + 1])

    @functools.cached_property
    def _selectors(self) -> frozenset[Selector]:
        return frozenset(self.entries.values())


NO_REMOVALS = Removals()


def keyed_hash(secret: bytes, selector: Selector, value: str) -> str:
    """Return the hex hash of an entry for a normalized value."""
    data = f"{selector}\0{value}".encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(data, key=secret, digest_size=32).hexdigest()


def normalize_value(selector: Selector, value: str) -> str:
    """Return the form of an id, text, URL or host that is hashed."""
    if selector == "text":
        return " ".join(unicodedata.normalize("NFC", value).split())
    host, rest = split_url(value) if selector in ("url", "host") else ("", "")
    return (host if selector == "host" else host + rest) if host else value


def _values(row: RowKeys, selectors: frozenset[Selector]) -> Iterator[tuple[Selector, str]]:
    if "id" in selectors:
        yield "id", row.id
    if "text" in selectors:
        yield from (("text", normalize_value("text", text)) for text in row.texts)
    if row.url and selectors & {"url", "host"}:
        yield "url", normalize_value("url", row.url)
        yield from (("host", domain) for domain in list_domains(row.url))


def list_path(root: Path) -> Path:
    return root / REMOVALS / "list.json"


def read_list(root: Path) -> Removals:
    """Read the removal list of a data root; it is empty if the file does not exist."""
    path = list_path(root)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return NO_REMOVALS
    return _read_list(path, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read_list(path: Path, inode: int, size: int, modified_ns: int) -> Removals:
    hashed, stored, positions = hashlib.sha256(), _LIST.read(path), [""]
    for entry in stored:
        hashed.update(f"{entry.selector} {entry.hash}\n".encode())
        positions.append(hashed.hexdigest())
    entries = {entry.hash: entry.selector for entry in stored}
    return Removals(_read_secret(path), entries, positions=tuple(positions))


def entry_dates(root: Path) -> dict[str, str]:
    """Return the date of each entry by its hash."""
    return {entry.hash: entry.added for entry in _LIST.read(list_path(root))}


def _read_secret(path: Path) -> bytes:
    secret = path.with_name("secret.json")
    try:
        return bytes.fromhex(_SECRET.read(secret))
    except (FileNotFoundError, ValueError):
        raise InputError("the key is missing or damaged, so no entry can match", secret, _FIX) from None


def add_entries(root: Path, values: Iterable[tuple[Selector, str]], reason: str, date: str) -> int:
    """Add entries for ids, texts, URLs and hosts; return how many are new.

    The file is replaced in one step, so a crash adds all entries or none. BuilderBusy is raised while another process
    adds entries.
    """
    path = list_path(root)
    with locked(path):
        stored, key_file = _LIST.read(path) if path.exists() else [], path.with_name("secret.json")
        if not stored and not key_file.exists():
            durable.write_durably(key_file, msgspec.json.encode(secrets.token_hex(32)))
            durable.set_mode(key_file, 0o600)
        secret, known, new = _read_secret(path), {entry.hash for entry in stored}, dict[str, Entry]()
        for selector, value in values:
            key = keyed_hash(secret, selector, normalize_value(selector, value))
            if key not in known:
                new[key] = Entry(date, reason, selector, key)
        if new:
            lines = msgspec.json.format(msgspec.json.encode([*stored, *new.values()]), indent=1)
            durable.write_durably(path, lines + b"\n")
        return len(new)
