"""Search for many phrases in one pass, with an automaton (Aho and Corasick 1975).

A character of a phrase matches itself, its lower case and its upper case. Nothing else is normalized: one space in a
phrase matches exactly one space.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, compiled, compiled_inner
from pipeline_assets.corpus.filters import characters
from pipeline_assets.corpus.filters.characters import to_index
from pipeline_assets.corpus.filters.text_batch import TextBatch

_PREFIX_BYTES = 4  # bytes of a phrase that are looked up before the automaton reads them


class PhraseScope(IntEnum):
    """Scope in which a phrase matches: anywhere, as whole words, or as a whole line."""

    ANYWHERE = 0
    WORDS = 1
    LINE = 2


class Automaton(NamedTuple):
    """Automaton of a list of phrases; in state 0, no phrase is in progress.

    `prefix_bits` is a table of the possible first four bytes of phrases. For i from 0 to 3, bit `p % 64` of entry
    256 × i + b is set if phrase p may have byte b at index i, or may end before index i.
    """

    next_states: NDArray[np.int32]  # by current state and byte, shape (states, 256)
    prefix_bits: NDArray[np.uint64]  # shape (1024,)
    match_offsets: NDArray[np.int32]  # index in `matches` of each state's first phrase; then the number of matches
    matches: NDArray[np.int32]  # indices of the phrases that end in each state, state after state
    character_counts: NDArray[np.int32]  # number of characters of each phrase, shape (phrases,)
    scopes: NDArray[np.int32]  # `PhraseScope` of each phrase, shape (phrases,)
    classes: NDArray[np.uint16]  # table of `character_classes`


class _PhraseGraph:
    """Graph of phrases, with an edge for each byte and a path for each spelling."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self._edges: list[dict[int, set[int]]] = []  # by node: the nodes that follow it, by byte
        self.roots: list[int] = []  # first node of each phrase
        self.ends: dict[int, int] = {}  # phrase of each last node
        for number, phrase in enumerate(phrases):
            node = self._add_node()
            self.roots.append(node)
            for character in phrase:
                start, node = node, self._add_node()
                for spelling in _spellings(character):
                    inner = [start, *(self._add_node() for _ in spelling[1:]), node]
                    for byte, (before, after) in zip(spelling, itertools.pairwise(inner), strict=True):
                        self._edges[before].setdefault(byte, set()).add(after)
            self.ends[node] = number

    def _add_node(self) -> int:
        self._edges.append({})
        return len(self._edges) - 1

    def follow(self, nodes: Iterable[int]) -> dict[int, set[int]]:
        """Return the successors of `nodes`, by the byte that leads to them."""
        successors = defaultdict[int, set[int]](set)
        for node in nodes:
            for byte, after in self._edges[node].items():
                successors[byte] |= after
        return successors


def build_automaton(phrases: Sequence[tuple[str, PhraseScope]]) -> Automaton:
    """Build the automaton of phrases; none may be empty or contain a line feed."""
    graph = _PhraseGraph([phrase for phrase, _ in phrases])
    first_steps = graph.follow(graph.roots)
    # A state is the set of nodes that phrases in progress have reached. A phrase may begin at any byte, so every
    # target includes the first steps. `pending` grows while the loop reads it, until no state is new.
    states: dict[frozenset[int], int] = {frozenset(): 0}
    pending = list(states)
    rows: list[NDArray[np.int32]] = []
    for nodes in pending:
        row = rows[0].copy() if rows else np.zeros(256, np.int32)
        for byte, after in (graph.follow(nodes) if nodes else first_steps).items():
            target = frozenset(after | first_steps.get(byte, set()))
            if target not in states:
                states[target] = len(states)
                pending.append(target)
            row[byte] = states[target]
        rows.append(row)
    matches = [sorted({graph.ends[node] for node in nodes if node in graph.ends}) for nodes in pending]
    return Automaton(
        next_states=np.array(rows, np.int32),
        prefix_bits=_prefix_bits(graph),
        match_offsets=np.cumsum([0, *map(len, matches)], dtype=np.int32),
        matches=np.array([number for numbers in matches for number in numbers], np.int32),
        character_counts=np.array([len(phrase) for phrase, _ in phrases], np.int32),
        scopes=np.array([scope for _, scope in phrases], np.int32),
        classes=characters.character_classes(),
    )


def _spellings(character: str) -> list[bytes]:
    """Return the distinct UTF-8 forms of a character and its lower and upper case.

    A form of several characters, such as the upper case `SS` of `ß`, is omitted.
    """
    cases = {case for case in (character, character.lower(), character.upper()) if len(case) == 1}
    return sorted(case.encode() for case in cases)


def _prefix_bits(graph: _PhraseGraph) -> NDArray[np.uint64]:
    table = np.zeros((_PREFIX_BYTES, 256), np.uint64)
    for number, root in enumerate(graph.roots):
        bit, nodes = np.uint64(1 << number % 64), {root}
        for index in range(_PREFIX_BYTES):
            if not nodes.isdisjoint(graph.ends):  # the phrase is over: any byte may follow
                table[index:] |= bit
                break
            steps = graph.follow(nodes)
            table[index, list(steps)] |= bit
            nodes = set().union(*steps.values())
    return table.reshape(-1)


@always_inline
def _may_begin(text: NDArray[np.uint8], position: int, prefix_bits: NDArray[np.uint64]) -> bool:
    """Return False if the four bytes at `position` certainly begin no phrase."""
    # The AND keeps the bits of phrases that may have each of the four bytes at its index. Phrases share bits, so a bit
    # may remain where no phrase begins; the automaton decides.
    first, second = prefix_bits[to_index(text[to_index(position)])], prefix_bits[256 + text[to_index(position + 1)]]
    third, fourth = prefix_bits[512 + text[to_index(position + 2)]], prefix_bits[768 + text[to_index(position + 3)]]
    return bool(first & second & third & fourth)


@always_inline
def _next_match(text: NDArray[np.uint8], position: int, end: int, state: int, automaton: Automaton) -> tuple[int, int]:
    """Read until a phrase ends; return next position and state, or else `end` and 0."""
    next_states, match_offsets = automaton.next_states, automaton.match_offsets
    while True:
        if state == 0:  # no phrase is in progress: skip bytes at which none can begin
            while position < end and not _may_begin(text, position, automaton.prefix_bits):
                position += 1
        if position >= end:
            return position, 0
        state = characters.to_int64(next_states[state, text[position]])
        position += 1
        if match_offsets[state] < match_offsets[state + 1]:  # `matches` has phrases of this state
            return position, state


@compiled_inner
def _is_in_scope(
    text: NDArray[np.uint8],
    document_start: int,
    document_end: int,
    occurrence_end: int,
    phrase: int,
    automaton: Automaton,
) -> bool:
    """Check whether an occurrence of a phrase fits the phrase's `PhraseScope`."""
    scope, classes = automaton.scopes[phrase], automaton.classes
    if scope == PhraseScope.ANYWHERE:
        return True
    # Go back by characters, not bytes, because the cases of a character can differ in width.
    occurrence_start = occurrence_end
    for _ in range(automaton.character_counts[phrase]):
        occurrence_start = characters.previous_character_start(text, occurrence_start)
    if scope == PhraseScope.WORDS:
        joins_before = joins_after = 0
        if occurrence_start > document_start:
            before = characters.previous_character_start(text, occurrence_start)
            joins_before = characters.read_class_bits(text, before, classes)[0] & characters.WORD
        if occurrence_end < document_end:
            joins_after = characters.read_class_bits(text, occurrence_end, classes)[0] & characters.WORD
        return not joins_before and not joins_after
    # A whole line: only whitespace after the phrase, up to the line feed, and before it.
    while occurrence_end < document_end and text[occurrence_end] != characters.LINE_FEED:
        bits, width = characters.read_class_bits(text, occurrence_end, classes)
        if not bits & characters.SPACE:
            return False
        occurrence_end += width
    while occurrence_start > document_start and text[occurrence_start - 1] != characters.LINE_FEED:
        occurrence_start = characters.previous_character_start(text, occurrence_start)
        if not characters.read_class_bits(text, occurrence_start, classes)[0] & characters.SPACE:
            return False
    return True


class PhraseHits(NamedTuple):
    """Phrases found in a batch of documents.

    The first phrase of a document is the one that ends first; the one with the lowest index if several end together.
    """

    counts: NDArray[np.int64]  # distinct phrases, or lines with a phrase, in each document; at most `max_counts`
    first_phrases: NDArray[np.int32]  # index of the first phrase in each document, or -1
    line_positions: NDArray[np.int64]  # one byte of each line with a phrase, ascending; empty unless lines are counted


@compiled
def find_phrases(
    batch: TextBatch, automaton: Automaton, max_counts: NDArray[np.int64], counts_lines: bool
) -> PhraseHits:
    """Count the distinct phrases, or the lines with a phrase, in each document.

    `max_counts`, shape (documents,), has the count at which the search of each document stops. If `counts_lines` is
    true, lines are counted, otherwise phrases. Occurrences outside the scope of their phrase are ignored.
    """
    text, offsets = batch
    counts = np.zeros(len(max_counts), np.int64)
    first_phrases = np.full(len(max_counts), -1, np.int32)
    # A line with a phrase takes two bytes at least: one byte and a line feed, which the last line of a document may
    # lack. Pages that are not written use no memory.
    line_positions = np.empty(len(text) // 2 + len(offsets), np.int64)
    # For each phrase, the last document that has it, counted from 1; 0 for none. A phrase is new in a document if this
    # number is at most the document's index.
    last_document = np.zeros(len(automaton.scopes), np.int64)
    lines = 0
    for document in range(len(max_counts)):
        start, end = offsets[document], offsets[document + 1]
        at, state = start, 0
        while counts[document] < max_counts[document]:
            at, state = _next_match(text, at, end, state, automaton)
            if state == 0:
                break
            for number in range(automaton.match_offsets[state], automaton.match_offsets[state + 1]):
                phrase = automaton.matches[number]
                is_new = counts_lines or last_document[phrase] <= document
                if is_new and _is_in_scope(text, start, end, at, phrase, automaton):
                    last_document[phrase] = document + 1
                    counts[document] += 1
                    first_phrases[document] = phrase if first_phrases[document] < 0 else first_phrases[document]
                    if counts_lines:  # the line counts once: continue at its end, with no phrase in progress
                        line_positions[lines] = at - 1
                        lines += 1
                        state = 0
                        while at < end and text[at] != characters.LINE_FEED:
                            at += 1
                        break
        counts[document] = min(counts[document], max_counts[document])  # several phrases can end at one byte
    return PhraseHits(counts, first_phrases, line_positions[:lines])
