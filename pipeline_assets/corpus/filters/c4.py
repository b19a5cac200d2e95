"""C4 filters of lines and documents.

Source: Raffel et al. 2020 (T5, JMLR 21:140), section 2.2. The paper keeps lines that end in a terminal punctuation mark
("a period, exclamation mark, question mark, or end quotation mark") and have at least 5 words. It removes lines with
the word Javascript, lines with one of six phrases about policies and cookies, and citation markers. It discards pages
with fewer than 3 sentences, with "lorem ipsum", with a curly bracket, or with a bad word. (Its first version on arXiv
has 3 words and 5 sentences, as datatrove still does.)

Where the paper differs from its code or from datatrove, this module follows the paper. A line that ends in an ellipsis
ends in a period and is kept. "lorem ipsum", a curly bracket or a bad word discards the page, even in a removed line.
The paper does not define sentences; its code uses NLTK's trained Punkt. Here a mark is terminal punctuation other than
a closing quotation mark or bracket. A sentence ends:

- at a mark before whitespace or the line's end; closing quotation marks and brackets may come between them;
- at a mark that is not ASCII (。！？), whatever follows;
- at the end of a line whose last character is terminal punctuation of any kind.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner
from pipeline_assets.corpus.filters.characters import (
    CLOSER,
    LINE_FEED,
    SPACE,
    TERMINAL,
    character_classes,
    read_class_bits,
    to_index,
    to_int64,
)
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.phrases import PhraseScope, build_automaton, find_phrases
from pipeline_assets.corpus.filters.recipe import C4Recipe
from pipeline_assets.corpus.filters.text_batch import MAX_TEXT_BYTES, TextBatch, join_texts

_CITATION = re.compile(rb"\[(?:[0-9]*|edit|citation needed)\]")
# Reasons to remove a line, in the order in which they are checked.
_LINE_REASONS = ("long_word", "no_terminal_punctuation", "few_words", "phrase")
_KEPT, _LONG_WORD, _NO_TERMINAL, _FEW_WORDS, _PHRASE = range(-1, len(_LINE_REASONS))


class LineRules(NamedTuple):
    """Rules of a `C4Recipe` for lines, with the table of `character_classes`."""

    needs_terminal_end: bool
    min_words: int
    max_word_characters: int
    classes: NDArray[np.uint16]


class KeptLines(NamedTuple):
    """Kept lines of a batch of documents, and counts of all lines."""

    text: NDArray[np.uint8]  # kept lines, stripped of whitespace at both ends; line feeds join the lines of a document
    offsets: NDArray[np.int64]  # start of each document in `text`, then the end of `text`; shape (documents + 1,)
    line_counts: NDArray[np.int64]  # lines with a word, kept or removed, in each document; shape (documents,)
    removal_counts: NDArray[np.int64]  # removed lines by document and reason, shape (documents, reasons)
    sentence_counts: NDArray[np.int64]  # sentences in the kept lines of each document, shape (documents,)


# States within a run of terminal marks, closers and spaces: no mark yet, a mark that has not ended the sentence, ended.
_BEFORE_MARK, _AFTER_MARK, _SENTENCE_ENDED = range(3)


class _Line(NamedTuple):
    """Bounds and counts of one line of a document."""

    text_start: int  # position of the first byte that is not whitespace
    text_end: int  # position after the last byte that is not whitespace
    line_end: int  # position of the line feed, or the end of the document
    words: int
    sentences: int
    has_terminal_end: bool  # the last character before `text_end` is terminal punctuation


@compiled_inner
def _measure_line(text: NDArray[np.uint8], position: int, document_end: int, classes: NDArray[np.uint16]) -> _Line:
    """Measure the line that begins at byte `position` of a document.

    Sentence ends are counted in runs of characters. A run begins at a mark such as `!`, and includes the marks, closing
    quotation marks, closing brackets and whitespace that follow. At most one sentence ends in a run.
    """
    words = sentences = last = 0  # `last` has the class bits of the last character that is not whitespace
    start, end, state = position, position, _BEFORE_MARK
    is_space = 1  # the line's start counts as whitespace: a word may begin there
    while position < document_end and text[to_index(position)] != LINE_FEED:
        was_space, bits, width = is_space, to_int64(classes[to_index(text[to_index(position)])]), 1
        if text[to_index(position)] >= 0x80:  # not ASCII: decode two to four bytes
            bits, width = read_class_bits(text, position, classes)
        is_space = bits & SPACE  # 0 or 1, because SPACE is the lowest bit
        start = position if words == 0 else start  # moves on until the first word, at whose first character it stops
        words += was_space & ~is_space  # 1 only where a 1 is followed by a 0: the first character of a word
        end, last = (end, last) if is_space else (position + width, bits)
        if state != _BEFORE_MARK or bits & TERMINAL:  # in such a run, or at its first mark
            is_mark = bits & TERMINAL and not bits & (CLOSER | SPACE)
            if not bits & (TERMINAL | CLOSER | SPACE):  # another character ends the run
                state = _BEFORE_MARK
            elif state != _SENTENCE_ENDED and (is_mark or state == _AFTER_MARK):
                is_end = is_space or (is_mark and width > 1)  # a wide mark is not ASCII and needs no space after it
                sentences += is_end
                state = _SENTENCE_ENDED if is_end else _AFTER_MARK
        position += width
    has_terminal_end = last & TERMINAL != 0
    # The line's end ends a sentence after a mark, and after a closer that is terminal punctuation itself.
    sentences += state == _AFTER_MARK or (has_terminal_end and state == _BEFORE_MARK)
    return _Line(start, end, position, words, sentences, has_terminal_end)


@compiled_inner
def _removal_reason(text: NDArray[np.uint8], line: _Line, has_phrase: bool, rules: LineRules) -> int:
    # A word cannot have more characters than its line has bytes, so most lines skip the search for a long word.
    may_be_long = line.text_end - line.text_start > rules.max_word_characters
    characters, at = 0, line.text_start if may_be_long else line.text_end
    while at < line.text_end:
        bits, width = read_class_bits(text, at, rules.classes)
        characters = 0 if bits & SPACE else characters + 1
        if characters > rules.max_word_characters:
            return _LONG_WORD
        at += width
    if rules.needs_terminal_end and not line.has_terminal_end:
        return _NO_TERMINAL
    if line.words < rules.min_words:
        return _FEW_WORDS
    return _PHRASE if has_phrase else _KEPT


@compiled
def _keep_lines(batch: TextBatch, phrase_positions: NDArray[np.int64], rules: LineRules) -> KeptLines:
    """Copy the kept lines of each document; count lines, removals and sentences.

    `phrase_positions` has, in ascending order, the position of one byte in each line that contains a phrase of
    `remove_lines_with`.
    """
    text, offsets = batch
    documents = len(offsets) - 1
    kept, kept_offsets = np.empty_like(text), np.zeros(documents + 1, np.int64)
    line_counts, sentence_counts = np.zeros(documents, np.int64), np.zeros(documents, np.int64)
    removal_counts = np.zeros((documents, len(_LINE_REASONS)), np.int64)
    size = used_positions = 0  # bytes written, entries of `phrase_positions` in earlier lines
    for document in range(documents):
        at, stop = offsets[document], offsets[document + 1]
        while at < stop:
            line = _measure_line(text, at, stop, rules.classes)
            at = line.line_end + 1
            # The next unused position is in this line or in a later one.
            has_phrase = used_positions < len(phrase_positions) and phrase_positions[used_positions] < line.line_end
            used_positions += has_phrase
            if line.words:
                reason = _removal_reason(text, line, has_phrase, rules)
                line_counts[document] += 1
                if reason == _KEPT:
                    sentence_counts[document] += line.sentences
                    if size > kept_offsets[document]:  # not the document's first kept line
                        kept[size] = LINE_FEED
                        size += 1
                    for byte in range(line.text_end - line.text_start):
                        kept[to_index(size + byte)] = text[to_index(line.text_start + byte)]
                    size += line.text_end - line.text_start
                else:
                    removal_counts[document, reason] += 1
        kept_offsets[document + 1] = size
    return KeptLines(kept[:size], kept_offsets, line_counts, removal_counts, sentence_counts)


class C4Filter(Filter):
    """Filter of lines and documents by a `C4Recipe`."""

    def __init__(self, recipe: C4Recipe) -> None:
        self._recipe = recipe
        self._rules = LineRules(
            needs_terminal_end=recipe.terminal_punctuation is not None,
            min_words=recipe.min_words_per_line or 0,
            max_word_characters=recipe.max_word_characters or MAX_TEXT_BYTES,
            classes=character_classes(recipe.terminal_punctuation or ""),
        )
        self._line_phrases = build_automaton([(phrase, PhraseScope.ANYWHERE) for phrase in recipe.remove_lines_with])
        self._unwanted = [
            (reason, phrases, build_automaton([(phrase, scope) for phrase in phrases]))
            for reason, phrases, scope in (
                ("document_phrase", recipe.drop_documents_with, PhraseScope.ANYWHERE),
                ("bad_word", recipe.bad_words, PhraseScope.WORDS),
            )
            if phrases
        ]

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Remove lines and citation markers, and drop documents that fail a rule."""
        for result in self._apply_rules(candidates):
            for document in np.flatnonzero(result.is_failed).tolist():
                candidates[document].fail(result.measurement(document))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Measure a document by each rule, and remove lines and citation markers from it."""
        return [result.measurement(0) for result in self._apply_rules([candidate])]

    def _apply_rules(self, candidates: Sequence[Candidate]) -> list["_RuleResult"]:
        batch = join_texts([candidate.text for candidate in candidates])
        results = []
        for reason, phrases, automaton in self._unwanted:
            max_counts = np.ones(len(candidates), np.int64)
            first_phrases = find_phrases(batch, automaton, max_counts, False).first_phrases
            # The index is -1 in a document without a phrase, and index -1 of these phrases gives None.
            results.append(_RuleResult(reason, first_phrases, None, first_phrases >= 0, (*phrases, None)))
        if self._recipe.remove_citations and _remove_citations(candidates):
            batch = join_texts([candidate.text for candidate in candidates])
        max_counts = np.full(len(candidates), len(batch.text) if self._recipe.remove_lines_with else 0)
        hits = find_phrases(batch, self._line_phrases, max_counts, True)
        kept_lines = _keep_lines(batch, hits.line_positions, self._rules)
        minimum = self._recipe.min_sentences
        if minimum is not None:
            sentences = kept_lines.sentence_counts
            results.append(_RuleResult("few_sentences", sentences, minimum, sentences < minimum))
        if self._recipe.remove_lines:
            _remove_lines(candidates, batch, kept_lines)
        if self._recipe.remove_lines or self._recipe.remove_citations:
            remaining = kept_lines.line_counts - kept_lines.removal_counts.sum(axis=1) * self._recipe.remove_lines
            results.append(_RuleResult("lines_left", remaining, 1, remaining < 1))
        return results


class _RuleResult(NamedTuple):
    """Results of one rule for a batch of documents.

    `values` has a number for each document: a count, or, if the rule has `phrases`, the index of a phrase. The last
    entry of `phrases` is None, so that the index -1 (no phrase found) gives None.
    """

    reason: str
    values: NDArray[np.integer]
    limit: int | None
    is_failed: NDArray[np.bool_]
    phrases: tuple[str | None, ...] | None = None

    def measurement(self, document_index: int) -> Measurement:
        number = int(self.values[document_index])
        value = number if self.phrases is None else self.phrases[number]
        return Measurement(self.reason, value, self.limit, bool(self.is_failed[document_index]))


def _remove_citations(candidates: Sequence[Candidate]) -> int:
    """Remove the citation markers from all texts; return the number of markers."""
    total = 0
    for candidate in candidates:
        if b"[" in candidate.text:  # much faster than the regular expression
            candidate.text, removed = _CITATION.subn(b"", candidate.text)
            candidate.record_changes("removed/citation", removed)
            total += removed
    return total


def _remove_lines(candidates: Sequence[Candidate], batch: TextBatch, kept_lines: KeptLines) -> None:
    text, offsets = kept_lines.text.tobytes(), kept_lines.offsets.tolist()
    for document in np.flatnonzero(np.diff(kept_lines.offsets) < np.diff(batch.offsets)).tolist():
        candidates[document].text = text[offsets[document] : offsets[document + 1]]
    for document, reason in np.argwhere(kept_lines.removal_counts).tolist():
        candidates[document].record_changes(
            f"removed_lines/{_LINE_REASONS[reason]}", int(kept_lines.removal_counts[document, reason])
        )
