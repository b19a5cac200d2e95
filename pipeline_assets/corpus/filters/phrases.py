"""Texts searched for phrases, by an automaton over bytes that finds all in one pass: Aho and Corasick 1975.

A character matches in lower and in upper case, whatever the phrase has. Nothing is normalised: a phrase has one blank
where the text has one.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.filters import words
from pipeline_assets.corpus.filters.bits import (
    BLOCK,
    NONE,
    ONE,
    bytes_between,
    bytes_in,
    eight_bytes,
    first_bit,
    inlined,
    run_through,
)

_WINDOW, _STEP = 4, 4  # bytes that are looked up, one time in so many
_LONG = _WINDOW + _STEP - 1  # a phrase of so many bytes has a whole window that is looked up, wherever it stands
_FOLD = 0x20  # what parts the cases of an ASCII letter
_HALF, _SEVEN = np.uint64(32), np.uint64(7)
_FOLDS, _HASH = np.uint64(0x20202020), np.uint64(0x9E3779B1)
_WORD_BITS = np.uint64(2**32 - 1)
_FEWEST_WINDOWS, _MOST_WINDOWS = 12, 24  # bits


class Scope(IntEnum):
    """Where a phrase counts: anywhere, as whole words (no `\\w` before or after), or as a whole line."""

    ANYWHERE = 0
    WORDS = 1
    LINE = 2


class Automaton(NamedTuple):
    """A compiled list of phrases.

    Attributes:
        next_state: by state and byte, shape (states, 256), int32; state 0 has matched nothing.
        windows: by the hash of four bytes without their case, of the phrases of seven bytes or more that have them
            among their first seven: a bit for the last three bits of the byte that follows. uint8; a power of two of
            them, none without such phrases.
        shift: of a hash, to an index of `windows`.
        short_firsts, short_seconds: of shorter phrases, the first and the second byte, as `bytes_in` takes them.
        line_firsts: of phrases that are whole lines, the first byte.
        first_found: of each state, and one beyond: the first of the phrases in `found` that end there. int32.
        found: numbers of phrases, by state. int32.
        characters: of each phrase. int32.
        scopes: of each phrase. int32.
    """

    next_state: NDArray[np.int32]
    windows: NDArray[np.uint8]
    shift: np.uint64
    short_firsts: NDArray[np.uint8]
    short_seconds: NDArray[np.uint8]
    line_firsts: NDArray[np.uint8]
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
    lines = [phrase for phrase, scope in phrases if scope is Scope.LINE]
    others = [phrase for phrase, scope in phrases if scope is not Scope.LINE]
    shorts = [phrase for phrase in others if _least_bytes(phrase) < _LONG]
    windows, shift = _windows(_Phrases([phrase for phrase in others if _least_bytes(phrase) >= _LONG]))
    firsts, seconds = _first_bytes(shorts)
    return Automaton(
        next_state=np.array(rows, np.int32),
        windows=windows,
        shift=shift,
        short_firsts=firsts,
        short_seconds=seconds,
        line_firsts=_first_bytes(lines)[0],
        first_found=np.cumsum([0, *map(len, found)], dtype=np.int32),
        found=np.array([number for numbers in found for number in numbers], np.int32),
        characters=np.array([len(phrase) for phrase, _ in phrases], np.int32),
        scopes=np.array([scope for _, scope in phrases], np.int32),
    )


def _spellings(character: str) -> list[bytes]:
    """The bytes of a character in lower and in upper case; a case of several characters is left out."""
    cases = {case for case in (character, character.lower(), character.upper()) if len(case) == 1}
    return sorted(case.encode() for case in cases)


def _least_bytes(phrase: str) -> int:
    return sum(min(map(len, _spellings(character))) for character in phrase)


def _windows(graph: _Phrases) -> tuple[NDArray[np.uint8], np.uint64]:
    """The tables `windows` and `shift` for phrases that are long."""
    found: set[bytes] = set()  # with the byte that follows

    def walk(nodes: Iterable[_Node], path: bytes) -> None:
        if len(path) > _LONG:
            found.update(path[start : start + _WINDOW + 1] for start in range(_STEP))
            return
        steps: dict[int, set[_Node]] = {}
        graph.add_steps(nodes, steps)
        steps = _folded(steps)
        if len(path) == _LONG and any(map(graph.is_whole, nodes)):
            steps |= {any_byte: set() for any_byte in range(8)}
        for byte, after in steps.items():
            walk(after, bytes([*path, byte]))

    for byte, nodes in _folded(graph.beginnings).items():
        walk(nodes, bytes([byte]))
    bits = min(max(_FEWEST_WINDOWS, (32 * len(found)).bit_length()), _MOST_WINDOWS)
    windows, shift = np.zeros(1 << bits if found else 0, np.uint8), np.uint64(32 - bits)
    for window in found:
        four = int.from_bytes(window[:_WINDOW], "little")
        windows[(four * int(_HASH) & int(_WORD_BITS)) >> int(shift)] |= 1 << (window[_WINDOW] & 7)
    return windows, shift


def _folded(steps: dict[int, set[_Node]]) -> dict[int, set[_Node]]:
    """Steps by bytes without their case."""
    folded: dict[int, set[_Node]] = {}
    for byte, nodes in steps.items():
        folded.setdefault(byte | _FOLD, set()).update(nodes)
    return folded


def _first_bytes(phrases: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The first and the second bytes of all, as `bytes_in` takes them; any byte where a phrase has no second one."""
    graph = _Phrases(phrases)
    seconds: dict[int, set[_Node]] = {}
    for nodes in graph.beginnings.values():
        graph.add_steps(nodes, seconds)
        if any(map(graph.is_whole, nodes)):
            seconds.update({byte: set() for byte in range(256)})
    firsts, seconds_ = (
        words.byte_ranges(byte in steps for byte in range(256)) for steps in (graph.beginnings, seconds)
    )
    return firsts, seconds_


@inlined
def _beginnings(
    text: NDArray[np.uint8], at: int, automaton: Automaton, line_begins: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """At which of 64 bytes a phrase may begin.

    Args:
        line_begins: 1 where the next byte that is no blank begins a line; what it is behind them is returned too.
    """
    found = NONE
    if len(automaton.windows) > 0:
        for step in range(BLOCK // _STEP):
            eight = eight_bytes(text, at + _STEP * step + _STEP - 1)
            next_bytes = np.uint64(automaton.windows[((eight | _FOLDS) * _HASH & _WORD_BITS) >> automaton.shift])
            found |= (next_bytes >> (eight >> _HALF & _SEVEN) & ONE) << np.uint64(_STEP * step)
        found *= np.uint64((1 << _STEP) - 1)
    if len(automaton.short_firsts) > 0:
        found |= bytes_in(text, at, automaton.short_firsts) & bytes_in(text, at + 1, automaton.short_seconds)
    if len(automaton.line_firsts) > 0:
        high = bytes_between(text, at, 0x80, 0x7F)  # blanks may be among them
        run = high | bytes_in(text, at, words.SPACES)
        feeds = bytes_between(text, at, words.LINE_FEED, 0)
        reached, line_begins = run_through(run, feeds, line_begins)
        found |= (reached & ~run | run & ~reached & high) & bytes_in(text, at, automaton.line_firsts)
    return found, line_begins


@inlined
def _read_on(text: NDArray[np.uint8], at: int, end: int, state: int, automaton: Automaton) -> tuple[int, int]:
    """Reads on from `at`, in `state`, until phrases end or none is begun; the byte behind, and the state."""
    while at < end:
        state = words.wide(automaton.next_state[state, text[at]])
        at += 1
        if state == 0 or automaton.first_found[state] < automaton.first_found[state + 1]:
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


@compiled
def count_phrases(
    text: NDArray[np.uint8], offsets: NDArray[np.int64], automaton: Automaton, bits: NDArray[np.uint16], enough: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """How many different phrases each document has, counted up to `enough`; and which of them ends first, the first of
    the list if several do there, -1 if none does.

    Args:
        text: all documents, and what is read beyond: `thresholds.batch_of`.
        offsets: where each begins, and where the last ends.
        bits: of code points.
    """
    counts = np.zeros(len(offsets) - 1, np.int64)
    firsts = np.full(len(counts), -1, np.int32)
    seen_in = np.zeros(len(automaton.scopes), np.int64)
    for document in range(len(counts)):
        start, end = offsets[document], offsets[document + 1]
        at, line_begins = start, ONE
        for block in range(start, end, BLOCK):
            if counts[document] >= enough:
                break
            begun, line_begins = _beginnings(text, block, automaton, line_begins)
            while begun:
                first = block + first_bit(begun)
                begun &= begun - ONE
                if first < at:
                    continue  # read already
                at, state = _read_on(text, first, end, 0, automaton)
                while state != 0:
                    for number in range(automaton.first_found[state], automaton.first_found[state + 1]):
                        phrase = automaton.found[number]
                        if seen_in[phrase] <= document and _is_in_scope(text, start, end, at, phrase, automaton, bits):
                            seen_in[phrase] = document + 1
                            counts[document] += 1
                            firsts[document] = phrase if firsts[document] < 0 else firsts[document]
                    if at >= end or counts[document] >= enough:
                        break
                    at, state = _read_on(text, at, end, state, automaton)
                if counts[document] >= enough:
                    break
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
        start, end = offsets[document], offsets[document + 1] if wanted[document] else offsets[document]
        at, line_begins = start, ONE
        for block in range(start, end, BLOCK):
            begun, line_begins = _beginnings(text, block, automaton, line_begins)
            while begun:
                first = block + first_bit(begun)
                begun &= begun - ONE
                if first < at:
                    continue  # read already, or of a line that has a phrase
                at, state = _read_on(text, first, end, 0, automaton)
                while state != 0:
                    has_one = False
                    for number in range(automaton.first_found[state], automaton.first_found[state + 1]):
                        phrase = automaton.found[number]
                        has_one = has_one or _is_in_scope(text, start, end, at, phrase, automaton, bits)
                    if has_one:
                        inside[lines] = at - 1
                        lines += 1
                        counts[document] += 1
                        while at < end and text[at] != words.LINE_FEED:
                            at += 1
                    if has_one or at >= end:
                        break
                    at, state = _read_on(text, at, end, state, automaton)
    return inside[:lines], counts
