"""E-mail and public IP addresses, found and masked as for FineWeb: the two patterns of datatrove's PIIFormatter.

An e-mail address is a dot-atom of RFC 5322 that begins at a word boundary, `@`, and a domain of two labels or more, or
an address in brackets. IP addresses are looked for between those. Each pattern is matched from the left and without
overlap, as a regular expression would, but in time that grows with the text alone.

The masks are FineWeb's. They take turns; each document begins with the first, so that a document's text doesn't depend
on those before it (datatrove takes turns over all that a worker reads).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.filters.ip_addresses import ALNUM, ATOM, DOT, find_ips, octet_at
from pipeline_assets.corpus.filters.words import WORD, character_before, read_character

EMAIL_MASKS = (b"email@example.com", b"firstname.lastname@example.org")
IP_MASKS = (
    b"22.214.171.124",
    b"126.96.36.199",
    b"188.8.131.52",
    b"184.108.40.206",
    b"220.127.116.11",
    b"18.104.22.168",
)
_AT, _HYPHEN, _COLON, _OPEN, _CLOSE = (ord(character) for character in "@-:[]")


class Addresses(NamedTuple):
    """Addresses to mask, in the order of the text: of a batch of documents.

    Attributes:
        spans: first byte and the byte after, shape (addresses, 2), int64.
        is_email: shape (addresses,), uint8.
        offsets: of each document the first of its addresses, and their number last. int64.
    """

    spans: NDArray[np.int64]
    is_email: NDArray[np.uint8]
    offsets: NDArray[np.int64]


@compiled
def _email_start(
    text: NDArray[np.uint8], start: int, free: int, at: int, kinds: NDArray[np.uint8], bits: NDArray[np.uint16]
) -> int:
    """Where the address begins that has its `@` at `at`; `at` if none does. Bytes before `free` belong to another."""
    first = place = at
    while place > free:
        place -= 1
        if kinds[text[place]] & ATOM:
            first = place
        elif text[place] != DOT or first != place + 1 or first == at:
            break
    was_word = first > start and read_character(text, character_before(text, first), bits)[0] & WORD != 0
    for place in range(first, at):
        is_word = bits[text[place]] & WORD != 0
        if is_word != was_word and text[place] != DOT:
            return place
        was_word = is_word
    return at


@compiled
def _domain_end(text: NDArray[np.uint8], at: int, stop: int, kinds: NDArray[np.uint8]) -> int:
    """The byte after the domain that begins at `at`; `at` if there is none. A label begins and ends alphanumeric."""
    if at < stop and text[at] == _OPEN:
        return _literal_end(text, at, stop, kinds)
    end = label = at
    while label < stop and kinds[text[label]] & ALNUM:
        last = place = label
        while place < stop and (kinds[text[place]] & ALNUM or text[place] == _HYPHEN):
            last = place if text[place] != _HYPHEN else last
            place += 1
        if label > at:
            end = last + 1
        if last + 1 != place or place == stop or text[place] != DOT:
            break
        label = place + 1
    return end


@compiled
def _literal_end(text: NDArray[np.uint8], at: int, stop: int, kinds: NDArray[np.uint8]) -> int:
    """As `_domain_end`, of an address in brackets: three octets, and a fourth or a tag with a colon."""
    place = at + 1
    for _ in range(3):
        width = octet_at(text, place, stop, kinds)
        if width == 0 or place + width == stop or text[place + width] != DOT:
            return at
        place += width + 1
    last = tag = place
    while tag < stop and (kinds[text[tag]] & ALNUM or text[tag] == _HYPHEN):
        last = tag
        tag += 1
    width = octet_at(text, place, stop, kinds)
    if width and place + width == tag and tag < stop and text[tag] == _CLOSE:
        return tag + 1
    if place < tag < stop - 1 and text[last] != _HYPHEN and text[tag] == _COLON and text[tag + 1] == _CLOSE:
        return tag + 2
    return at


@compiled
def find_addresses(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    masked: tuple[bool, bool],
    kinds: NDArray[np.uint8],
    reserved: NDArray[np.int64],
    bits: NDArray[np.uint16],
) -> Addresses:
    """The addresses of each document.

    Args:
        masked: whether e-mail addresses are looked for, and IP addresses.
        bits: of code points.
    """
    room = 1
    for byte in text:
        room += byte in (_AT, DOT)
    spans, is_email = np.empty((room, 2), np.int64), np.zeros(room, np.uint8)
    first_of = np.zeros(len(offsets), np.int64)
    found = 0
    for document in range(len(offsets) - 1):
        free, stop = offsets[document], offsets[document + 1]
        for at in range(free, stop):
            if text[at] == _AT and masked[0]:
                start = _email_start(text, offsets[document], free, at, kinds, bits)
                end = _domain_end(text, at + 1, stop, kinds) if start < at else at + 1
                if end > at + 1:
                    if masked[1]:
                        found = find_ips(text, free, start, kinds, reserved, spans, found)
                    spans[found, 0], spans[found, 1], is_email[found] = start, end, 1
                    found += 1
                    free = end
        if masked[1]:
            found = find_ips(text, free, stop, kinds, reserved, spans, found)
        first_of[document + 1] = found
    return Addresses(spans[:found], is_email[:found], first_of)


def with_masks(text: bytes, spans: NDArray[np.int64], is_email: NDArray[np.uint8]) -> bytes:
    """A document with its addresses replaced; spans count from its own first byte."""
    parts: list[bytes] = []
    taken = [0, 0]
    end = 0
    for (start, stop), kind in zip(spans.tolist(), is_email.tolist(), strict=True):
        masks = EMAIL_MASKS if kind else IP_MASKS
        parts += (text[end:start], masks[taken[kind] % len(masks)])
        taken[kind] += 1
        end = stop
    return b"".join([*parts, text[end:]])
