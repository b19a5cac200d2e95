"""How much is drawn of each source, so that their tokens have the shares that the weights ask for and fill the rows.

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.packing.strategies import count_pieces, rows_needed
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.hashes import rank

MAX_THINGS = 2**32
_GAMMA, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_UPPER = np.uint64(0xFFFFFFFF00000000)


def hashed_order(things: int, seed: int, *of: object) -> NDArray[np.uint32]:
    """The numbers 0 … things - 1 in the order that seed and subject give them; 8 bytes a thing while it is made."""
    start = int.from_bytes(rank(str(seed), *of)[:8], "big")
    keys = np.empty(things, np.uint64)
    _hash(np.uint64(start), keys)
    keys.sort()
    numbers = keys.view(np.uint32)
    _to_the_front(keys, numbers)
    del numbers
    keys.resize((things + 1) // 2, refcheck=False)  # gives the rest back, and copies nothing
    return keys.view(np.uint32)[:things]


@inner
def _split_mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _30)) * _MIX_1
    state = (state ^ (state >> _27)) * _MIX_2
    return state ^ (state >> _31)


@compiled
def _hash(start: np.uint64, keys: NDArray[np.uint64]) -> None:
    for number in range(len(keys)):
        state = start + np.uint64(number + 1) * _GAMMA
        keys[number] = (_split_mix(state) & _UPPER) | np.uint64(number)


@compiled
def _to_the_front(keys: NDArray[np.uint64], numbers: NDArray[np.uint32]) -> None:
    """The lower halves of keys to the beginning of the same memory."""
    for place in range(len(keys)):
        numbers[place] = np.uint32(keys[place])


@dataclass(frozen=True)
class SourceText:
    """A source as the mixture sees it: `lengths` of its documents in tokens, shape (documents,), their `tokens`; how
    many texts of it were `rejected`, which are no documents.
    """

    name: str
    weight: Fraction
    max_epochs: Fraction
    lengths: NDArray[np.int32]
    tokens: int
    rejected: int = 0

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

    of: Sequence[SourceDraws]
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
            self._in_order[source] = epoch, taken_from(self.sources[source].lengths, self.order(source, epoch))
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


@compiled
def longest_prefix(lengths: NDArray[np.int32], tokens: int) -> tuple[int, int]:
    """How many documents, from the first one on, have at most `tokens` together, and how many they have."""
    taken = 0
    for document in range(len(lengths)):
        if taken + lengths[document] > tokens:
            return document, taken
        taken += lengths[document]
    return len(lengths), taken


@compiled
def taken_from(values: NDArray[np.int32], places: NDArray[np.uint32]) -> NDArray[np.int32]:
    """`values[places]`, for which NumPy would make a copy of the places, of 8 bytes each."""
    taken = np.empty(len(places), np.int32)
    for number in range(len(places)):
        taken[number] = values[places[number]]
    return taken


def largest(budget: int, is_fine: Callable[[int], bool]) -> int:
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


def budget_of(mixture: Mixture, recipe: PackRecipe) -> int:
    """Tokens that are drawn: for `sequential` as many as the rows hold; for `best_fit` the most that bisection finds to
    take no more rows.

    Raises:
        UsageError: a source would have to be taken more often than its cap allows (says what would do), or all that may
            be drawn doesn't fill one row.
    """
    room, there = recipe.num_seqs * recipe.seq_len, mixture.largest_budget
    if recipe.strategy == "sequential":
        if room <= there:
            return room
        raise _not_enough(mixture, recipe, room, there // recipe.seq_len)
    rows = _Rows(mixture, recipe.seq_len)
    budget = largest(min(room, there), lambda tokens: rows.of(tokens) <= recipe.num_seqs)
    possible = rows.of(there) if there >= recipe.seq_len else 0
    if budget == there and possible < recipe.num_seqs:
        asked = largest(room, lambda tokens: rows.of(tokens) <= recipe.num_seqs)
        raise _not_enough(mixture, recipe, asked, possible)
    return budget


class _Rows:
    """How many rows best fit makes of a budget."""

    def __init__(self, mixture: Mixture, seq_len: int) -> None:
        self._mixture, self._seq_len = mixture, seq_len
        self._of_epoch = [count_pieces(source.lengths, seq_len) for source in mixture.sources]

    def of(self, budget: int) -> int:
        return rows_needed(self._pieces(self._mixture.draws(budget)), self._seq_len)

    def _pieces(self, draws: Draws) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        cut = np.array([draws.cut.tokens] if draws.cut else [], np.int32)
        pieces = count_pieces(cut, self._seq_len)
        for number, drawn in enumerate(draws.of):
            partial = self._mixture.in_order(number, drawn.epochs)[: drawn.partial]
            pieces += drawn.epochs * self._of_epoch[number] + count_pieces(partial, self._seq_len)
        return pieces


def _not_enough(mixture: Mixture, recipe: PackRecipe, asked: int, possible: int) -> UsageError:
    """
    Args:
        asked: tokens that fill the rows.
        possible: rows that there are tokens for.
    """
    source = min(mixture.sources, key=lambda source: source.most / source.weight)
    of_it = math.ceil(source.weight * asked)
    epochs = _decimal(Fraction(of_it, source.tokens), 3, up=True)
    cap = recipe.max_epochs.sources.get(source.name, recipe.max_epochs.every_source)
    rows = "1 row takes" if recipe.num_seqs == 1 else f"{recipe.num_seqs:,} rows take"
    what = (
        f"{rows} {of_it:,} tokens of {source.name}, which has {source.tokens:,}{_without_rejected(source)}: "
        f"{epochs} epochs, and its cap is {cap}"
    )
    fixes = [f"ask for {possible:,} rows at most"]
    if not possible:
        fixes = [f"make rows shorter: what may be drawn doesn't fill one of {recipe.seq_len:,}"]
    there, is_only = sum(one.most for one in mixture.sources), len(mixture.sources) == 1
    if there >= asked and not is_only:
        fixes.append(f"give it a weight of {_short(source.most / asked)} at most")
    elif there >= recipe.seq_len and not is_only and not possible:
        fixes.append("give it a lower weight and ask for fewer rows")
    return UsageError(what, "num_seqs", ", or ".join([*fixes, "raise its max_epochs"]))


def _without_rejected(source: SourceText) -> str:
    """What a source has not, though it was given: nobody looks for it in a file of rejects."""
    if not source.rejected:
        return ""
    return f" ({source.rejected:,} of its {source.rejected + len(source.lengths):,} texts can't be encoded)"


def _short(value: Fraction) -> str:
    """The value, above 0, as a decimal, rounded down, but not to 0."""
    places = 6
    while (short := _decimal(value, places)) == "0":
        places += 3
    return short


def _decimal(value: Fraction, places: int, up: bool = False) -> str:
    """The value as a decimal, rounded down, or up."""
    scaled = value * 10**places
    whole, part = divmod(-int(-scaled // 1) if up else int(scaled), 10**places)
    return f"{whole:,}.{part:0{places}}".rstrip("0").rstrip(".")
