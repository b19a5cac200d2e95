"""Masking of e-mail and public IP addresses, as in FineWeb.

The filter drops nothing. Its two patterns are those of datatrove's PIIFormatter. An e-mail address has three parts: a
dot-atom of RFC 5322 that begins at a word boundary; `@`; and a domain of two or more labels, or an address in brackets.
An IP address is four decimal octets without leading zeros, even if more digits adjoin it. Only public ones are masked.

The masks are FineWeb's. The first address of a document is replaced with the first mask, the next address with the next
mask, and so on in a cycle. In datatrove, the mask depends on earlier documents.
"""

import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import re2
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.characters import DOT
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import MaskingRecipe
from pipeline_assets.corpus.filters.text_batch import TextBatch, join_texts

EMAIL_MASKS = (b"email@example.com", b"firstname.lastname@example.org")
IP_MASKS = (
    b"22.214.171.124",
    b"126.96.36.199",
    b"188.8.131.52",
    b"184.108.40.206",
    b"220.127.116.11",
    b"18.104.22.168",
)
_ATOM_BYTE = rb"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_DOMAIN_LABEL = rb"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_OCTET = rb"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
_BYTE_OPTIONS = re2.Options()
_BYTE_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_IP = re2.compile(rb"(?:%b\.){3}%b" % (_OCTET, _OCTET), _BYTE_OPTIONS)
_MAX_DOT_DISTANCE = 8  # bytes from the first dot of an address to the third
_ADDRESS_LITERAL = rb"\[(?:%b\.){3}(?:%b|[A-Za-z0-9-]*[A-Za-z0-9]:)\]" % (_OCTET, _OCTET)
_DOMAIN = re2.compile(rb"(?:%b\.)+%b|%b" % (_DOMAIN_LABEL, _DOMAIN_LABEL, _ADDRESS_LITERAL), _BYTE_OPTIONS)
_DOT_ATOM_BYTES = bytes(byte for byte in range(128) if re.match(_ATOM_BYTE + rb"|\.", bytes([byte])))
_ATOM_START = re.compile(rb"\b" + _ATOM_BYTE)
# Special-purpose networks that are not globally reachable, from IANA's registry (RFC 6890).
_RESERVED = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"
)
RESERVED_NETWORKS = tuple(map(ipaddress.IPv4Network, _RESERVED.split()))
FindSpans = Callable[[bytes], Iterator[tuple[int, int]]]


class MaskingFilter(Filter):
    """Filter that masks the kinds of addresses that a `MaskingRecipe` selects."""

    def __init__(self, recipe: MaskingRecipe) -> None:
        self._recipe = recipe

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Mask the addresses that the recipe selects, and count them in `changes`."""
        if self._recipe.emails:
            for candidate in candidates:
                if b"@" in candidate.text:
                    _mask_spans(candidate, "masked/email", _email_spans, EMAIL_MASKS)
        if self._recipe.public_ips:
            batch = join_texts([candidate.text for candidate in candidates])
            for document in _documents_with_dotted_numbers(batch).tolist():
                _mask_spans(candidates[document], "masked/ip", _public_ip_spans, IP_MASKS)

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Mask the addresses in a document; return [], because the filter drops nothing."""
        self.apply([candidate])
        return []


def _mask_spans(candidate: Candidate, count_key: str, find_spans: FindSpans, masks: Sequence[bytes]) -> None:
    text, end = candidate.text, 0
    spans, parts = list(find_spans(text)), list[bytes]()
    if not spans:
        return
    for (start, stop), mask in zip(spans, itertools.cycle(masks), strict=False):
        parts += (text[end:start], mask)
        end = stop
    candidate.text = b"".join([*parts, text[end:]])
    candidate.record_changes(count_key, len(spans))


def _email_spans(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the span of each e-mail address, in bytes."""
    search_start = 0
    while (at_sign := text.find(b"@", search_start)) >= 0:
        start = _address_start(text, search_start, at_sign)
        search_start = at_sign + 1
        if start is not None and (domain := _DOMAIN.match(text, at_sign + 1)):
            search_start = domain.end()
            yield start, search_start


def _address_start(text: bytes, search_start: int, at_sign: int) -> int | None:
    """Return the start of the dot-atom before an `@`; None if missing.

    `at_sign` is the position of the `@`. The dot-atom begins at a word boundary, and not before `search_start`, because
    earlier bytes may belong to another address.
    """
    # Find the longest run of dot-atom bytes before the `@`. A dot-atom cannot contain `..`, so it begins after the last
    # `..` of the run.
    first = search_start + len(text[search_start:at_sign].rstrip(_DOT_ATOM_BYTES))
    dots = text.rfind(b"..", first, at_sign)
    first = first if dots < 0 else dots + 2
    if first >= at_sign or text[at_sign - 1] == ord("."):
        return None
    before = text[max(0, first - 4) : first].decode(errors="ignore")[-1:]  # a character has at most four bytes
    if before.isalnum() and not before.isascii():  # `_ATOM_START` sees no letters beyond ASCII
        is_word = text[first : first + 1].isalnum() or text[first] == ord("_")
        if not is_word and text[first] != ord("."):
            return first
        first += is_word
    match = _ATOM_START.search(text, first, at_sign)
    return match.start() if match else None


def _documents_with_dotted_numbers(batch: TextBatch) -> NDArray[np.int64]:
    """Return the indices of the documents that may have an IP address.

    Such documents have three dots close together, each between two digits.
    """
    # This search takes a tenth of the time in which RE2 finds that a text has no address.
    dots = np.flatnonzero(batch.text[1:-1] == DOT) + 1  # +1 because the slice begins at byte 1
    # uint8 wraps around, so bytes below "0" become large numbers and one comparison is enough.
    digits = [batch.text[dots + offset] - np.uint8(ord("0")) <= 9 for offset in (-1, 1)]
    dots = dots[digits[0] & digits[1]]
    # Of three dots in a row, the middle one counts if the first and the third are close enough.
    middle = dots[1:-1][dots[2:] - dots[:-2] <= _MAX_DOT_DISTANCE]
    # A byte belongs to the last document that begins at or before it.
    return np.unique(np.searchsorted(batch.offsets, middle, "right") - 1)


def _public_ip_spans(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the byte span of each public IPv4 address that has no leading zeros."""
    for match in _IP.finditer(text):
        try:
            address = ipaddress.IPv4Address(match.group().decode())
        except ValueError:
            continue
        if not any(address in network for network in RESERVED_NETWORKS):
            yield match.span()
