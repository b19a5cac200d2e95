"""Words, lines and paragraphs of a document.

A word is a maximal run without whitespace, as in `str.split`. A line ends at a line feed; a line without a word does
not count. A paragraph is a run of lines with no blank line between them. So neither CRLF nor indentation matters.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled_inner
from pipeline_assets.corpus.filters.characters import (
    DOT,
    HASH_SIGN,
    LINE_FEED,
    RARE_COUNTED,
    SPACE,
    read_class_bits,
    to_index,
    to_int64,
)

_THREE_DOTS, _ELLIPSIS = (int.from_bytes(mark.encode()) for mark in ("...", "…"))  # three bytes each


class TextCount(IntEnum):
    """Columns of an array of counts, which has one row per document."""

    CHARACTERS = 0
    ASCII_CHARACTERS = 1
    WORDS = 2
    WORD_CHARACTERS = 3
    SYMBOLS = 4
    ALPHABETIC_WORDS = 5
    HASHES = 6
    ELLIPSES = 7
    LINES = 8
    BULLET_LINES = 9
    ELLIPSIS_LINES = 10
    PARAGRAPHS = 11
    STOP_WORDS = 12
    DUPLICATE_LINES = 13
    DUPLICATE_LINE_CHARACTERS = 14
    DUPLICATE_PARAGRAPHS = 15
    DUPLICATE_PARAGRAPH_CHARACTERS = 16
    TOP_2_GRAM = 17
    TOP_3_GRAM = 18
    TOP_4_GRAM = 19
    DUPLICATE_5_GRAMS = 20
    DUPLICATE_6_GRAMS = 21
    DUPLICATE_7_GRAMS = 22
    DUPLICATE_8_GRAMS = 23
    DUPLICATE_9_GRAMS = 24
    DUPLICATE_10_GRAMS = 25
    BOILERPLATE_LINES = 26


class WordSpans(NamedTuple):
    """Words, lines and paragraphs of one document.

    The arrays may have further entries, which are meaningless.
    """

    starts: NDArray[np.int32]  # position in the document of the first byte of each word
    ends: NDArray[np.int32]  # position in the document after the last byte of each word
    characters_before: NDArray[np.int32]  # number of characters in the words before each word; then the total
    lines: NDArray[np.int32]  # index of the first word of each line; then the number of words
    paragraphs: NDArray[np.int32]  # index of the first word of each paragraph; then the number of words


def allocate_spans(max_bytes: int) -> WordSpans:
    """Allocate spans for texts of up to `max_bytes`; unused pages take no memory."""
    words = max_bytes // 2 + 2  # a word takes a byte and a space, which the last may lack; one entry follows the last
    return WordSpans(*(np.empty(words, np.int32) for _ in WordSpans._fields))


@compiled_inner
def find_words(
    text: NDArray[np.uint8],
    offset: int,
    byte_count: int,
    classes: NDArray[np.uint16],
    words: WordSpans,
    counts: NDArray[np.int64],
) -> None:
    """Find the words, lines and paragraphs of a document, and fill its `counts`.

    The document is `text[offset : offset + byte_count]`. `counts` has the shape (len(TextCount),); before the call, all
    counts must be 0, except the count of stop words, which this function does not change.
    """
    starts, ends, characters_before = words.starts, words.ends, words.characters_before
    at = started = ended = 0  # byte in the document, words that started, words that ended
    non_ascii_bytes = continuation_bytes = symbols = alphabetic = has_letter = word_characters = 0
    line = dots = 0  # first word of the current line, dots in a row
    # `feeds` counts line feeds since the last line with a word; from 2 on, blank lines end no further paragraph, so it
    # begins at 2.
    # `lines` and `paragraphs` count the current one too, although it may have no word yet.
    is_space, last_dot, feeds, lines, paragraphs = 1, -2, 2, 1, 1
    words.lines[0] = words.paragraphs[0] = 0
    # The loop writes a possible start and end at every character, and increases the index only where a word starts or
    # ends. So no branch depends on the lengths of words: processors would mispredict it, which costs more than a write.
    while at < byte_count:
        was_space, byte, width = is_space, text[to_index(offset + at)], 1
        bits = to_int64(classes[to_index(byte)])
        if byte >= 0x80:  # not ASCII: decode two to four bytes
            bits, width = read_class_bits(text, offset + at, classes)
            non_ascii_bytes += width
            continuation_bytes += width - 1
        is_space, is_letter = bits & SPACE, bits >> 1 & 1  # both 0 or 1: SPACE is bit 0, LETTER bit 1
        # Entry `started` is overwritten until a word starts, and then keeps the values of this character. Entry `ended`
        # is overwritten until the word ends.
        starts[to_index(started)], ends[to_index(ended)] = at, at
        characters_before[to_index(started)] = word_characters
        # Both flags are 0 or 1, so `a & ~b` is 1 exactly if a is 1 and b is 0.
        started += was_space & ~is_space
        ended += is_space & ~was_space
        word_characters += is_space ^ 1
        alphabetic += is_letter & ~has_letter  # at the first letter of a word
        has_letter = (has_letter | is_letter) & ~is_space  # whitespace resets it for the next word
        symbols += bits >> 2 & 1  # SYMBOL is bit 2
        if bits & RARE_COUNTED:  # one branch for the four rare characters that need more work
            if byte == LINE_FEED:
                if started > line:  # the line has a word, so the next word begins another line
                    words.lines[lines] = line = started
                    lines += 1
                    feeds = 0
                feeds += 1
                if feeds == 2:  # the first blank line after a line with words ends the paragraph
                    words.paragraphs[paragraphs] = line
                    paragraphs += 1
            elif byte == DOT:
                dots = dots + 1 if last_dot == at - 1 else 1
                last_dot = at
                counts[TextCount.ELLIPSES] += dots % 3 == 0  # each third dot of a run completes an ellipsis
            else:
                counts[TextCount.HASHES if byte == HASH_SIGN else TextCount.ELLIPSES] += 1
        at += width
    ends[ended] = byte_count  # the end of the last word, if no whitespace follows it
    characters_before[started] = word_characters
    # Drop the current line and paragraph if they have no word: they would begin after the last one.
    lines -= words.lines[lines - 1] == started
    paragraphs -= words.paragraphs[paragraphs - 1] == started
    words.lines[lines] = words.paragraphs[paragraphs] = started
    counts[TextCount.CHARACTERS] = byte_count - continuation_bytes
    counts[TextCount.ASCII_CHARACTERS] = byte_count - non_ascii_bytes
    counts[TextCount.WORDS], counts[TextCount.WORD_CHARACTERS] = started, word_characters
    counts[TextCount.SYMBOLS], counts[TextCount.ALPHABETIC_WORDS] = symbols, alphabetic
    counts[TextCount.LINES], counts[TextCount.PARAGRAPHS] = lines, paragraphs
    _count_line_marks(text, offset, classes, words, counts)


@compiled_inner
def _count_line_marks(
    text: NDArray[np.uint8], offset: int, classes: NDArray[np.uint16], words: WordSpans, counts: NDArray[np.int64]
) -> None:
    """Count lines that begin with a bullet, and lines that end with an ellipsis."""
    for item in range(counts[TextCount.LINES]):
        first, last = words.lines[item], words.lines[item + 1] - 1
        bits, _ = read_class_bits(text, offset + words.starts[first], classes)
        counts[TextCount.BULLET_LINES] += bits >> 3 & 1  # BULLET is bit 3
        if words.ends[last] - words.starts[last] >= 3:
            # The last three bytes of the line's last word as one number, the first byte highest as in `from_bytes`.
            end = offset + words.ends[last]
            tail = to_int64(text[end - 3]) << 16 | to_int64(text[end - 2]) << 8 | to_int64(text[end - 1])
            counts[TextCount.ELLIPSIS_LINES] += tail in (_THREE_DOTS, _ELLIPSIS)
