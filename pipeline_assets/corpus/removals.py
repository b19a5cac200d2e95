"""Removals: keyed hashes (BLAKE2b) that select the rows that builds omit.

`removal_list` reads them from a data root. An entry has one of these selectors:

    id     id of a document, conversation or pair, from its source or derived from its text
    text   text in Unicode NFC, with each run of whitespace as one space
    url    URL in the form of `corpus.urls`
    host   host of a URL; the entry also matches URLs of its subdomains
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Self

from pipeline_assets.corpus.urls import list_domains, split_url

FORGOTTEN = "forgotten"  # reason of these rows in ledgers
REMOVALS_FOLDER = "removals"  # in a data root
REMOVALS_KEY = "removals"  # of the list's position in provenance and plans
NUMBERED_ID = re.compile(r"(.*)#[0-9]+", re.DOTALL)  # an id that a build may have numbered, because it was repeated
Selector = Literal["id", "text", "url", "host"]


class RowKeys(NamedTuple):
    """Values of a row that entries can match; `texts` holds both sides of a pair."""

    id: str
    texts: Iterable[str]
    url: str = ""


@dataclass(frozen=True)
class Removals:
    """Removal list of a data root, or some of its entries.

    Attributes:
        secret: Key of the hashes.
        entries: Map from the hash of each entry to its selector, in the order of the list.
        positions: Position before the first entry, then the position after each entry. A position is the hash of all
            entries of the list up to this point; the start of the list has the position "".
    """

    secret: bytes = field(default=b"", repr=False)
    entries: Mapping[str, Selector] = field(default_factory=dict, repr=False)
    positions: tuple[str, ...] = field(default=("",), repr=False)

    def matches(self, row: RowKeys) -> bool:
        """Check whether an entry matches a row."""
        return not self.entries.keys().isdisjoint(self._hashes(row))

    def matches_value(self, selector: Selector, value: str) -> bool:
        """Check whether an entry with this selector matches a value."""
        return keyed_hash(self.secret, selector, normalize_value(selector, value)) in self.entries

    def matching_hashes(self, row: RowKeys) -> set[str]:
        """Return the hashes of all entries that match a row."""
        return self.entries.keys() & set(self._hashes(row))

    def count_before(self, position: str | None) -> int:
        """Return the number of entries before `position`; 0 if the list lacks `position`."""
        return self.positions.index(position) if position in self.positions else 0

    def sublist(self, start: int, stop: int | None = None) -> Self:
        """Return a removal list of the entries [start, stop); without `stop`, to the end."""
        stop = len(self.entries) if stop is None else stop
        chosen = dict([*self.entries.items()][start:stop])
        return replace(self, entries=chosen, positions=self.positions[start : stop + 1])

    @functools.cached_property
    def _selectors(self) -> frozenset[Selector]:
        return frozenset(self.entries.values())

    def _hashes(self, row: RowKeys) -> Iterator[str]:
        """Yield the hashes by which entries can match a row."""
        if "id" in self._selectors:
            yield keyed_hash(self.secret, "id", row.id)
        if "text" in self._selectors:
            yield from (keyed_hash(self.secret, "text", normalize_value("text", text)) for text in row.texts)
        if row.url and self._selectors & {"url", "host"}:
            yield keyed_hash(self.secret, "url", normalize_value("url", row.url))
            yield from (keyed_hash(self.secret, "host", domain) for domain in list_domains(row.url))


NO_REMOVALS = Removals()


def keyed_hash(secret: bytes, selector: Selector, value: str) -> str:
    """Return the hex hash of an entry for a normalized value."""
    data = f"{selector}\0{value}".encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(data, key=secret, digest_size=32).hexdigest()


def normalize_value(selector: Selector, value: str) -> str:
    """Return the normalized form in which an id, text, URL or host is hashed."""
    if selector == "text":
        return " ".join(unicodedata.normalize("NFC", value).split())
    host, rest = split_url(value) if selector in ("url", "host") else ("", "")
    return (host if selector == "host" else host + rest) if host else value
