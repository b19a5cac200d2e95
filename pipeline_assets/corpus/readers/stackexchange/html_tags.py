"""What tags do to the layout of a text, compiled."""

from pipeline_assets.corpus.compiled import inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes
from pipeline_assets.corpus.readers.stackexchange.markup_bytes import (
    NOT_CLEAR,
    QUOTE,
    end_of_tag,
    find,
    is_at,
    is_digit,
    is_word,
    number_of,
)
from pipeline_assets.corpus.readers.stackexchange.text_layout import (
    BULLET,
    NO_GAP,
    SPACE,
    Page,
    end_block,
    end_list,
    end_quote,
    end_word,
    forget_marker,
    open_block,
    put,
    put_times,
    start_code,
    start_item,
    start_list,
    start_pre,
    start_pre_text,
    start_quote,
)

BR, CODE_TAG, PRE_TAG = map(number_of, ("br", "code", "pre"))
_BLOCKQUOTE, _HR, _LI, _OL, _UL = map(number_of, ("blockquote", "hr", "li", "ol", "ul"))
_SUP, _TD, _TH, _TR, _H1, _H6 = map(number_of, ("sup", "td", "th", "tr", "h1", "h6"))
_BREAKS = tuple(map(number_of, ("p", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tfoot")))
_IMG = number_of("img")
_START, _LANG = map(tuple, (b"start=&quot;", b"lang-"))
_ALT, _QUOTED = map(tuple, (b"alt=", b"&quot;"))
# What the sites' editor puts there for whoever says nothing: of two images in five.
_NO_ALT_1, _NO_ALT_2 = map(tuple, (b"enter image description here&quot;", b"alt text&quot;"))
_CODE_END, _PRE_END, _TAG_START = map(tuple, (b"&lt;/code", b"&lt;/pre", b"&lt;"))
_BACKTICK, _AMPERSAND, _HASH, _CARET, _PARENTHESIS, _BAR, _MINUS, _PLUS, _UNDERSCORE = b"`&#^)|-+_"
_LONGEST_LANGUAGE = 30


@inner
def close_tag(name: int, page: Page) -> None:
    """A closing tag, outside code."""
    if name in _BREAKS:
        end_block(page)
    elif name in (_LI, _TR) or _H1 <= name <= _H6:
        end_block(page)
        forget_marker(page)
    elif name in (_UL, _OL):
        end_list(page)
    elif name == _BLOCKQUOTE:
        end_quote(page)


@inner
def open_tag(source: Bytes, name: int, end_of_name: int, end: int, out: Bytes, page: Page) -> int:
    """An opening tag, outside code, that ends before `end`; where the text goes on, NOT_CLEAR where that isn't told."""
    if name in _BREAKS:
        end_block(page)
    elif name == CODE_TAG:
        _open_code(source, end, out, page)
    elif name == _LI:
        start_item(page)
    elif name in (_UL, _OL):
        start_list(page, BULLET if name == _UL else _first_number(source, end_of_name, end))
    elif name == _BLOCKQUOTE:
        start_quote(out, page)
    elif _H1 <= name <= _H6:
        end_block(page)
        page.heading = name - _H1 + 1
    elif name == PRE_TAG:
        return _open_pre(source, end_of_name, end, out, page)
    elif name == _HR:
        end_block(page)
        forget_marker(page)
        open_block(out, page)
        put_times(out, page, _MINUS, 3)
        end_block(page)
    elif name == _SUP:
        if page.is_open and page.gap == NO_GAP and _is_power(source, end):
            before = out[page.out - 1]
            if is_word(before) or before == _PARENTHESIS:
                put(out, page, _CARET)
    elif name == _TR:
        end_block(page)
        page.is_tight = 1
    elif name in (_TD, _TH) and page.is_open:
        put(out, page, 32)
        put(out, page, _BAR)
        page.gap = SPACE
    elif name == _IMG:
        return _open_image(source, end_of_name, end, page)
    return end


@inner
def _open_image(source: Bytes, at: int, end: int, page: Page) -> int:
    """Where the words begin that stand for the image; the tag's end if there are none."""
    is_quoted = False
    while at < end:
        if is_at(source, at, _QUOTED):
            is_quoted = not is_quoted
        elif not is_quoted and source[at - 1] != _MINUS and not is_word(source[at - 1]) and _is_alt(source, at):
            at += len(_ALT)
            if not is_at(source, at, _QUOTED):
                return NOT_CLEAR
            at += len(_QUOTED)
            if is_at(source, at, _QUOTED) or is_at(source, at, _NO_ALT_1) or is_at(source, at, _NO_ALT_2):
                return end
            page.alt_stop = find(source, at, end, _QUOTED)
            page.after_alt = end
            end_word(page)
            return at
        at += 1
    return end


@inner
def _is_alt(source: Bytes, at: int) -> bool:
    for offset in range(len(_ALT)):  # noqa: SIM110, numba has no all()
        if source[at + offset] | 32 != _ALT[offset] | 32:
            return False
    return True


@inner
def _first_number(source: Bytes, at: int, end: int) -> int:
    """Of an ordered list: 1 unless it says otherwise."""
    at = find(source, at, end, _START) + len(_START)
    number, first = 0, at
    while at < end and at - first < 9 and is_digit(source[at]):
        number = 10 * number + source[at] - 48
        at += 1
    return number if at > first else 1


@inner
def _is_power(source: Bytes, at: int) -> bool:
    """Whether text begins with a number, or is one letter."""
    if source[at] == _PLUS or source[at] == _MINUS:
        at += 1
    after = source[at + 1]
    is_one = is_word(source[at]) and not (is_word(after) or after == _UNDERSCORE or after >= 0x80)
    return is_one or is_digit(source[at])


@inner
def _open_code(source: Bytes, at: int, out: Bytes, page: Page) -> None:
    """Code inside a line, if there is any; of what was looked through and has none, no tag asks again."""
    if at < page.blank_until:
        return
    has_text, backticks, stop = _look_ahead(source, at, _CODE_END)
    if not has_text:
        page.blank_until = stop
    else:
        start_code(out, page, 2 if backticks else 1)


@inner
def _open_pre(source: Bytes, end_of_name: int, end: int, out: Bytes, page: Page) -> int:
    """Where the text of the block begins; where it ends, if there is nothing in it."""
    end_block(page)
    has_text, backticks, stop = _look_ahead(source, end, _PRE_END)
    if not has_text:
        return stop
    start_pre(out, page, max(3, backticks + 1))
    at = find(source, end_of_name, end, _LANG) + len(_LANG)
    stop = min(end, at + _LONGEST_LANGUAGE)
    while at < stop and (is_word(source[at]) or source[at] in (_HASH, _PLUS, _MINUS, _UNDERSCORE)):
        put(out, page, source[at])
        at += 1
    start_pre_text(out, page)
    return end


@inner
def _look_ahead(source: Bytes, at: int, end_word: tuple[int, ...]) -> tuple[bool, int, int]:
    """What is in code: (whether there is more than white space, the most backticks in a row, where it ends)."""
    has_text, most, run = False, 0, 0
    while source[at] != QUOTE and not is_at(source, at, end_word):
        run = run + 1 if source[at] == _BACKTICK else 0
        most = max(most, run)
        if is_at(source, at, _TAG_START):
            at = max(end_of_tag(source, at + 4), at + 4)
        elif source[at] == _AMPERSAND and source[at + 1] == _HASH:  # &#xA;
            at += 5
        else:
            has_text = has_text or source[at] != 32
            at += 1
    return has_text, most, at
