"""How much is drawn of each source, so that their tokens have the shares that the weights ask for.

Of a budget of tokens a source is to give its weight. It gives all its documents as often as they fit whole, then the
longest prefix of the next epoch's order that doesn't exceed what it is to give. What is missing then, less than a
document for each source, comes from the source that lacks most (of equals the first by name): its next document, and
so on, until one is cut where the budget ends. So each source is within one of its documents of its weight. A cap of
whole epochs is kept to the token: a source that has given all of them lacks nothing. One that ends within an epoch is
exceeded by less than the document in which it ends, where that is such a next one.

Orders are seeded, by a counter-based hash: what comes when depends on its number alone. The hash of number i is the
i-th output of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), started
at the first 8 bytes of the sha256 of the seed and what is ordered. Things are ordered by the upper 32 bits of their
hashes, then by their numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.spine.files import seeded_rank

MAX_ITEMS = 2**32
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_UPPER = np.uint64(0xFFFFFFFF00000000)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_CHUNK = 1 << 16
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inner
def split_mix(state: np.uint64) -> np.uint64:
    """SplitMix64's finaliser: a bijection of 64 bits, of which each hangs on all of the state's."""
    state = (state ^ (state >> _30)) * _MIX_1
    state = (state ^ (state >> _27)) * _MIX_2
    return state ^ (state >> _31)


def hashed_order(things: int, seed: int, *of: object) -> NDArray[np.uint32]:
    """The numbers 0 … things - 1 in the order that seed and subject give them; 8 bytes a thing while it is made."""
    start = int.from_bytes(seeded_rank(str(seed), *of)[:8], "big")
    keys = np.empty(things, np.uint64)
    _hash(np.uint64(start), keys)
    keys.sort()
    return lower_halves(keys)


@compiled
def _hash(start: np.uint64, keys: NDArray[np.uint64]) -> None:
    for number in range(len(keys)):
        state = start + np.uint64(number + 1) * _GAMMA
        keys[number] = (split_mix(state) & _UPPER) | np.uint64(number)


def lower_halves(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The lower 32 bits of each key, in the memory of the keys, which are lost; half of it is given back."""
    count = len(keys)
    numbers = keys.view(np.uint32)
    for chunk in chunks(count):
        numbers[chunk] = numbers[2 * chunk.start : 2 * chunk.stop : 2]
    del numbers
    keys.resize((count + 1) // 2, refcheck=False)  # copies nothing
    return keys.view(np.uint32)[:count]


def chunks(count: int) -> Iterator[slice]:
    """Slices of `count` values, so that what is computed of one is in the processor's cache, and no copy of all."""
    return (slice(first, min(first + _CHUNK, count)) for first in range(0, count, _CHUNK))


@dataclass(frozen=True)
class SourceText:
    """A source as the mixture sees it.

    Attributes:
        weight: its share of the tokens.
        first: the number of its first document in the corpus.
        lengths: tokens of its documents, shape (documents,), together `tokens`.
        rejected: texts that were not encoded, which are no documents.
    """

    name: str
    weight: Fraction
    max_epochs: Fraction
    first: int
    lengths: NDArray[np.int32]
    tokens: int
    rejected: int

    @property
    def most(self) -> Fraction:
        """Tokens that its cap allows."""
        return self.max_epochs * self.tokens


@dataclass(frozen=True)
class SourceDraws:
    """What is drawn of one source: all documents `epochs` times, then the first `partial` in the next epoch's order.

    Attributes:
        tokens: of all these.
    """

    epochs: int
    partial: int
    tokens: int


@dataclass(frozen=True)
class Cut:
    """The document that the budget cuts: the next one of a source, of which only the first `tokens` are taken."""

    source: int
    tokens: int


@dataclass(frozen=True)
class Draws:
    """What is drawn: of each source, and the document that is cut; None where the budget ends with a document."""

    source_draws: Sequence[SourceDraws]
    cut: Cut | None


class Mixture:
    """Sources that are drawn from together, in the order of their names."""

    def __init__(self, sources: Sequence[SourceText], seed: int) -> None:
        self.sources = sources
        self._seed = seed
        self._in_order: dict[int, tuple[int, NDArray[np.int32]]] = {}

    @property
    def largest_budget(self) -> int:
        """The most tokens that the caps of all sources allow."""
        return min(int(source.most / source.weight) for source in self.sources)

    def order(self, source: int, epoch: int) -> NDArray[np.uint32]:
        """The documents of a source, numbered in it, in the order of an epoch."""
        text = self.sources[source]
        return hashed_order(len(text.lengths), self._seed, "epoch", text.name, epoch)

    def in_order(self, source: int, epoch: int) -> NDArray[np.int32]:
        """The lengths of a source's documents in the order of an epoch; the last ones that were asked for are kept."""
        if self._in_order.get(source, (None,))[0] != epoch:
            self._in_order.pop(source, None)  # before there are others: they take 4 bytes a document
            self._in_order[source] = epoch, gather(self.sources[source].lengths, self.order(source, epoch))
        return self._in_order[source][1]

    def draws(self, budget: int) -> Draws:
        """What is drawn for so many tokens, to the token. Every source has documents."""
        found = [self._prefix(number, int(source.weight * budget)) for number, source in enumerate(self.sources)]
        lacks = [
            source.weight * budget - draws.tokens for source, draws in zip(self.sources, found, strict=True)
        ]  # together what is missing
        while missing := int(sum(lacks)):
            number = lacks.index(max(lacks))
            draws, documents = found[number], len(self.sources[number].lengths)
            tokens = int(self.in_order(number, draws.epochs)[draws.partial])
            if tokens > missing:
                return Draws(found, Cut(number, missing))
            lacks[number] -= tokens
            is_epoch = draws.partial + 1 == documents
            epochs, partial = (draws.epochs + 1, 0) if is_epoch else (draws.epochs, draws.partial + 1)
            found[number] = SourceDraws(epochs, partial, draws.tokens + tokens)
        return Draws(found, None)

    def _prefix(self, number: int, tokens: int) -> SourceDraws:
        source = self.sources[number]
        epochs, left = divmod(tokens, source.tokens)
        partial, taken = longest_prefix(self.in_order(number, epochs), left)
        return SourceDraws(epochs, partial, epochs * source.tokens + taken)


def longest_prefix(lengths: NDArray[np.int32], tokens: int) -> tuple[int, int]:
    """How many documents, from the first one on, have at most `tokens` together, and how many they have."""
    taken = 0
    for chunk in chunks(len(lengths)):
        totals = np.cumsum(lengths[chunk], dtype=np.int64) + taken
        fitting = int(np.searchsorted(totals, tokens, "right"))
        if fitting < len(totals):
            return chunk.start + fitting, int(totals[fitting - 1]) if fitting else taken
        taken = int(totals[-1])
    return len(lengths), taken


def gather(values: NDArray[np.int32], places: NDArray[np.uint32]) -> NDArray[np.int32]:
    """`values[places]`, for which NumPy would make a copy of the places, of 8 bytes each."""
    taken = np.empty(len(places), np.int32)
    for chunk in chunks(len(places)):
        taken[chunk] = values[places[chunk]]
    return taken


def bisect_largest(budget: int, is_fine: Callable[[int], bool]) -> int:
    """The largest budget that is fine, by bisection from 0, which is, to `budget`."""
    fine, beyond = 0, budget + 1
    middle = budget
    while beyond - fine > 1:
        if is_fine(middle):
            fine = middle
        else:
            beyond = middle
        middle = (fine + beyond) // 2
    return fine
