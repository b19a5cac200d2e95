"""Packing in plain Python: looks at every row for each piece.

A piece is (draw, start, length), a draw is (source, epoch, document); documents are numbered within their source.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

MASK = 2**64 - 1


class Draw(NamedTuple):
    source: str
    epoch: int
    document: int


class Piece(NamedTuple):
    draw: Draw
    start: int
    length: int


@dataclass(frozen=True)
class PlainCorpus:
    """Tokens of the documents of each source, with their ends; weights and caps."""

    lengths: Mapping[str, Sequence[int]]
    weights: Mapping[str, str]
    caps: Mapping[str, str]
    seed: int

    @property
    def budgets(self) -> list[Fraction]:
        """The tokens of a mixture that each source allows by its cap."""
        return [
            Fraction(self.caps[source]) * sum(lengths) / Fraction(self.weights[source])
            for source, lengths in self.lengths.items()
        ]

    @property
    def largest_budget(self) -> int:
        return int(min(self.budgets))

    def order(self, things: int, *key: object) -> list[int]:
        """Order numbers by the upper half of their hashes."""
        start = int.from_bytes(hashlib.sha256("\0".join(map(str, (self.seed, *key))).encode()).digest()[:8], "big")
        return sorted(range(things), key=lambda number: (split_mix(start, number) >> 32, number))

    def endless(self, source: str) -> Callable[[int], Draw]:
        """Return a function for the n-th draw of a source, epoch after epoch."""
        documents = len(self.lengths[source])
        return lambda number: Draw(
            source, number // documents, self.order(documents, "epoch", source, number // documents)[number % documents]
        )

    def draws(self, budget: int) -> dict[Draw, int]:
        """Return the draws with their tokens; the cut draw is last."""
        drawn: dict[str, list[Draw]] = {}
        lacks: dict[str, Fraction] = {}
        for source in sorted(self.lengths):
            draw, drawn[source] = self.endless(source), []
            lacks[source] = Fraction(self.weights[source]) * budget
            while self._tokens(draw(len(drawn[source]))) <= lacks[source]:
                drawn[source].append(draw(len(drawn[source])))
                lacks[source] -= self._tokens(drawn[source][-1])
        cut: dict[Draw, int] = {}
        while (missing := sum(lacks.values())) and not cut:
            source = next(source for source in lacks if lacks[source] == max(lacks.values()))
            draw = self.endless(source)(len(drawn[source]))
            if self._tokens(draw) > missing:
                cut = {draw: int(missing)}
            else:
                drawn[source].append(draw)
                lacks[source] -= self._tokens(draw)
        return {draw: self._tokens(draw) for source in drawn for draw in sorted(drawn[source])} | cut

    def _tokens(self, draw: Draw) -> int:
        return self.lengths[draw.source][draw.document]

    def in_packed_order(self, budget: int) -> list[tuple[Draw, int]]:
        """Return the draws with their tokens in seeded order; the cut draw is last."""
        draws = self.draws(budget)
        numbered = sorted(draws)
        is_cut = {draw for draw in draws if draws[draw] < self._tokens(draw)}
        order = [numbered[number] for number in self.order(len(numbered), "draws")]
        return [(draw, draws[draw]) for draw in [draw for draw in order if draw not in is_cut] + list(is_cut)]

    def sequential(self, seq_len: int, num_seqs: int) -> list[list[Piece]] | None:
        """Pack rows in sequence; None without enough text."""
        if seq_len * num_seqs > self.largest_budget:
            return None
        tokens = [(draw, at) for draw, count in self.in_packed_order(seq_len * num_seqs) for at in range(count)]
        rows = [tokens[start : start + seq_len] for start in range(0, len(tokens), seq_len)]
        return [_pieces(row) for row in rows]

    def best_fit(self, seq_len: int, num_seqs: int) -> list[list[Piece]] | None:
        """Pack rows by best fit; None without enough text."""
        budget = self.budget(seq_len, num_seqs)
        if budget is None:
            return None
        order = self.in_packed_order(budget)
        whole, shared = best_fit_rows(order, seq_len)
        while len(whole) + len(shared) < num_seqs:
            ranks = {draw: rank for rank, (draw, _) in enumerate(order)}
            free = [piece for row in shared if len(row) > 1 for piece in row]
            longest = min(free, key=lambda piece: (-piece.length, ranks[piece.draw]))
            next(row for row in shared if longest in row).remove(longest)
            shared.append([longest])
        ranks = {draw: rank for rank, (draw, _) in enumerate(order)}
        rows = [*whole, *(sorted(row, key=lambda piece: ranks[piece.draw]) for row in shared)]
        return [rows[number] for number in self.order(num_seqs, "rows")]

    def budget(self, seq_len: int, num_seqs: int) -> int | None:
        """Find the largest token budget that fits `num_seqs` rows; None if text is short."""

        def rows(budget: int) -> int:
            return sum(map(len, best_fit_rows(self.in_packed_order(budget), seq_len)))

        most = min(seq_len * num_seqs, self.largest_budget)
        if self.largest_budget < seq_len:
            return None
        if rows(most) <= num_seqs:
            return most if rows(most) == num_seqs else None
        fine, beyond = 0, most + 1
        middle = most
        while beyond - fine > 1:
            if rows(middle) <= num_seqs:
                fine = middle
            else:
                beyond = middle
            middle = (fine + beyond) // 2
        return fine


def split_mix(start: int, number: int) -> int:
    state = (start + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def best_fit_rows(order: Sequence[tuple[Draw, int]], seq_len: int) -> tuple[list[list[Piece]], list[list[Piece]]]:
    """Return rows filled by one document, and shared rows opened by best fit."""
    whole = [
        [Piece(draw, start, seq_len)]
        for draw, tokens in order
        for start in range(0, tokens - tokens % seq_len, seq_len)
    ]
    rests = [Piece(draw, tokens - tokens % seq_len, tokens % seq_len) for draw, tokens in order if tokens % seq_len]
    shared: list[list[Piece]] = []
    filled_at: list[int] = []
    for now, piece in enumerate(sorted(rests, key=lambda piece: -piece.length)):
        rooms = [seq_len - sum(other.length for other in row) for row in shared]
        holding = [row for row, room in enumerate(rooms) if room >= piece.length]
        if holding:
            row = min(holding, key=lambda row: (rooms[row], -filled_at[row]))
        else:
            row = len(shared)
            shared.append([])
            filled_at.append(0)
        shared[row].append(piece)
        filled_at[row] = now
    return whole, shared


def _pieces(row: Sequence[tuple[Draw, int]]) -> list[Piece]:
    pieces: list[Piece] = []
    for draw, at in row:
        if pieces and pieces[-1].draw == draw:
            pieces[-1] = pieces[-1]._replace(length=pieces[-1].length + 1)
        else:
            pieces.append(Piece(draw, at, 1))
    return pieces
