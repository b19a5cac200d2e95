"""Texts searched for phrases, by an automaton over bytes that finds all in one pass: Aho and Corasick 1975.

A character matches in lower and in upper case, whatever the phrase has. Nothing is normalised: a phrase has one blank
where the text has one.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.filters.words import LINE_FEED, SPACE, WORD, character_before, read_character, wide

_SHORT = 0x80  # the group of phrases of three bytes and less


class Scope(IntEnum):
    """Where a phrase counts: anywhere, as whole words (no `\\w` before or after), or as a whole line."""

    ANYWHERE = 0
    WORDS = 1
    LINE = 2


class Automaton(NamedTuple):
    """A compiled list of phrases.

    Attributes:
        next_state: by state and byte, shape (states, 256), int32; state 0 has matched nothing.
        first_two, next_two: by two bytes, the second times 256: a bit for each group of phrases, see `_next_beginning`.
            uint8.
        first_found: of each state, and one beyond: the first of the phrases in `found` that end there. int32.
        found: numbers of phrases, by state. int32.
        characters: of each phrase. int32.
        scopes: of each phrase. int32.
    """

    next_state: NDArray[np.int32]
    first_two: NDArray[np.uint8]
    next_two: NDArray[np.uint8]
    first_found: NDArray[np.int32]
    found: NDArray[np.int32]
    characters: NDArray[np.int32]
    scopes: NDArray[np.int32]


class _Node(NamedTuple):
    """Where in a phrase the next byte stands; `character` is the phrase's length once it is whole."""

    phrase: int
    character: int
    spelling: int = 0
    byte: int = 0


class _Phrases:
    """The graph of all phrases, a byte an edge: a character goes several ways, one for each spelling."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self._spellings = [[_spellings(character) for character in phrase] for phrase in phrases]
        self.beginnings: dict[int, set[_Node]] = {}
        for number in range(len(phrases)):
            self.add_steps(self._at(number, 0), self.beginnings)

    def is_whole(self, node: _Node) -> bool:
        return node.character == len(self._spellings[node.phrase])

    def add_steps(self, nodes: Iterable[_Node], targets: dict[int, set[_Node]]) -> None:
        """Adds where each byte leads from these nodes."""
        for node in nodes:
            if self.is_whole(node):
                continue
            spelling = self._spellings[node.phrase][node.character][node.spelling]
            is_last = node.byte + 1 == len(spelling)
            after = self._at(node.phrase, node.character + 1) if is_last else [node._replace(byte=node.byte + 1)]
            targets.setdefault(spelling[node.byte], set()).update(after)

    def _at(self, phrase: int, character: int) -> list[_Node]:
        if character == len(self._spellings[phrase]):
            return [_Node(phrase, character)]
        return [_Node(phrase, character, spelling) for spelling in range(len(self._spellings[phrase][character]))]


def build_automaton(phrases: Sequence[tuple[str, Scope]]) -> Automaton:
    """The automaton that finds all of these phrases; none of them is empty or has a line feed."""
    graph = _Phrases([phrase for phrase, _ in phrases])
    states: dict[frozenset[_Node], int] = {frozenset(): 0}
    pending = list(states)
    rows: list[NDArray[np.int32]] = []
    for nodes in pending:
        row = rows[0].copy() if rows else np.zeros(256, np.int32)
        steps: dict[int, set[_Node]] = {} if nodes else {byte: set() for byte in graph.beginnings}
        graph.add_steps(nodes, steps)
        for byte, after in steps.items():
            target = frozenset(after | graph.beginnings.get(byte, set()))
            if target not in states:
                states[target] = len(states)
                pending.append(target)
            row[byte] = states[target]
        rows.append(row)
    found = [sorted({node.phrase for node in nodes if graph.is_whole(node)}) for nodes in pending]
    first_two, next_two = _first_bytes(graph)
    return Automaton(
        next_state=np.array(rows, np.int32),
        first_two=first_two,
        next_two=next_two,
        first_found=np.cumsum([0, *map(len, found)], dtype=np.int32),
        found=np.array([number for numbers in found for number in numbers], np.int32),
        characters=np.array([len(phrase) for phrase, _ in phrases], np.int32),
        scopes=np.array([scope for _, scope in phrases], np.int32),
    )


def _spellings(character: str) -> list[bytes]:
    """The bytes of a character in lower and in upper case; a case of several characters is left out."""
    cases = {case for case in (character, character.lower(), character.upper()) if len(case) == 1}
    return sorted(case.encode() for case in cases)


def _first_bytes(graph: _Phrases) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The tables `first_two` and `next_two`; `_SHORT` is the group of what any two bytes may follow."""
    first_two, next_two = np.zeros((256, 256), np.uint8), np.full((256, 256), _SHORT, np.uint8)
    every = slice(None)

    def walk(nodes: Iterable[_Node], path: tuple[int, ...]) -> None:
        """Enters the first bytes of the phrases that go on in these nodes: five of them, or all of a shorter phrase."""
        group = 1 << (path[0] | 0x20) * (path[1] | 0x20) % 7 if len(path) > 1 else 0
        if len(path) == 5 or any(map(graph.is_whole, nodes)):
            places: list[Any] = [*path, *[every] * (5 - len(path))]
            a, b, c, d, e = places
            if len(path) < 3:
                first_two[b, a] |= _SHORT
                first_two[a, :] |= _SHORT
            else:
                first_two[b, a] |= group
                next_two[d, c] |= group
                first_two[c, b] |= group if len(path) > 3 else _SHORT
                next_two[e, d] |= group if len(path) > 3 else 0
        if len(path) == 5:
            return
        steps: dict[int, set[_Node]] = {}
        graph.add_steps(nodes, steps)
        for byte, after in steps.items():
            walk(after, (*path, byte))

    for byte, nodes in graph.beginnings.items():
        walk(nodes, (byte,))
    return first_two.reshape(-1), next_two.reshape(-1)


@inner
def _next_beginning(
    text: NDArray[np.uint8], at: int, end: int, first_two: NDArray[np.uint8], next_two: NDArray[np.uint8]
) -> int:
    """The first byte, from `at`, at which or after which a phrase may begin; `end` if there is none.

    Every other byte is looked at, with the three behind it: they tell of a phrase that begins there or one byte before,
    and of one of two bytes or less that begins one byte behind.
    """
    for place in range(at, end, 2):
        groups = first_two[wide(text[place + 1]) << 8 | text[place]]
        if groups and groups & next_two[wide(text[place + 3]) << 8 | text[place + 2]]:
            return max(at, place - 1)
    return end


@inner
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


@inner
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
def count_phrases(
    text: NDArray[np.uint8], offsets: NDArray[np.int64], automaton: Automaton, bits: NDArray[np.uint16], enough: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """How many different phrases each document has, counted up to `enough`; and which of them ends first, the first of
    the list if several do there, -1 if none does.

    Args:
        text: all documents, and three bytes beyond.
        offsets: where each begins, and where the last ends.
        bits: of code points.
    """
    counts = np.zeros(len(offsets) - 1, np.int64)
    firsts = np.full(len(counts), -1, np.int32)
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
                    firsts[document] = phrase if firsts[document] < 0 else firsts[document]
        counts[document] = min(counts[document], enough)
    return counts, firsts


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
