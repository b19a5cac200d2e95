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

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.filters.characters import (
    CLOSER,
    LINE_FEED,
    SPACE,
    TERMINAL,
    character_classes,
    read_character,
    to_index,
    to_int64,
)
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.phrases import Scope, build_automaton, find_phrases
from pipeline_assets.corpus.filters.recipe import C4Recipe
from pipeline_assets.corpus.filters.thresholds import MAX_TEXT_BYTES, Batch, text_batch

_CITATION = re.compile(rb"\[(?:[0-9]*|edit|citation needed)\]")
# Why a line is removed, in the order in which it is asked.
REMOVED = ("long_word", "no_terminal_punctuation", "few_words", "phrase")
_KEPT, _LONG_WORD, _UNMARKED, _FEW_WORDS, _PHRASE = range(-1, len(REMOVED))


class LineRules(NamedTuple):
    """What a line must have to be kept; `by_code_point` has the recipe's TERMINAL."""

    has_terminal: int
    min_words: int
    max_word_characters: int
    by_code_point: NDArray[np.uint16]


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


_NO_MARK, _MARK, _ENDED = range(3)  # how far a sentence's end has come in marks, closers and blanks


class _Line(NamedTuple):
    """A line as far as its line feed: where it begins and ends without the blanks around it, and what it has there."""

    start: int
    end: int
    feed: int
    words: int
    sentences: int
    is_terminal: bool


@inner
def _read_line(text: NDArray[np.uint8], at: int, stop: int, of_code_point: NDArray[np.uint16]) -> _Line:
    """The line that begins at `at`.

    In a run of marks, closers and blanks a sentence ends once: where after a mark a blank follows or the line ends, or
    at a mark that isn't ASCII.
    """
    words = sentences = last = 0
    start, end, state, is_space = at, at, _NO_MARK, 1
    while at < stop and text[to_index(at)] != LINE_FEED:
        was_space, bits, width = is_space, to_int64(of_code_point[to_index(text[to_index(at)])]), 1
        if text[to_index(at)] >= 0x80:
            bits, width = read_character(text, at, of_code_point)
        is_space = bits & SPACE
        start = at if words == 0 else start
        words += was_space & ~is_space
        end, last = (end, last) if is_space else (at + width, bits)
        if state != _NO_MARK or bits & TERMINAL:
            is_mark = bits & TERMINAL and not bits & (CLOSER | SPACE)
            if not bits & (TERMINAL | CLOSER | SPACE):
                state = _NO_MARK
            elif state != _ENDED and (is_mark or state == _MARK):
                is_end = is_space or (is_mark and width > 1)
                sentences += is_end
                state = _ENDED if is_end else _MARK
        at += width
    is_terminal = last & TERMINAL != 0
    sentences += state == _MARK or (is_terminal and state == _NO_MARK)
    return _Line(start, end, at, words, sentences, is_terminal)


@inner
def _why_removed(text: NDArray[np.uint8], line: _Line, has_phrase: bool, rules: LineRules) -> int:
    characters, at = 0, line.start if line.end - line.start > rules.max_word_characters else line.end
    while at < line.end:
        bits, width = read_character(text, at, rules.by_code_point)
        characters = 0 if bits & SPACE else characters + 1
        if characters > rules.max_word_characters:
            return _LONG_WORD
        at += width
    if rules.has_terminal and not line.is_terminal:
        return _UNMARKED
    if line.words < rules.min_words:
        return _FEW_WORDS
    return _PHRASE if has_phrase else _KEPT


@compiled
def _keep_lines(
    text: NDArray[np.uint8], offsets: NDArray[np.int64], inside: NDArray[np.int64], rules: LineRules
) -> KeptLines:
    """The lines of each document that are kept; a blank line is none.

    Args:
        inside: a byte of each line with a phrase for which it is removed, ascending.
    """
    documents = len(offsets) - 1
    kept, kept_offsets = np.empty_like(text), np.zeros(documents + 1, np.int64)
    lines, sentences = np.zeros(documents, np.int64), np.zeros(documents, np.int64)
    removed = np.zeros((documents, len(REMOVED)), np.int64)
    size = phrases = 0
    for document in range(documents):
        at, stop = offsets[document], offsets[document + 1]
        while at < stop:
            line = _read_line(text, at, stop, rules.by_code_point)
            at = line.feed + 1
            has_phrase = phrases < len(inside) and inside[phrases] < line.feed
            phrases += has_phrase
            if line.words:
                why = _why_removed(text, line, has_phrase, rules)
                lines[document] += 1
                if why == _KEPT:
                    sentences[document] += line.sentences
                    if size > kept_offsets[document]:
                        kept[size] = LINE_FEED
                        size += 1
                    for byte in range(line.end - line.start):
                        kept[to_index(size + byte)] = text[to_index(line.start + byte)]
                    size += line.end - line.start
                else:
                    removed[document, why] += 1
        kept_offsets[document + 1] = size
    return KeptLines(kept[:size], kept_offsets, lines, removed, sentences)


DOCUMENT_PHRASE, BAD_WORD, FEW_SENTENCES, LINES_LEFT = "document_phrase", "bad_word", "few_sentences", "lines_left"


class C4Filter(Filter):
    """What `C4Recipe` asks of lines and documents."""

    def __init__(self, recipe: C4Recipe) -> None:
        self._recipe = recipe
        self._of_code_point = character_classes(recipe.terminal_punctuation or "")
        self._rules = LineRules(
            recipe.terminal_punctuation is not None,
            recipe.min_words_per_line or 0,
            recipe.max_word_characters or MAX_TEXT_BYTES,
            self._of_code_point,
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
        batch = text_batch([candidate.text for candidate in candidates])
        checks = []
        for reason, phrases, automaton in self._unwanted:
            one = np.ones(len(candidates), np.int64)
            found = find_phrases(*batch, automaton, self._of_code_point, one, False).first
            checks.append(_Check(reason, found, None, found >= 0, (*phrases, None)))  # -1 is None
        if self._recipe.remove_citations and _remove_citations(candidates):
            batch = text_batch([candidate.text for candidate in candidates])
        kept = self._kept_lines(batch)
        least = self._recipe.min_sentences
        if least is not None:
            checks.append(_Check(FEW_SENTENCES, kept.sentences, least, kept.sentences < least))
        if self._recipe.remove_lines:
            _remove_lines(candidates, batch, kept)
        if self._recipe.remove_lines or self._recipe.remove_citations:
            left = kept.lines - kept.removed.sum(axis=1) * self._recipe.remove_lines
            checks.append(_Check(LINES_LEFT, left, 1, left < 1))
        return checks

    def _kept_lines(self, batch: Batch) -> KeptLines:
        every = np.full(len(batch.offsets) - 1, len(batch.text) if self._recipe.remove_lines_with else 0)
        inside = find_phrases(*batch, self._line_phrases, self._of_code_point, every, True).line_positions
        return _keep_lines(*batch, inside, self._rules)


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


def _remove_citations(candidates: Sequence[Candidate]) -> int:
    """Takes the markers from the texts; how many there were."""
    total = 0
    for candidate in candidates:
        if b"[" not in candidate.text:  # which is told sooner
            continue
        candidate.text, removed = _CITATION.subn(b"", candidate.text)
        candidate.count("removed/citation", removed)
        total += removed
    return total


def _remove_lines(candidates: Sequence[Candidate], batch: Batch, kept: KeptLines) -> None:
    text, offsets = kept.text.tobytes(), kept.offsets.tolist()
    for document in np.flatnonzero(np.diff(kept.offsets) < np.diff(batch.offsets)).tolist():
        candidates[document].text = text[offsets[document] : offsets[document + 1]]
    for document, reason in np.argwhere(kept.removed).tolist():
        candidates[document].count(f"removed_lines/{REMOVED[reason]}", int(kept.removed[document, reason]))
