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
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, eight_bytes_at_each, inner
from pipeline_assets.corpus.filters.phrases import Scope, build_automaton, count_phrases, lines_with_phrases
from pipeline_assets.corpus.filters.recipe import C4Recipe
from pipeline_assets.corpus.filters.thresholds import Batch, batch_of
from pipeline_assets.corpus.filters.verdict import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.words import (
    CLOSER,
    LINE_FEED,
    MULTIBYTE,
    SPACE,
    TERMINAL,
    CharacterClasses,
    character_classes,
    read_character,
    wide,
)

_CITATION = re.compile(rb"\[(?:[0-9]*|edit|citation needed)\]")
# Why a line is removed, in the order in which it is asked.
REMOVED = ("long_word", "no_terminal_punctuation", "few_words", "phrase")
_KEPT, _LONG_WORD, _NO_MARK, _FEW_WORDS, _PHRASE = range(-1, len(REMOVED))
_NO_SENTENCE_END, _MAYBE, _CERTAIN = 0, 1, 2
_TOLD_APART = SPACE | MULTIBYTE | CLOSER | TERMINAL


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


@inner
def _read_line(text: NDArray[np.uint8], at: int, stop: int, classes: CharacterClasses) -> _Line:
    of_byte, of_code_point = classes
    start = end = at
    words = characters = longest = sentences = last = 0
    mark = _NO_SENTENCE_END
    while at < stop and text[at] != LINE_FEED:
        begin = at
        while at < stop and of_byte[text[at]] & _TOLD_APART == 0:
            at += 1
        if at > begin:
            bits, width = 0, at - begin
            at = begin
            inside = 0
        else:
            bits, width = wide(of_byte[text[at]]), 1
            if bits & MULTIBYTE:
                bits, width = read_character(text, at, of_code_point)
            inside = width - 1
        if bits & SPACE:
            sentences += mark == _MAYBE
            mark = _CERTAIN if mark == _MAYBE else mark
            characters = 0
        else:
            start = at if words == 0 else start
            words += characters == 0
            characters += width - inside
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


@inner
def _why_removed(line: _Line, has_phrase: bool, limits: LineLimits) -> int:
    if 0 < limits.max_word_characters < line.longest_word:
        return _LONG_WORD
    if limits.has_terminal and not line.is_terminal:
        return _NO_MARK
    if line.words < limits.min_words:
        return _FEW_WORDS
    return _PHRASE if has_phrase else _KEPT


@compiled
def _keep_lines(
    text: NDArray[np.uint8],
    eights: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    classes: CharacterClasses,
    inside: NDArray[np.int64],
    limits: LineLimits,
    kept: NDArray[np.uint8],
    eights_out: NDArray[np.uint64],
) -> KeptLines:
    """The lines of each document that are kept; a blank line is none.

    Args:
        inside: a byte of each line with a phrase for which it is removed, ascending.
        kept: room for what is kept; `eights_out` is a view of it.
    """
    documents = len(offsets) - 1
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
            for place in range(line.start, line.end, 8):  # what is copied beyond the line is overwritten, or cut off
                eights_out[size + place - line.start] = eights[place]
            size += line.end - line.start
        kept_offsets[document + 1] = size
    return KeptLines(kept[:size], kept_offsets, lines, removed, sentences)


DOCUMENT_PHRASE, BAD_WORD, FEW_SENTENCES, LINES_LEFT = "document_phrase", "bad_word", "few_sentences", "lines_left"


class C4Filter(Filter):
    """What `C4Recipe` asks of lines and documents."""

    def __init__(self, recipe: C4Recipe) -> None:
        self._recipe = recipe
        self._classes = character_classes(recipe.terminal_punctuation or "")
        self._limits = LineLimits(
            recipe.terminal_punctuation is not None, recipe.min_words_per_line or 0, recipe.max_word_characters or 0
        )
        self._line_phrases = build_automaton([(phrase, Scope.ANYWHERE) for phrase in recipe.remove_lines_with])
        self._unwanted = [
            (reason, phrases, build_automaton([(phrase, scope) for phrase in phrases]))
            for reason, phrases, scope in (
                (DOCUMENT_PHRASE, recipe.drop_documents_with, Scope.ANYWHERE),
                (BAD_WORD, recipe.bad_words, Scope.WORDS),
            )
            if phrases
        ]

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Fails documents, and takes from all what the recipe removes."""
        for check in self._checks(candidates):
            for document in np.flatnonzero(check.is_failed).tolist():
                candidates[document].fail(check.measurement(document))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """What each rule sees in a document, from which it takes what the recipe removes."""
        return [check.measurement(0) for check in self._checks([candidate])]

    def _checks(self, candidates: Sequence[Candidate]) -> list["_Check"]:
        batch = batch_of([candidate.text for candidate in candidates])
        checks = []
        for reason, phrases, automaton in self._unwanted:
            _, found = count_phrases(batch.text, batch.offsets, automaton, self._classes.of_code_point, 1)
            checks.append(_Check(reason, found, None, found >= 0, (*phrases, None)))  # -1 is None
        if self._recipe.remove_citations and _remove_citations(candidates):
            batch = batch_of([candidate.text for candidate in candidates])
        kept = self._kept_lines(batch)
        least = self._recipe.min_sentences
        if least is not None:
            checks.append(_Check(FEW_SENTENCES, kept.sentences, least, kept.sentences < least))
        if self._recipe.remove_lines:
            _remove_lines(candidates, kept)
        if self._recipe.remove_lines or self._recipe.remove_citations:
            left = kept.lines - kept.removed.sum(axis=1) * self._recipe.remove_lines
            checks.append(_Check(LINES_LEFT, left, 1, left < 1))
        return checks

    def _kept_lines(self, batch: Batch) -> KeptLines:
        wanted = np.full(len(batch.offsets) - 1, len(self._recipe.remove_lines_with) > 0)
        inside, _ = lines_with_phrases(
            batch.text, batch.offsets, self._line_phrases, self._classes.of_code_point, wanted
        )
        kept = np.empty_like(batch.text)
        eights, eights_out = eight_bytes_at_each(batch.text), eight_bytes_at_each(kept, writeable=True)
        return _keep_lines(batch.text, eights, batch.offsets, self._classes, inside, self._limits, kept, eights_out)


class _Check(NamedTuple):
    """A rule held against a batch; what is measured are numbers, or places in a list of phrases."""

    reason: str
    measured: NDArray[np.integer]
    limit: int | None
    is_failed: NDArray[np.bool_]
    phrases: tuple[str | None, ...] | None = None

    def measurement(self, document: int) -> Measurement:
        number = int(self.measured[document])
        value = number if self.phrases is None else self.phrases[number]
        return Measurement(self.reason, value, self.limit, bool(self.is_failed[document]))


def _remove_citations(candidates: Sequence[Candidate]) -> bool:
    """Takes the markers from the texts; whether there was one."""
    total = 0
    for candidate in candidates:
        candidate.text, removed = without_citations(candidate.text)
        candidate.count("removed/citation", removed)
        total += removed
    return total > 0


def _remove_lines(candidates: Sequence[Candidate], kept: KeptLines) -> None:
    text, offsets = kept.text.tobytes(), kept.offsets.tolist()
    for document, candidate in enumerate(candidates):
        candidate.text = text[offsets[document] : offsets[document + 1]]
    for document, reason in np.argwhere(kept.removed).tolist():
        candidates[document].count(f"removed_lines/{REMOVED[reason]}", int(kept.removed[document, reason]))
