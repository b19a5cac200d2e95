"""Texts searched for phrases, by an automaton over bytes that finds all in one pass: Aho and Corasick 1975.

A character matches in lower and in upper case, whatever the phrase has. Nothing is normalised: a phrase has one blank
where the text has one.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import always_inline, compiled, inner
from pipeline_assets.corpus.filters import words

_BEGINNING = 4  # bytes of a phrase that are looked up before the automaton reads them


class Scope(IntEnum):
    """Where a phrase counts: anywhere, as whole words (no `\\w` before or after), or as a whole line."""

    ANYWHERE = 0
    WORDS = 1
    LINE = 2


class Automaton(NamedTuple):
    """A compiled list of phrases.

    Attributes:
        next_state: by state and byte, shape (states, 256), int32; state 0 has matched nothing.
        beginnings: by 256 × place + byte, of the first four places, a bit for each phrase (the 65th shares that of the
            first) that may have the byte at this place; all bytes where it may be shorter. uint64.
        first_found: of each state, and one beyond: the first of the phrases in `found` that end there. int32.
        found: numbers of phrases, by state. int32.
        characters: of each phrase. int32.
        scopes: of each phrase. int32.
    """

    next_state: NDArray[np.int32]
    beginnings: NDArray[np.uint64]
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
        self.roots = [self._at(number, 0) for number in range(len(phrases))]
        self.beginnings: dict[int, set[_Node]] = {}
        for nodes in self.roots:
            self.add_steps(nodes, self.beginnings)

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
    return Automaton(
        next_state=np.array(rows, np.int32),
        beginnings=_beginnings(graph),
        first_found=np.cumsum([0, *map(len, found)], dtype=np.int32),
        found=np.array([number for numbers in found for number in numbers], np.int32),
        characters=np.array([len(phrase) for phrase, _ in phrases], np.int32),
        scopes=np.array([scope for _, scope in phrases], np.int32),
    )


def _spellings(character: str) -> list[bytes]:
    """The bytes of a character in lower and in upper case; a case of several characters is left out."""
    cases = {case for case in (character, character.lower(), character.upper()) if len(case) == 1}
    return sorted(case.encode() for case in cases)


def _beginnings(graph: _Phrases) -> NDArray[np.uint64]:
    """The table `beginnings` of an automaton."""
    table = np.zeros((_BEGINNING, 256), np.uint64)
    for number, nodes in enumerate(graph.roots):
        bit = np.uint64(1 << number % 64)
        for place in range(_BEGINNING):
            if any(map(graph.is_whole, nodes)):
                table[place:] |= bit
                break
            steps: dict[int, set[_Node]] = {}
            graph.add_steps(nodes, steps)
            table[place, list(steps)] |= bit
            nodes = [node for after in steps.values() for node in after]
    return table.reshape(-1)


@always_inline
def _may_begin(text: NDArray[np.uint8], at: int, beginnings: NDArray[np.uint64]) -> bool:
    """Whether some phrase has the four bytes that begin at `at`."""
    first, second = beginnings[words.to_index(text[words.to_index(at)])], beginnings[256 + text[words.to_index(at + 1)]]
    third, fourth = beginnings[512 + text[words.to_index(at + 2)]], beginnings[768 + text[words.to_index(at + 3)]]
    return bool(first & second & third & fourth)


@always_inline
def _read_on(text: NDArray[np.uint8], at: int, end: int, state: int, automaton: Automaton) -> tuple[int, int]:
    """Reads on from `at`, in `state`, until phrases end; the byte behind, and the state, 0 where no more do."""
    next_state, first_found = automaton.next_state, automaton.first_found
    while True:
        if state == 0:
            while at < end and not _may_begin(text, at, automaton.beginnings):
                at += 1
        if at >= end:
            return at, 0
        state = words.to_int64(next_state[state, text[at]])
        at += 1
        if first_found[state] < first_found[state + 1]:
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
        first = words.character_before(text, first)
    if scope == Scope.WORDS:
        is_begun = (
            first > start and words.read_character(text, words.character_before(text, first), bits)[0] & words.WORD
        )
        goes_on = after < end and words.read_character(text, after, bits)[0] & words.WORD
        return not is_begun and not goes_on
    while after < end and text[after] != words.LINE_FEED:
        kind, width = words.read_character(text, after, bits)
        if not kind & words.SPACE:
            return False
        after += width
    while first > start and text[first - 1] != words.LINE_FEED:
        first = words.character_before(text, first)
        if not words.read_character(text, first, bits)[0] & words.SPACE:
            return False
    return True


class Hits(NamedTuple):
    """Phrases that were found.

    Attributes:
        counts: of each document; int64.
        first: of each document, the phrase that ends first, the first of the list if several do there; -1 if none does.
            int32.
        inside: a byte inside each line with a phrase, ascending, where lines are counted; int64.
    """

    counts: NDArray[np.int64]
    first: NDArray[np.int32]
    inside: NDArray[np.int64]


@compiled
def find_phrases(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    automaton: Automaton,
    bits: NDArray[np.uint16],
    enough: NDArray[np.int64],
    counts_lines: bool,
) -> Hits:
    """Count the different phrases that each document has, or its lines that have one.

    Args:
        text: all documents, and what is read beyond: `thresholds.text_batch`.
        offsets: where each begins, and where the last ends.
        bits: of code points.
        enough: of each document, how many are counted at most.
    """
    counts = np.zeros(len(enough), np.int64)
    firsts = np.full(len(enough), -1, np.int32)
    inside = np.empty(len(text) // 2 + len(offsets), np.int64)  # what isn't written takes no memory
    seen_in = np.zeros(len(automaton.scopes), np.int64)
    lines = 0
    for document in range(len(enough)):
        start, end = offsets[document], offsets[document + 1]
        at, state = start, 0
        while counts[document] < enough[document]:
            at, state = _read_on(text, at, end, state, automaton)
            if state == 0:
                break
            for number in range(automaton.first_found[state], automaton.first_found[state + 1]):
                phrase = automaton.found[number]
                is_new = counts_lines or seen_in[phrase] <= document
                if is_new and _is_in_scope(text, start, end, at, phrase, automaton, bits):
                    seen_in[phrase] = document + 1
                    counts[document] += 1
                    firsts[document] = phrase if firsts[document] < 0 else firsts[document]
                    if counts_lines:
                        inside[lines] = at - 1
                        lines += 1
                        state = 0
                        while at < end and text[at] != words.LINE_FEED:
                            at += 1
                        break
        counts[document] = min(counts[document], enough[document])
    return Hits(counts, firsts, inside[:lines])
