"""Reads the HTML of bodies, compiled: one pass over their bytes, as a dump has them.

That is HTML escaped for XML: `&lt;` opens a tag, `&gt;` closes it, `&amp;lt;` is a less-than sign of the text. What is
rare (tags in which quotes or brackets don't match, references that HTML forgives) is left to `body_text`, which tidies
it up and calls again.
"""

import numpy as np

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes, Integers
from pipeline_assets.corpus.readers.stackexchange.eight_marks import (
    Eights,
    controls,
    eight_times,
    first_marked,
    marks_of,
    zeros,
)
from pipeline_assets.corpus.readers.stackexchange.html_references import reference
from pipeline_assets.corpus.readers.stackexchange.html_tags import BR, CODE_TAG, PRE_TAG, close_tag, open_tag
from pipeline_assets.corpus.readers.stackexchange.markup_bytes import NOT_CLEAR, QUOTE, end_of_tag, find, is_at, name_at
from pipeline_assets.corpus.readers.stackexchange.text_layout import (
    CODE,
    FLOW,
    NO_GAP,
    NO_LINE_END,
    PAGE,
    PRE,
    ROOM_BYTES,
    Page,
    character,
    end_code,
    end_pre,
    end_word,
    put,
    start_page,
)

UNTIDY, FULL = -1, -2
_NOTHING = -2
_COMMENT, _COMMENT_END = map(tuple, (b"!--", b"--&gt;"))
_AMPERSAND, _SLASH = b"&/"
_EIGHT_SPACES, _EIGHT_AMPERSANDS, _EIGHT_C2S = map(eight_times, (32, _AMPERSAND, 0xC2))
_EIGHT_FOURS = eight_times(QUOTE ^ _AMPERSAND)  # the bit in which these two differ
_ONE_BYTE, _LAST_BYTE = np.uint64(8), np.uint64(0xFF << 56)


@compiled
def render(
    source: Bytes,
    eights: Eights,
    starts: Integers,
    stops: Integers,
    first: int,
    out: Bytes,
    eights_out: Eights,
    written: int,
    ends: Integers,
) -> int:
    """The texts of bodies, one behind the other, into `out`.

    Args:
        source: in which the bodies lie, see `markup_bytes`.
        eights, eights_out: `eight_bytes_at_each` byte of the source, and of `out`.
        starts, stops: where.
        first: the body to begin with.
        written: bytes of `out` that are taken.
        ends: is filled: where each text ends in `out`; UNTIDY, and nothing written, for one that has to be tidied up.
    Returns:
        The body at which `out` is full; how many there are if all are done.
    """
    page = np.zeros(1, PAGE)[0]
    for number in range(first, len(starts)):
        page.out = written
        status = _render_body(source, eights, starts[number], stops[number], out, eights_out, page)
        if status == FULL:
            return number
        ends[number] = status
        written = max(written, status)
    return len(starts)


@inner
def _render_body(source: Bytes, eights: Eights, at: int, stop: int, out: Bytes, eights_out: Eights, page: Page) -> int:
    """Where its text ends in `out`; a negative status."""
    start_page(page)
    while at < stop:
        if page.out + ROOM_BYTES > len(out):
            return FULL
        if at == page.alt_stop:
            at, page.alt_stop = page.after_alt, -1
            end_word(page)
            continue
        point, following = int(source[at]), 0
        if point == _AMPERSAND:
            at, point = _escape(source, at + 1, out, page)
            if point == NOT_CLEAR:
                return UNTIDY
            following = 0 if point < 0x80 else 1 if point < 0x800 else 2
        elif point == 0xC2 and source[at + 1] == 0xA0:
            at, point, following = at + 2, 0xA0, 1
        else:
            at += 1
        if point == 0xA0 and page.mode == FLOW:
            point, following = 32, 0
        if point != _NOTHING:
            character(out, page, point if following == 0 else (0x1E << 6 - following & 0xFF) | point >> 6 * following)
            for later in range(following - 1, -1, -1):
                put(out, page, 0x80 | point >> 6 * later & 0x3F)
            at = _copy_plain(eights, at, eights_out, page)
    if page.mode == CODE:
        end_code(out, page)
    elif page.mode == PRE:
        end_pre(out, page)
    return int(page.out)


@inner
def _copy_plain(eights: Eights, at: int, eights_out: Eights, page: Page) -> int:
    """Copies bytes that need no second look; where that ends."""
    is_flow = page.mode == FLOW
    is_in_line = page.gap == NO_GAP if is_flow else page.line_end == NO_LINE_END and not page.owes_space
    if not is_in_line:
        return at
    written, stop = page.out, len(eights_out) - ROOM_BYTES
    while written < stop:
        eight = eights[at]
        marks = _not_plain_in_flow(eight) if is_flow else _not_plain_in_code(eight)
        eights_out[written] = eight  # what is too much of it is written over
        count = first_marked(marks) if marks else 8
        at += count
        written += count
        if count < 7:
            break
    page.out = written
    return at


@inner
def _not_plain_in_code(eight: np.uint64) -> np.uint64:
    """Marks `&`, the quote that ends the body, control characters."""
    return marks_of(zeros((eight | _EIGHT_FOURS) ^ _EIGHT_AMPERSANDS) | controls(eight))


@inner
def _not_plain_in_flow(eight: np.uint64) -> np.uint64:
    """Marks these, the first byte of a no-break space, and a space if what follows is marked or isn't known."""
    spaces = zeros(eight ^ _EIGHT_SPACES)
    marks = _not_plain_in_code(eight) | zeros(eight ^ _EIGHT_C2S)
    return marks_of(marks | spaces & ((marks | spaces) >> _ONE_BYTE | _LAST_BYTE))


@inner
def _escape(source: Bytes, at: int, out: Bytes, page: Page) -> tuple[int, int]:
    """What an ampersand of the XML begins: (where it ends, the code point to write, _NOTHING or NOT_CLEAR)."""
    if not (source[at] == 108 and source[at + 1] == 116 and source[at + 2] == 59):
        return reference(source, at)
    at += 3
    if is_at(source, at, _COMMENT):
        end = find(source, at + 3, len(source), _COMMENT_END)
        return end + 6, _NOTHING if source[end] != QUOTE else NOT_CLEAR
    is_closing = source[at] == _SLASH
    first = at + 1 if is_closing else at
    name, end_of_name = name_at(source, first, 32)
    end = end_of_tag(source, end_of_name)
    if end_of_name == first or source[first] < 65 or end == NOT_CLEAR:
        return at, NOT_CLEAR
    if name == BR:
        return end, 10
    if page.mode == PRE:
        if is_closing and name == PRE_TAG:
            end_pre(out, page)
    elif page.mode == CODE:
        if is_closing and name == CODE_TAG:
            end_code(out, page)
    elif is_closing:
        close_tag(name, page)
    else:
        end = open_tag(source, name, end_of_name, end, out, page)
        if end == NOT_CLEAR:
            return at, NOT_CLEAR
    return end, _NOTHING
