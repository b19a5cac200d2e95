"""Mixture of token shards in plain Python: one list of tokens per corpus, cut into rows that fractions order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from plain_packing import PlainCorpus


@dataclass(frozen=True)
class PlainMixture:
    """Rows of each corpus with its weight; the seed orders the rows of a corpus in each of its epochs."""

    rows: Mapping[str, Sequence[Sequence[int]]]
    weights: Mapping[str, Fraction]
    seed: int

    def order(self, length: int | None) -> list[tuple[str, int]]:
        """Corpus and row at each position; without a length, up to the first row that would be repeated."""
        taken, order = dict.fromkeys(sorted(self.rows), 0), list[tuple[str, int]]()
        while length is None or len(order) < length:
            position = len(order) + 1
            may = [name for name in taken if self.weights[name] * position > taken[name]]
            name = min(may, key=lambda name: -((-taken[name] - 1) // self.weights[name]))
            epoch, number = divmod(taken[name], len(self.rows[name]))
            if length is None and epoch:
                break
            seeded = PlainCorpus({}, {}, {}, self.seed).order(len(self.rows[name]), "mixture", name, epoch)
            order.append((name, seeded[number]))
            taken[name] += 1
        return order


def cut_rows(documents: Sequence[Sequence[int]], seq_len: int) -> list[list[int]]:
    """The whole rows of the documents' tokens, one after another."""
    stream = [token for document in documents for token in document]
    return [stream[first : first + seq_len] for first in range(0, len(stream) - seq_len + 1, seq_len)]


def deal(length: int, batch: int, rank: int, ranks: int, drop_last: bool, padding: bool) -> list[list[int]]:
    """Positions of each batch of a rank: ranks take turns, and all get equally many."""
    share = ranks * batch if drop_last else ranks
    rounds = -(-length // share) if padding else length // share
    own = [position % length for position in range(rank, rounds * share, ranks)]
    return [own[first : first + batch] for first in range(0, len(own), batch)]
