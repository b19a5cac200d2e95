"""Writes text in blocks, compiled: what stands between them, before an item, at the start of a quoted line.

The state is one record, PAGE, that all functions share. Text goes byte by byte into `out`, of which the caller keeps
ROOM_BYTES free: no call writes more. What the blocks look like is said in `body_text`.
"""

from typing import Any

import numpy as np

from pipeline_assets.corpus.compiled import inner
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes

DEEPEST = 32  # quotes, and lists, within each other; those below are written as if they lay here
ROOM_BYTES = 1024
MAX_TICKS = 100
BULLET, NO_ITEM = -1, -2
NO_GAP, SPACE, NEWLINE = range(3)
FLOW, CODE, PRE = range(3)
_AT_START, NO_LINE_END, _LINE_END = range(3)

PAGE = np.dtype(
    [
        ("start", np.int64),  # where the text begins in `out`
        ("out", np.int64),  # where it goes on
        ("mode", np.int64),  # FLOW; CODE, inside a line; PRE, a block
        ("is_open", np.int64),  # the block at hand has text
        ("gap", np.int64),  # white space seen since its last character
        ("owes_space", np.int64),  # a line has its `>`; a space comes before text
        ("is_tight", np.int64),  # the next block is an item or a table row
        ("was_tight", np.int64),  # the last one was
        ("item", np.int64),  # the marker of the next block: a number, BULLET, NO_ITEM
        ("level", np.int64),  # the lists that it is in
        ("heading", np.int64),  # its level, 0 for none
        ("depth", np.int64),  # open quotes
        ("lowest", np.int64),  # the fewest since the last block
        ("last_depth", np.int64),  # of the last block
        ("lists", np.int64),  # open lists
        ("ticks", np.int64),  # backticks around the code at hand
        ("line_end", np.int64),  # of PRE: whether one is written if more follows
        ("alt_stop", np.int64),  # where the words for the image at hand end in the source; -1 outside
        ("after_alt", np.int64),  # where its tag ends
        ("blank_until", np.int64),  # where in the source the code ends that was last found to have no text
        ("numbers", np.int64, (DEEPEST + 1,)),  # of the next item, by list
        ("outer_lists", np.int64, (DEEPEST + 1,)),  # lists that were open when a quote began, by its depth
    ]
)

Page = Any  # a record of PAGE: numba gives its fields as attributes


@inner
def start_page(page: Page) -> None:
    """Nothing is written, nothing is open."""
    page.start = page.out
    page.mode = FLOW
    page.is_open = page.gap = page.owes_space = page.is_tight = page.was_tight = page.heading = 0
    page.depth = page.lowest = page.last_depth = page.lists = page.blank_until = 0
    page.item = NO_ITEM
    page.alt_stop = -1
    page.outer_lists[0] = 0


@inner
def put(out: Bytes, page: Page, byte: int) -> None:
    """A byte of the line at hand."""
    if page.owes_space:
        page.owes_space = 0
        out[page.out] = 32
        page.out += 1
    out[page.out] = byte
    page.out += 1


@inner
def put_times(out: Bytes, page: Page, byte: int, times: int) -> None:
    for _ in range(times):
        put(out, page, byte)


@inner
def new_line(out: Bytes, page: Page, depth: int) -> None:
    """Ends the line; the next one lies in so many quotes."""
    out[page.out] = 10
    page.out += 1
    _quote_marks(out, page, depth)


@inner
def _quote_marks(out: Bytes, page: Page, depth: int) -> None:
    page.owes_space = 0
    for _ in range(min(depth, DEEPEST)):
        put(out, page, 62)
        page.owes_space = 1


@inner
def end_block(page: Page) -> None:
    """What follows is another block, if there is any."""
    page.is_open = 0
    page.gap = NO_GAP


@inner
def end_word(page: Page) -> None:
    """What follows in the block is another word, if there is any."""
    if page.is_open:
        page.gap = max(page.gap, SPACE)


@inner
def forget_marker(page: Page) -> None:
    """The item or heading is over, whether it had text or not."""
    page.item = NO_ITEM
    page.heading = page.is_tight = 0


@inner
def open_block(out: Bytes, page: Page) -> None:
    """The start of a block: the lines between, its marker."""
    if page.out == page.start:
        _quote_marks(out, page, page.depth)
    else:
        joins = page.is_tight and page.was_tight and page.lowest == page.depth and page.depth == page.last_depth
        if not joins:
            new_line(out, page, page.lowest)
        new_line(out, page, page.depth)
    if page.item != NO_ITEM:
        _put_item(out, page)
    if page.heading:
        put_times(out, page, 35, page.heading)
        put(out, page, 32)
    page.was_tight = page.is_tight
    page.last_depth = page.lowest = page.depth
    page.is_open = 1
    page.gap = NO_GAP
    forget_marker(page)


@inner
def _put_item(out: Bytes, page: Page) -> None:
    put_times(out, page, 32, 2 * (min(page.level, DEEPEST) - 1))
    if page.item == BULLET:
        put(out, page, 45)
    else:
        power = 1
        while power * 10 <= page.item:
            power *= 10
        while power:
            put(out, page, 48 + page.item // power % 10)
            power //= 10
        put(out, page, 46)
    put(out, page, 32)


@inner
def start_item(page: Page) -> None:
    """A list item; a stray one has a bullet."""
    end_block(page)
    page.is_tight = 1
    page.item = BULLET
    page.level = page.lists - page.outer_lists[min(page.depth, DEEPEST)]
    if page.level > 0:
        page.item = page.numbers[min(page.lists, DEEPEST)]
        if page.item != BULLET:
            page.numbers[min(page.lists, DEEPEST)] = page.item + 1


@inner
def start_list(page: Page, first: int) -> None:
    """A list; `first` is the number of its first item, or BULLET."""
    end_block(page)
    page.lists += 1
    page.numbers[min(page.lists, DEEPEST)] = first


@inner
def end_list(page: Page) -> None:
    """The innermost list of the quote at hand, if there is one."""
    end_block(page)
    forget_marker(page)
    if page.lists > page.outer_lists[min(page.depth, DEEPEST)]:
        page.lists -= 1


@inner
def start_quote(out: Bytes, page: Page) -> None:
    end_block(page)
    _put_lonely_marker(out, page)
    page.depth += 1
    page.outer_lists[min(page.depth, DEEPEST)] = page.lists


@inner
def end_quote(page: Page) -> None:
    """The innermost quote, if there is one, and the lists in it."""
    end_block(page)
    if page.depth:
        forget_marker(page)
        page.lists = page.outer_lists[min(page.depth, DEEPEST)]
        page.depth -= 1
        page.lowest = min(page.lowest, page.depth)


@inner
def _put_lonely_marker(out: Bytes, page: Page) -> None:
    """A marker that is due, but can't share its line with the block that follows."""
    if page.item != NO_ITEM:
        open_block(out, page)
        page.out -= 1
        end_block(page)


@inner
def character(out: Bytes, page: Page, byte: int) -> None:
    """The first byte of a character of the text; which white space stays is decided by what follows it."""
    if page.mode == FLOW:
        if byte == 10:
            page.gap = NEWLINE
        elif byte <= 32:
            page.gap = max(page.gap, SPACE)
        else:
            if not page.is_open:
                open_block(out, page)
            elif page.gap == SPACE:
                put(out, page, 32)
            elif page.gap == NEWLINE:
                new_line(out, page, page.depth)
            page.gap = NO_GAP
            put(out, page, byte)
    elif byte != 13:
        if (page.mode == PRE and page.line_end == _LINE_END) or (page.mode == CODE and byte == 10):
            new_line(out, page, page.depth)
        if byte != 10:
            put(out, page, byte)
            page.line_end = NO_LINE_END
        else:
            page.line_end = NO_LINE_END if page.line_end == _AT_START else _LINE_END


@inner
def start_code(out: Bytes, page: Page, ticks: int) -> None:
    """Code inside a line."""
    page.ticks = ticks
    character(out, page, 96)
    if ticks == 2:
        put(out, page, 96)
        put(out, page, 32)
    page.mode = CODE


@inner
def end_code(out: Bytes, page: Page) -> None:
    if page.ticks == 2:
        put(out, page, 32)
        put(out, page, 96)
    put(out, page, 96)
    page.mode = FLOW


@inner
def start_pre(out: Bytes, page: Page, ticks: int) -> None:
    """A block of code: its fence; a language may follow, then `start_pre_text`."""
    _put_lonely_marker(out, page)
    page.is_tight = 0
    open_block(out, page)
    page.ticks = min(ticks, MAX_TICKS)
    put_times(out, page, 96, page.ticks)


@inner
def start_pre_text(out: Bytes, page: Page) -> None:
    """Its first line; line breaks at its very start and end, one each, are dropped."""
    new_line(out, page, page.depth)
    page.line_end = _AT_START
    page.mode = PRE


@inner
def end_pre(out: Bytes, page: Page) -> None:
    new_line(out, page, page.depth)
    put_times(out, page, 96, page.ticks)
    end_block(page)
    page.mode = FLOW
