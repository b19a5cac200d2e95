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
from pipeline_assets.corpus.filters.bits import (
    ALL,
    BLOCK,
    HIGHEST,
    NONE,
    ONE,
    below,
    bytes_between,
    bytes_in,
    count_bits,
    first_bit,
    inlined,
    last_bit,
    run_through,
)
from pipeline_assets.corpus.filters.phrases import Scope, build_automaton, count_phrases, lines_with_phrases
from pipeline_assets.corpus.filters.recipe import C4Recipe
from pipeline_assets.corpus.filters.thresholds import Batch, batch_of, documents_with
from pipeline_assets.corpus.filters.verdict import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.words import (
    CLOSER,
    LINE_FEED,
    SPACE,
    SPACES,
    TERMINAL,
    byte_ranges,
    character_before,
    classes_of_characters,
    read_character,
)

_CITATION = re.compile(rb"\[(?:[0-9]*|edit|citation needed)\]")
# Why a line is removed, in the order in which it is asked.
REMOVED = ("long_word", "no_terminal_punctuation", "few_words", "phrase")
_KEPT, _LONG_WORD, _NO_MARK, _FEW_WORDS, _PHRASE = range(-1, len(REMOVED))


class LineRules(NamedTuple):
    """What a line must have to be kept, where 0 asks nothing; and what ends a sentence.

    Attributes:
        marks, closers: ASCII characters that end a sentence, and that may follow one, as `bytes_in` takes them.
        of_code_point: bits of each, with the recipe's TERMINAL.
    """

    has_terminal: int
    min_words: int
    max_word_characters: int
    marks: NDArray[np.uint8]
    closers: NDArray[np.uint8]
    of_code_point: NDArray[np.uint16]


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


class _Line(NamedTuple):
    """A line: its bytes without the whitespace around, its words, its sentences, and whether it ends as it must."""

    start: int
    end: int
    words: int
    sentences: int
    is_terminal: bool


@inner
def _why_removed(text: NDArray[np.uint8], line: _Line, has_phrase: bool, rules: LineRules) -> int:
    if rules.max_word_characters > 0 and _has_longer_word(text, line, rules):
        return _LONG_WORD
    if rules.has_terminal and not line.is_terminal:
        return _NO_MARK
    if line.words < rules.min_words:
        return _FEW_WORDS
    return _PHRASE if has_phrase else _KEPT


@inner
def _has_longer_word(text: NDArray[np.uint8], line: _Line, rules: LineRules) -> bool:
    """Whether a word of the line has more characters than one may have."""
    at, characters = line.start, 0
    while at < line.end and characters <= rules.max_word_characters:
        bits, width = read_character(text, at, rules.of_code_point)
        characters = 0 if bits & SPACE else characters + 1
        at += width
    return characters > rules.max_word_characters


@inner
def _is_after_mark(text: NDArray[np.uint8], start: int, at: int, rules: LineRules) -> bool:
    """Whether closers and blanks alone stand between a place in a line that starts at `start` and a mark before it."""
    while at > start:
        at = character_before(text, at)
        bits, _ = read_character(text, at, rules.of_code_point)
        if bits & (CLOSER | SPACE) == 0:
            return bits & TERMINAL != 0
    return False


class _Block(NamedTuple):
    """64 bytes.

    Attributes:
        word, word_starts: which are of a word, and begin one.
        sentence_ends: at which a sentence ends.
        was_word, was_run: whether a word, or a run of marks, closers and blanks, goes on behind them.
        markless, unended: whether that run has no mark yet, or one that no blank has followed.
        next_space, next_run: which of the next bytes belong to a last character that is a blank, or of the run.
    """

    word: np.uint64
    word_starts: np.uint64
    sentence_ends: np.uint64
    was_word: np.uint64
    was_run: np.uint64
    markless: np.uint64
    unended: np.uint64
    next_space: np.uint64
    next_run: np.uint64


_NO_BLOCK = _Block(NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE)


@inlined
def _read_block(
    text: NDArray[np.uint8], at: int, own: np.uint64, feed: np.uint64, before: _Block, rules: LineRules
) -> _Block:
    """A block after another one of a document.

    In a run of marks, closers and blanks a sentence ends once: where after a mark a blank follows or the line ends, or
    at a mark that isn't ASCII.

    Args:
        own: which bytes are of the document; `feed` which are line feeds.
    """
    space = bytes_in(text, at, SPACES)
    mark = own & bytes_in(text, at, rules.marks)
    run = own & (mark | space | bytes_in(text, at, rules.closers)) & ~feed
    wide_mark = next_space = next_run = NONE
    high = own & bytes_between(text, at, 0x80, 0x7F)
    if high:
        space |= before.next_space
        run |= before.next_run
        high &= ~bytes_between(text, at, 0x80, 0x3F)
        while high:
            bit = first_bit(high)
            high &= high - ONE
            bits, width = read_character(text, at + bit, rules.of_code_point)
            if bits & (SPACE | CLOSER | TERMINAL):
                here = below(width) << np.uint64(bit)
                behind = below(width) >> ONE >> np.uint64(BLOCK - 1 - bit)
                run |= here
                next_run |= behind
                if bits & SPACE:
                    space |= here
                    next_space |= behind
                elif bits & CLOSER == 0:
                    wide_mark |= ONE << np.uint64(bit)
    space |= ~own
    word = ~space
    marks, stops = mark | wide_mark, space | wide_mark
    run_starts = run & ~(run << ONE | before.was_run)
    first_marks, markless = run_through(run & ~marks, run_starts, before.markless)
    ends, unended = run_through(run & ~stops, first_marks & marks, before.unended)
    word_starts = word & ~(word << ONE | before.was_word)
    was_word, was_run = word >> HIGHEST, run >> HIGHEST
    return _Block(word, word_starts, ends & stops, was_word, was_run, markless, unended, next_space, next_run)


@compiled
def _keep_lines(
    text: NDArray[np.uint8],
    eights: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    inside: NDArray[np.int64],
    rules: LineRules,
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
        begin, stop = offsets[document], offsets[document + 1]
        block = _NO_BLOCK
        start = end = words = ends = 0
        for at in range(begin, stop + 1, BLOCK):
            own = below(stop - at)
            feed = own & bytes_between(text, at, LINE_FEED, 0)
            block = _read_block(text, at, own, feed, block, rules)
            if stop - at < BLOCK:
                feed |= ONE << np.uint64(stop - at)
            left = ALL
            while True:
                fed = feed & left
                part = left & (fed ^ (fed - ONE)) if fed else left
                left &= ~part
                mine = block.word & part
                if mine:
                    start = at + first_bit(mine) if words == 0 else start
                    end = at + last_bit(mine) + 1
                    words += count_bits(block.word_starts & part)
                ends += count_bits(block.sentence_ends & part)
                if fed == NONE:
                    break
                line_stop = at + first_bit(fed)
                has_phrase = phrases < len(inside) and inside[phrases] < line_stop
                phrases += has_phrase
                if words > 0:
                    last = character_before(text, end)
                    bits, _ = read_character(text, last, rules.of_code_point)
                    if bits & TERMINAL and bits & CLOSER:
                        ends += not _is_after_mark(text, start, last, rules)
                    line = _Line(start, end, words, ends, bits & TERMINAL != 0)
                    lines[document] += 1
                    why = _why_removed(text, line, has_phrase, rules)
                    if why == _KEPT:
                        sentences[document] += ends
                        if size > kept_offsets[document]:
                            kept[size] = LINE_FEED
                            size += 1
                        for byte in range(0, end - start, 8):  # what is copied beyond the line is overwritten
                            eights_out[size + byte] = eights[start + byte]
                        size += end - start
                    else:
                        removed[document, why] += 1
                words = ends = 0
        kept_offsets[document + 1] = size
    return KeptLines(kept[:size], kept_offsets, lines, removed, sentences)


DOCUMENT_PHRASE, BAD_WORD, FEW_SENTENCES, LINES_LEFT = "document_phrase", "bad_word", "few_sentences", "lines_left"


class C4Filter(Filter):
    """What `C4Recipe` asks of lines and documents."""

    def __init__(self, recipe: C4Recipe) -> None:
        self._recipe = recipe
        self._of_code_point = classes_of_characters(recipe.terminal_punctuation or "")
        kinds = self._of_code_point[:128] & (SPACE | CLOSER | TERMINAL)
        self._rules = LineRules(
            recipe.terminal_punctuation is not None,
            recipe.min_words_per_line or 0,
            recipe.max_word_characters or 0,
            byte_ranges(kinds == TERMINAL),
            byte_ranges(kinds & CLOSER != 0),
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
        batch = batch_of([candidate.text for candidate in candidates])
        checks = []
        for reason, phrases, automaton in self._unwanted:
            _, found = count_phrases(batch.text, batch.offsets, automaton, self._of_code_point, 1)
            checks.append(_Check(reason, found, None, found >= 0, (*phrases, None)))  # -1 is None
        if self._recipe.remove_citations and _remove_citations(candidates, batch):
            batch = batch_of([candidate.text for candidate in candidates])
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
        wanted = np.full(len(batch.offsets) - 1, len(self._recipe.remove_lines_with) > 0)
        inside, _ = lines_with_phrases(batch.text, batch.offsets, self._line_phrases, self._of_code_point, wanted)
        kept = np.empty_like(batch.text)
        eights, eights_out = eight_bytes_at_each(batch.text), eight_bytes_at_each(kept, writeable=True)
        return _keep_lines(batch.text, eights, batch.offsets, inside, self._rules, kept, eights_out)


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


def _remove_citations(candidates: Sequence[Candidate], batch: Batch) -> int:
    """Takes the markers from the texts; how many there were."""
    total = 0
    for document in np.flatnonzero(documents_with(batch.text, batch.offsets, ord("["))).tolist():
        candidate = candidates[document]
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
