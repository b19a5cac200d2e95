"""The filter that drops nothing: it masks e-mail and public IP addresses in what is kept, as FineWeb did, by the two
patterns of datatrove's PIIFormatter.

An e-mail address is a dot-atom of RFC 5322 that begins at a word boundary, `@`, and a domain of two labels or more, or
an address in brackets. An IP address is four decimal octets, wherever they stand, that are public. RE2 finds them, in
time that grows with the text alone.

The masks are FineWeb's. They take turns; each document begins with the first, so that a document's text doesn't depend
on those before it (datatrove takes turns over all that a worker reads).
"""

import ipaddress
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
import re2
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.characters import DOT
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import MaskingRecipe
from pipeline_assets.corpus.filters.thresholds import Batch, text_batch

MASKED_EMAIL, MASKED_IP = "masked/email", "masked/ip"
EMAIL_MASKS = (b"email@example.com", b"firstname.lastname@example.org")
IP_MASKS = (
    b"22.214.171.124",
    b"126.96.36.199",
    b"188.8.131.52",
    b"184.108.40.206",
    b"220.127.116.11",
    b"18.104.22.168",
)
_ATOM = rb"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LABEL = rb"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_OCTET = rb"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
_IP = re2.compile(rb"(?:%b\.){3}%b" % (_OCTET, _OCTET), _BYTES)
_ZERO = ord("0")
_CLOSE = 8  # bytes from the first dot of an address to the third, at most
_LITERAL = rb"\[(?:%b\.){3}(?:%b|[A-Za-z0-9-]*[A-Za-z0-9]:)\]" % (_OCTET, _OCTET)
_DOMAIN = re2.compile(rb"(?:%b\.)+%b|%b" % (_LABEL, _LABEL, _LITERAL), _BYTES)
_DOT_ATOM_BYTES = bytes(byte for byte in range(128) if re.match(_ATOM + rb"|\.", bytes([byte])))
_START = re.compile(rb"\b" + _ATOM)
# Special-purpose networks that aren't globally reachable, of IANA's registry (RFC 6890).
_RESERVED = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"
)
RESERVED = tuple(map(ipaddress.IPv4Network, _RESERVED.split()))


class Masking(Filter):
    """Which addresses `MaskingRecipe` masks."""

    def __init__(self, recipe: MaskingRecipe) -> None:
        self._recipe = recipe

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Masks the addresses of each document, and counts them."""
        if self._recipe.emails:
            for candidate in candidates:
                _mask(candidate, MASKED_EMAIL, list(_emails(candidate.text)), EMAIL_MASKS)
        if self._recipe.public_ips:
            batch = text_batch([candidate.text for candidate in candidates])
            for document in _documents_with_numbers(batch).tolist():
                _mask(candidates[document], MASKED_IP, list(_public_ips(candidates[document].text)), IP_MASKS)

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Masks too; there is nothing that it drops for."""
        self.apply([candidate])
        return []


def _mask(candidate: Candidate, name: str, spans: Sequence[tuple[int, int]], masks: Sequence[bytes]) -> None:
    if not spans:
        return
    text, end = candidate.text, 0
    parts: list[bytes] = []
    for (start, stop), mask in zip(spans, itertools.cycle(masks), strict=False):
        parts += (text[end:start], mask)
        end = stop
    candidate.text = b"".join([*parts, text[end:]])
    candidate.count(name, len(spans))


def _emails(text: bytes) -> Iterator[tuple[int, int]]:
    """First byte and the byte after of each address."""
    free = 0
    while (at := text.find(b"@", free)) >= 0:
        start = _start(text, free, at)
        free = at + 1
        if start is not None and (domain := _DOMAIN.match(text, at + 1)):
            free = domain.end()
            yield start, free


def _start(text: bytes, free: int, at: int) -> int | None:
    """Where the dot-atom before an `@` begins: at a word boundary. Bytes before `free` belong to another address."""
    first = free + len(text[free:at].rstrip(_DOT_ATOM_BYTES))
    dots = text.rfind(b"..", first, at)
    first = first if dots < 0 else dots + 2
    if first >= at or text[at - 1] == ord("."):
        return None
    before = text[max(0, first - 4) : first].decode(errors="ignore")[-1:]
    if before.isalnum() and not before.isascii():  # of these letters `_START` knows nothing
        is_word = text[first : first + 1].isalnum() or text[first] == ord("_")
        if not is_word and text[first] != ord("."):
            return first
        first += is_word
    found = _START.search(text, first, at)
    return found.start() if found else None


def _documents_with_numbers(batch: Batch) -> NDArray[np.int64]:
    """Documents with three dots that have a digit on both sides and lie close together: a tenth of what RE2 takes to
    find no address.
    """
    dots = np.flatnonzero(batch.text[1:-1] == DOT) + 1
    digits = [batch.text[dots + beside] - np.uint8(_ZERO) <= 9 for beside in (-1, 1)]
    dots = dots[digits[0] & digits[1]]
    middle = dots[1:-1][dots[2:] - dots[:-2] <= _CLOSE]
    return np.unique(np.searchsorted(batch.offsets, middle, "right") - 1)


def _public_ips(text: bytes) -> Iterator[tuple[int, int]]:
    """As `_emails`, of IPv4 addresses; one that has a leading zero is none."""
    for found in _IP.finditer(text):
        try:
            address = ipaddress.IPv4Address(found.group().decode())
        except ValueError:
            continue
        if not any(address in network for network in RESERVED):
            yield found.span()
