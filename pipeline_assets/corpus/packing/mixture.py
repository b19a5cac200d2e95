"""Mixture of sources, drawn so that their tokens are proportional to weights.

A draw is one use of a document; an epoch is one draw of every document of a source. The share of a source is its weight
times the token budget. Each source is drawn document by document, epoch after epoch, until the next document does not
fit in the source's share. The rest of the budget is filled document by document, each from the source with the largest
deficit (ties go to the first name). The last document is cut where the budget ends. For each source, the number of
drawn tokens differs from the share by less than the length of one of the source's documents.

A cap limits the epochs of a source. A cap of whole epochs is never exceeded. A cap that ends within a document may be
exceeded by the rest of this document.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.hashed_order import chunk_slices, hashed_order


@dataclass(frozen=True)
class MixtureSource:
    """Source of the mixture, with the lengths of its documents.

    Attributes:
        weight: Fraction of the token budget that is the source's share.
        max_epochs: Cap on epochs.
        first_document: Number of the source's first document in the corpus.
        lengths: Number of tokens of each document, shape (documents,).
        tokens: Sum of `lengths`.
        rejected: Number of texts that could not be encoded; not counted as documents.
    """

    name: str
    weight: Fraction
    max_epochs: Fraction
    first_document: int
    lengths: NDArray[np.int32]
    tokens: int
    rejected: int

    @property
    def max_tokens(self) -> Fraction:
        """Largest number of tokens that `max_epochs` allows."""
        return self.max_epochs * self.tokens


@dataclass(frozen=True)
class SourceDraws:
    """Draws of one source: whole epochs, then part of the next epoch.

    Attributes:
        epochs: Number of whole epochs.
        next_epoch_documents: Number of documents drawn from the next, partial epoch.
        tokens: Number of tokens in all these draws.
    """

    epochs: int
    next_epoch_documents: int
    tokens: int


@dataclass(frozen=True)
class Draws:
    """Draws of each source, and the cut draw, if the budget ends within a document.

    The cut draw has the first `cut_tokens` tokens of the next document of source number `cut_source`.
    """

    source_draws: Sequence[SourceDraws]
    cut_source: int | None = None
    cut_tokens: int = 0


class Mixture:
    """Sources that are drawn together, numbered in the order of their names."""

    def __init__(self, sources: Sequence[MixtureSource], seed: int) -> None:
        self.sources = sources
        self._seed = seed
        self._cached_lengths: dict[int, tuple[int, NDArray[np.int32]]] = {}

    @property
    def largest_budget(self) -> int:
        """Largest budget at which no source's share exceeds its cap."""
        return min(int(source.max_tokens / source.weight) for source in self.sources)

    def epoch_order(self, source_number: int, epoch: int) -> NDArray[np.uint32]:
        """Return the numbers of a source's documents, from 0, in an epoch's order."""
        drawn = self.sources[source_number]
        return hashed_order(len(drawn.lengths), self._seed, "epoch", drawn.name, epoch)

    def epoch_lengths(self, source_number: int, epoch: int) -> NDArray[np.int32]:
        """Return document lengths in an epoch's order; cache one epoch per source."""
        if self._cached_lengths.get(source_number, (None,))[0] != epoch:
            self._cached_lengths.pop(source_number, None)  # release 4 bytes per document before the next array is built
            lengths = gather_values(self.sources[source_number].lengths, self.epoch_order(source_number, epoch))
            self._cached_lengths[source_number] = epoch, lengths
        return self._cached_lengths[source_number][1]

    def draw(self, budget: int) -> Draws:
        """Draw exactly `budget` tokens; every source must have documents."""
        drawn = [self._draw_prefix(number, int(source.weight * budget)) for number, source in enumerate(self.sources)]
        # Exact fractions: they may be negative after a draw, and their sum is the rest of the budget.
        deficits = [source.weight * budget - draws.tokens for source, draws in zip(self.sources, drawn, strict=True)]
        while missing := int(sum(deficits)):
            number = deficits.index(max(deficits))
            draws, documents = drawn[number], len(self.sources[number].lengths)
            tokens = int(self.epoch_lengths(number, draws.epochs)[draws.next_epoch_documents])
            if tokens > missing:
                return Draws(drawn, number, missing)
            deficits[number] -= tokens
            is_epoch_end = draws.next_epoch_documents + 1 == documents
            epochs, partial = (draws.epochs + 1, 0) if is_epoch_end else (draws.epochs, draws.next_epoch_documents + 1)
            drawn[number] = SourceDraws(epochs, partial, draws.tokens + tokens)
        return Draws(drawn)

    def _draw_prefix(self, source_number: int, tokens: int) -> SourceDraws:
        """Draw the whole epochs of a source that fit in `tokens`, then part of the next."""
        source = self.sources[source_number]
        epochs, remaining = divmod(tokens, source.tokens)
        partial, prefix_tokens = longest_prefix(self.epoch_lengths(source_number, epochs), remaining)
        return SourceDraws(epochs, partial, epochs * source.tokens + prefix_tokens)


def longest_prefix(lengths: NDArray[np.int32], max_tokens: int) -> tuple[int, int]:
    """Count documents and tokens in the longest prefix of at most `max_tokens` tokens."""
    prefix_tokens = 0
    for chunk in chunk_slices(len(lengths)):
        totals = np.cumsum(lengths[chunk], dtype=np.int64) + prefix_tokens
        fitting = int(np.searchsorted(totals, max_tokens, "right"))
        if fitting < len(totals):
            return chunk.start + fitting, int(totals[fitting - 1]) if fitting else prefix_tokens
        prefix_tokens = int(totals[-1])
    return len(lengths), prefix_tokens


def gather_values(values: NDArray[np.int32], positions: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Return `values[positions]` without NumPy's copy of all positions as int64."""
    gathered = np.empty(len(positions), np.int32)
    for chunk in chunk_slices(len(positions)):
        gathered[chunk] = values[positions[chunk]]
    return gathered


def bisect_largest_budget(max_budget: int, is_valid: Callable[[int], bool]) -> int:
    """Bisect for the largest valid budget up to `max_budget`; 0 counts as valid.

    The result may be too small if a budget below a valid budget is invalid.
    """
    valid, invalid = 0, max_budget + 1
    middle = max_budget  # try the whole budget first
    while invalid - valid > 1:
        if is_valid(middle):
            valid = middle
        else:
            invalid = middle
        middle = (valid + invalid) // 2
    return valid
