"""Mixture of token shards in plain Python: rows ordered by fractions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from plain_packing import PlainCorpus


@dataclass(frozen=True)
class PlainMixture:
    """Rows of each corpus with its weight; `seed` orders them in each epoch."""

    rows: Mapping[str, Sequence[Sequence[int]]]
    weights: Mapping[str, Fraction]
    seed: int

    def order(self, length: int | None) -> list[tuple[str, int]]:
        """List corpus and row at each position; without a length, until a row repeats."""
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
    """Cut the concatenated documents into whole rows."""
    stream = [token for document in documents for token in document]
    return [stream[first : first + seq_len] for first in range(0, len(stream) - seq_len + 1, seq_len)]


def deal(length: int, batch: int, rank: int, ranks: int, drop_last: bool, padding: bool) -> list[list[int]]:
    """Deal positions to the batches of a rank; all ranks get equally many."""
    share = ranks * batch if drop_last else ranks
    rounds = -(-length // share) if padding else length // share
    own = [position % length for position in range(rank, rounds * share, ranks)]
    return [own[first : first + batch] for first in range(0, len(own), batch)]
