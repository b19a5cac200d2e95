"""Which rows go through a model together: planned from their lengths alone, so that equal rows make equal batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PADDING = 0.05  # of a padded batch at most


@dataclass(frozen=True)
class Batch:
    """Rows that go through the model together.

    Attributes:
        rows: their numbers.
        tokens: with padding.
    """

    rows: Sequence[int]
    tokens: int

    def halves(self, lengths: Sequence[int]) -> "list[Batch]":
        """Its rows in two, padded or packed as it was; of one row there are none."""
        middle = len(self.rows) // 2
        is_padded = self.tokens != sum(lengths[row] for row in self.rows)
        parts = [part for part in (self.rows[:middle], self.rows[middle:]) if len(part) < len(self.rows)]
        return [Batch(part, _tokens([lengths[row] for row in part], is_padded)) for part in parts]


def packed(lengths: NDArray[np.int64], batch_tokens: int, batch_rows: int | None = None) -> list[Batch]:
    """Rows in their order, one behind the other, as many as fit; a longer one is alone.

    Args:
        lengths: tokens of each row, shape (rows,).
        batch_rows: of a batch at most; None for any number.
    """
    return _greedy(range(len(lengths)), lengths, batch_tokens, batch_rows, is_padded=False)


def padded(lengths: NDArray[np.int64], batch_tokens: int, batch_rows: int | None = None) -> list[Batch]:
    """Rows by length, the longest first, as many as fit with less than `PADDING` of padding; a longer one is alone."""
    order = np.argsort(-lengths, kind="stable").tolist()
    return _greedy(order, lengths, batch_tokens, batch_rows, is_padded=True)


def _greedy(
    order: Sequence[int], lengths: NDArray[np.int64], batch_tokens: int, batch_rows: int | None, is_padded: bool
) -> list[Batch]:
    batches, of, filled = list[list[int]](), lengths.tolist(), 0
    for row in order:
        current = batches[-1] if batches else []
        tokens = of[current[0]] * (len(current) + 1) if current and is_padded else filled + of[row]
        is_wasteful = tokens - (filled + of[row]) >= PADDING * tokens
        if not current or tokens > batch_tokens or (is_padded and is_wasteful) or len(current) == batch_rows:
            batches.append([])
            filled = 0
        batches[-1].append(row)
        filled += of[row]
    return [Batch(rows, _tokens([of[row] for row in rows], is_padded)) for rows in batches]


def _tokens(lengths: Sequence[int], is_padded: bool) -> int:
    return max(lengths) * len(lengths) if is_padded else sum(lengths)
