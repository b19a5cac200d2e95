"""Lines kept and removed as for C4: Raffel et al. 2020 (T5, JMLR 21:140), section 2.2.

The paper retains lines that end in a terminal punctuation mark ("a period, exclamation mark, question mark, or end
quotation mark") and have at least 5 words, removes lines with the word Javascript and lines with six phrases about
policies and cookies, removes citation markers, and discards pages with fewer than 3 sentences, with "lorem ipsum", with
a curly bracket, or with a bad word. (Its first version on arXiv said 3 words and 5 sentences; datatrove still does.)

The paper, not its code or datatrove's, decides what the two don't share: a line that ends in an ellipsis ends in a
period and stays, a page is discarded for a phrase wherever it stands, also in a line that is removed.
The paper names no rule for sentences (its code asks NLTK's trained Punkt). Here one ends at terminal punctuation that
whitespace or the line's end follows, closing quotation marks and brackets between them allowed; at any that isn't ASCII
(。！？), whatever follows; and at the end of a line that ends as it must.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.filters.code_points import (
    CLOSER,
    MULTIBYTE,
    SPACE,
    TERMINAL,
    CharacterClasses,
    read_character,
    wide,
)
from pipeline_assets.corpus.filters.words import LINE_FEED

_CITATION = re.compile(rb"\[(?:[0-9]*|edit|citation needed)\]")
# Why a line is removed, in the order in which it is asked.
REMOVED = ("long_word", "no_terminal_punctuation", "few_words", "phrase")
_KEPT, _LONG_WORD, _NO_MARK, _FEW_WORDS, _PHRASE = range(-1, len(REMOVED))
_NO_SENTENCE_END, _MAYBE, _CERTAIN = 0, 1, 2


class LineLimits(NamedTuple):
    """What a line must have to be kept; 0 asks nothing."""

    has_terminal: int
    min_words: int
    max_word_characters: int


class KeptLines(NamedTuple):
    """What is left of a batch of documents.

    Attributes:
        text: kept lines without the whitespace around them, one line feed between two. uint8.
        offsets: where each document begins in it, and where the last ends. int64.
        lines: of each document, kept or not; a blank one is none. int64.
        removed: those that went, by reason, shape (documents, reasons). int64.
        sentences: of each document, in its kept lines. int64.
    """

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    lines: NDArray[np.int64]
    removed: NDArray[np.int64]
    sentences: NDArray[np.int64]


def without_citations(text: bytes) -> tuple[bytes, int]:
    """The text without markers like [1], [edit] and [citation needed], and how many there were."""
    return _CITATION.subn(b"", text) if b"[" in text else (text, 0)


class _Line(NamedTuple):
    """A line: the byte after it, its bytes without the whitespace around, and what decides on it."""

    stop: int
    start: int
    end: int
    words: int
    longest_word: int
    is_terminal: bool
    sentences: int


@compiled
def _read_line(text: NDArray[np.uint8], at: int, stop: int, classes: CharacterClasses) -> _Line:
    of_byte, of_code_point = classes
    start = end = at
    words = characters = longest = sentences = last = 0
    mark = _NO_SENTENCE_END
    while at < stop and text[at] != LINE_FEED:
        bits, width = wide(of_byte[text[at]]), 1
        if bits & MULTIBYTE:
            bits, width = read_character(text, at, of_code_point)
        if bits & SPACE:
            sentences += mark == _MAYBE
            mark = _CERTAIN if mark == _MAYBE else mark
            characters = 0
        else:
            start = at if words == 0 else start
            words += characters == 0
            characters += 1
            longest = max(longest, characters)
            end, last = at + width, bits
            if bits & CLOSER == 0:
                if bits & TERMINAL == 0:
                    mark = _NO_SENTENCE_END
                elif width > 1:
                    sentences += mark != _CERTAIN
                    mark = _CERTAIN
                else:
                    mark = max(mark, _MAYBE)
        at += width
    is_terminal = last & TERMINAL != 0
    sentences += mark == _MAYBE or (is_terminal and mark == _NO_SENTENCE_END)
    return _Line(at, start, end, words, longest, is_terminal, sentences)


@compiled
def _why_removed(line: _Line, has_phrase: bool, limits: LineLimits) -> int:
    if 0 < limits.max_word_characters < line.longest_word:
        return _LONG_WORD
    if limits.has_terminal and not line.is_terminal:
        return _NO_MARK
    if line.words < limits.min_words:
        return _FEW_WORDS
    return _PHRASE if has_phrase else _KEPT


@compiled
def keep_lines(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    classes: CharacterClasses,
    inside: NDArray[np.int64],
    limits: LineLimits,
) -> KeptLines:
    """The lines of each document that are kept; a blank line is none.

    Args:
        inside: a byte of each line with a phrase for which it is removed, ascending.
    """
    documents = len(offsets) - 1
    kept = np.empty(len(text), np.uint8)
    kept_offsets = np.zeros(documents + 1, np.int64)
    lines = np.zeros(documents, np.int64)
    removed = np.zeros((documents, len(REMOVED)), np.int64)
    sentences = np.zeros(documents, np.int64)
    size = phrases = 0
    for document in range(documents):
        at, stop = offsets[document], offsets[document + 1]
        while at < stop:
            line = _read_line(text, at, stop, classes)
            at = line.stop + 1
            has_phrase = phrases < len(inside) and inside[phrases] < line.stop
            phrases += has_phrase
            if line.words == 0:
                continue
            lines[document] += 1
            why = _why_removed(line, has_phrase, limits)
            if why != _KEPT:
                removed[document, why] += 1
                continue
            sentences[document] += line.sentences
            if size > kept_offsets[document]:
                kept[size] = LINE_FEED
                size += 1
            for place in range(line.start, line.end):  # a slice would take seconds to compile
                kept[size] = text[place]
                size += 1
        kept_offsets[document + 1] = size
    return KeptLines(kept[:size], kept_offsets, lines, removed, sentences)
