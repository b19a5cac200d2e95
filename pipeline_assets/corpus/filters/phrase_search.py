"""Texts searched for the phrases of an automaton."""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.filters.code_points import SPACE, WORD, character_before, read_character, wide
from pipeline_assets.corpus.filters.phrases import Automaton, Scope
from pipeline_assets.corpus.filters.words import LINE_FEED


@compiled
def _next_beginning(
    text: NDArray[np.uint8], at: int, end: int, first_two: NDArray[np.uint8], next_two: NDArray[np.uint8]
) -> int:
    """The next byte, from `at`, at which four bytes look like the beginning of a phrase; `end` if there is none."""
    for place in range(at, end):
        groups = first_two[wide(text[place + 1]) << 8 | text[place]]
        if groups and groups & next_two[wide(text[place + 3]) << 8 | text[place + 2]]:
            return place
    return end


@compiled
def _next_match(text: NDArray[np.uint8], at: int, end: int, state: int, automaton: Automaton) -> tuple[int, int]:
    """Reads on from `at`, in `state`, until phrases end; (byte after them, state), or (end, state)."""
    next_state, first_found = automaton.next_state, automaton.first_found
    while at < end:
        if state == 0:
            at = _next_beginning(text, at, end, automaton.first_two, automaton.next_two)
            if at == end:
                break
        state = wide(next_state[state, text[at]])
        at += 1
        if first_found[state] < first_found[state + 1]:
            break
    return at, state


@compiled
def _is_in_scope(
    text: NDArray[np.uint8],
    start: int,
    end: int,
    after: int,
    phrase: int,
    automaton: Automaton,
    bits: NDArray[np.uint16],
) -> bool:
    """Whether a phrase that ends before `after` counts there; the document is `text[start:end]`."""
    scope = automaton.scopes[phrase]
    if scope == Scope.ANYWHERE:
        return True
    first = after
    for _ in range(automaton.characters[phrase]):
        first = character_before(text, first)
    if scope == Scope.WORDS:
        is_begun = first > start and read_character(text, character_before(text, first), bits)[0] & WORD
        goes_on = after < end and read_character(text, after, bits)[0] & WORD
        return not is_begun and not goes_on
    while after < end and text[after] != LINE_FEED:
        kind, width = read_character(text, after, bits)
        if not kind & SPACE:
            return False
        after += width
    while first > start and text[first - 1] != LINE_FEED:
        first = character_before(text, first)
        if not read_character(text, first, bits)[0] & SPACE:
            return False
    return True


@compiled
def first_phrases(
    text: NDArray[np.uint8], offsets: NDArray[np.int64], automaton: Automaton, bits: NDArray[np.uint16]
) -> NDArray[np.int32]:
    """Which phrase ends first in each document, the first of the list if several do there; -1 if none does.

    Args:
        text: all documents, and three bytes beyond.
        offsets: where each begins, and where the last ends.
        bits: of code points.
    """
    phrases = np.empty(len(offsets) - 1, np.int32)
    for document in range(len(phrases)):
        phrases[document] = -1
        at, state = offsets[document], 0
        end = offsets[document + 1]
        while at < end and phrases[document] < 0:
            at, state = _next_match(text, at, end, state, automaton)
            for place in range(automaton.first_found[state], automaton.first_found[state + 1]):
                phrase = automaton.found[place]
                if phrases[document] < 0 and _is_in_scope(text, offsets[document], end, at, phrase, automaton, bits):
                    phrases[document] = phrase
    return phrases


@compiled
def count_phrases(
    text: NDArray[np.uint8], offsets: NDArray[np.int64], automaton: Automaton, bits: NDArray[np.uint16], enough: int
) -> NDArray[np.int64]:
    """How many different phrases each document has, counted up to `enough`."""
    counts = np.zeros(len(offsets) - 1, np.int64)
    seen_in = np.zeros(len(automaton.scopes), np.int64)
    for document in range(len(counts)):
        at, state = offsets[document], 0
        end = offsets[document + 1]
        while at < end and counts[document] < enough:
            at, state = _next_match(text, at, end, state, automaton)
            for place in range(automaton.first_found[state], automaton.first_found[state + 1]):
                phrase = automaton.found[place]
                if seen_in[phrase] <= document and _is_in_scope(
                    text, offsets[document], end, at, phrase, automaton, bits
                ):
                    seen_in[phrase] = document + 1
                    counts[document] += 1
        counts[document] = min(counts[document], enough)
    return counts


@compiled
def lines_with_phrases(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    automaton: Automaton,
    bits: NDArray[np.uint16],
    wanted: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lines that have a phrase: a byte inside each, ascending, and how many each document has.

    Args:
        wanted: which documents are searched.
    """
    inside = np.empty(len(text) // 2 + len(offsets), np.int64)
    counts = np.zeros(len(offsets) - 1, np.int64)
    lines = 0
    for document in range(len(counts)):
        at, state = offsets[document], 0
        end = offsets[document + 1]
        while at < end and wanted[document]:
            at, state = _next_match(text, at, end, state, automaton)
            has_one = False
            for place in range(automaton.first_found[state], automaton.first_found[state + 1]):
                phrase = automaton.found[place]
                has_one = has_one or _is_in_scope(text, offsets[document], end, at, phrase, automaton, bits)
            if has_one:
                inside[lines] = at - 1
                lines += 1
                counts[document] += 1
                while at < end and text[at] != LINE_FEED:
                    at += 1
                state = 0
    return inside[:lines], counts
