"""Rows of several corpora in one seeded order, by weight: the same for any number of ranks and workers.

Places count from 1. The k-th row of a corpus of weight w may come once w · place is above k - 1, and is due at place
⌈k / w⌉: come later, it would lag behind by a whole row. At each place comes, of the corpora whose next row may, that
whose is due first, of equals the first by name. To take the one with the largest deficit would let small corpora lag by
more than a row where there are many. (Such windows are those of proportionate fairness, Baruah et al., "Proportionate
Progress", Algorithmica 1996, and the earliest deadline first keeps all of them on one processor.) Windows are whole
numbers: there is no rounding.

Within a corpus rows come in the hashed order of the seed, the corpus' name and its epoch: see `packing.mixture`.
"""

import hashlib
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.packing.mixture import hashed_order
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards

_MOST_SHARES = 1 << 61
_CORPUS = 32  # bits of a row
logger = logging.getLogger("corpusmill")
_GROUP_BYTES = 4 << 20  # that of larger ones is seldom still in the cache when a batch is taken


def places_of_rank(
    rows: int, batch: int, rank: int, ranks: int, step: int, drop_last: bool, padding: bool = False
) -> range:
    """The places of one rank from a step on, in the order of its batches; `stop` is that of what all ranks are dealt.

    Every rank has as many batches, and at each step as many rows. The last rows, which can't be dealt so, are left
    over: fewer than `ranks`, or than ranks × batch where `drop_last` asks for full batches.

    Args:
        padding: deal every row, and repeat the first rows of the order until each rank has as many, as torch's
            DistributedSampler does without its `drop_last`. Place `rows` and later ones stand for these repeats:
            place p is place p % rows.
    Raises:
        ValueError: a rank that isn't one of `ranks`, or a step or batch that is none; too few rows for one batch;
            both `drop_last` and `padding`.
    """
    if drop_last and padding:
        raise ValueError("drop_last and padding exclude each other: drop the last rows, or repeat the first ones")
    if ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"rank is {rank}, of {ranks} ranks: give 0 to ranks - 1")
    if batch < 1 or step < 0:
        raise ValueError(f"batch is {batch}, step {step}: give a batch of 1 or more, a step of 0 or more")
    share = ranks * batch if drop_last else ranks
    dealt = -(-rows // share) * share if padding else rows - rows % share
    if not dealt:
        fix = "give fewer ranks" + ", or a smaller batch" * drop_last
        raise ValueError(f"there are {rows} rows, and {ranks} ranks take {share} at least: {fix}")
    return range(step * ranks * batch + rank, dealt, ranks)


def log_remainder(order: str, rows: int, dealt: int, ranks: int) -> None:
    """Log how many rows of an order its ranks do not read, or read twice. Nothing is logged if each comes once.

    Args:
        dealt: rows of all ranks together, with repeats.
    """
    if dealt < rows:
        hint = "padding=True repeats rows instead"
        logger.warning(
            "%s: the last %d of %d rows are left out over %d ranks; %s", order, rows - dealt, rows, ranks, hint
        )
    elif dealt > rows:
        logger.info("%s: %d of %d rows are repeated over %d ranks", order, dealt - rows, rows, ranks)


@dataclass(frozen=True)
class MixtureOrder:
    """Corpus (numbered in name order) and row of each place, shape (places,)."""

    corpora: NDArray[np.uint16]
    rows: NDArray[np.uint32]  # 6 bytes per place, with the corpus

    def __len__(self) -> int:
        return len(self.rows)


def weight_fractions(weights: Mapping[str, float | str]) -> dict[str, Fraction]:
    """Return weights as exact fractions: 0.1 is a tenth; raise ValueError if invalid."""
    fractions = {name: Fraction(str(weight)) for name, weight in weights.items()}
    for name, weight in fractions.items():
        if weight <= 0:
            raise ValueError(f"the weight of {name} is {weights[name]}: give one above 0, or leave the corpus out")
    if (total := sum(fractions.values())) != 1:
        raise ValueError(f"the weights sum to {total}, not to 1: correct them; text may say what no float does, '1/3'")
    return fractions


def mixture_order(
    corpora: Mapping[str, range], weights: Mapping[str, Fraction], seed: int, rows: int | None
) -> MixtureOrder:
    """Order the rows of several corpora by weight and seed.

    Args:
        corpora: row numbers of each corpus, at least one.
        weights: weight of each corpus, above 0; they sum to 1.
        rows: length of the order: a corpus that ends begins a new epoch. None ends the order before the first repeat.
    Raises:
        ValueError: the weights' common denominator is above 2**61.
    """
    names = sorted(corpora)
    whole = math.lcm(*(weights[name].denominator for name in names))
    if whole > _MOST_SHARES:
        raise ValueError(f"the weights are parts of {whole}: round them, so that it is {_MOST_SHARES} at most")
    parts = np.array([int(weights[name] * whole) for name in names], np.int64)
    sizes = [len(corpora[name]) for name in names]
    places, limits = rows, np.full(len(names), np.iinfo(np.int64).max)
    if places is None:
        places, limits = sum(sizes), np.array(sizes, np.int64)
    order = np.empty(places, np.uint16)
    order = order[: _deal(parts, whole, limits, order)]
    numbers = np.empty(len(order), np.uint32)
    for number, name in enumerate(names):
        places_of_corpus = np.flatnonzero(order == number)
        for epoch, first in enumerate(range(0, len(places_of_corpus), sizes[number])):
            own = places_of_corpus[first : first + sizes[number]]
            of_epoch = hashed_order(sizes[number], seed, "mixture", name, epoch)[: len(own)]
            numbers[own] = of_epoch + np.uint32(corpora[name].start)
    return MixtureOrder(order, numbers)


@compiled
def _deal(parts: NDArray[np.int64], whole: int, limits: NDArray[np.int64], order: NDArray[np.uint16]) -> int:
    """Fill in the corpus of each place, and count the places until a limit is reached."""
    quotients, remainders = whole // parts, whole % parts  # of k / w, where the next row of the corpus is its k-th
    may_come, taken = np.ones(len(parts), np.int64), np.zeros(len(parts), np.int64)
    due = quotients + (remainders > 0)
    for place in range(len(order)):
        first = -1
        for corpus in range(len(parts)):
            if may_come[corpus] <= place + 1 and (first < 0 or due[corpus] < due[first]):
                first = corpus
        if taken[first] == limits[first]:
            return place
        order[place] = first
        taken[first] += 1
        may_come[first] = quotients[first] + 1
        quotients[first] += whole // parts[first]
        remainders[first] += whole % parts[first]
        if remainders[first] >= parts[first]:
            remainders[first] -= parts[first]
            quotients[first] += 1
        due[first] = quotients[first] + (remainders[first] > 0)
    return len(order)


class MixtureRow(NamedTuple):
    """Row, its corpus, and its number there for `corpusmill trace --row`."""

    tokens: NDArray[Any]
    corpus: str
    row: int


def refuse_unlike(corpora: Mapping[str, TokenShards]) -> None:
    """Raises ValueError where rows of corpora aren't of one length, dtype and tokenizer, or there is no corpus."""
    if not corpora:
        raise ValueError("there is no corpus: give the folder of one")
    first, *others = sorted(corpora)
    for name in others:
        for what in ("seq_len", "dtype", "tokenizer_sha256"):
            here, there = getattr(corpora[name], what), getattr(corpora[first], what)
            if here != there:
                raise ValueError(f"{what} of {name} is {here}, of {first} {there}: read them apart")


class MixtureReader:
    """A mixture as a sequence: `reader[place]` is a MixtureRow. Pickled, it is what it was made from.

    Attributes:
        names: of the corpora, sorted: the order numbers them so.
        shards: of each, by name.
        order: what comes at each place: see above. It depends on names, weights, numbers of rows and seed alone.
    """

    def __init__(
        self,
        folders: Mapping[str, Path | str],
        weights: Mapping[str, float | str] | None,
        seed: int,
        rows: int | None = None,
        ranges: Mapping[str, range] | None = None,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            folders: of the token shards of each corpus.
            weights: shares of the rows; None for those that the corpora have, so that all end together.
            rows: see `mixture_order`.
            ranges: the rows of each corpus that are read; None for all.
            digests: of the sets that are expected; None for what is there.
        Raises:
            ValueError: weights that don't sum to 1, or of other corpora; corpora of other lengths of rows, dtypes or
                tokenizers than the first; a range beyond a corpus; nothing to read.
            InputError, RetryableError: from `open_shards`.
        """
        self._arguments = weights, seed, rows, ranges
        self.names = sorted(folders)
        self.shards = {name: open_shards(folders[name], (digests or {}).get(name)) for name in self.names}
        refuse_unlike(self.shards)
        of_all = {name: range(len(shards)) for name, shards in self.shards.items()}
        self.ranges = dict(ranges or of_all)
        for what, named in (("weights", weights), ("ranges", ranges)):
            if named is not None and sorted(named) != self.names:
                raise ValueError(f"the corpora are {self.names}, and {what} are of {sorted(named)}")
        for name, own in self.ranges.items():
            if not own or own[0] < 0 or own[-1] >= len(of_all[name]) or own.step != 1:
                raise ValueError(f"{name} has rows 0 to {len(of_all[name]) - 1}: {own} is no range of them")
        total = sum(map(len, self.ranges.values()))
        sizes = {name: Fraction(len(of), total) for name, of in self.ranges.items()}
        self._shares = sizes if weights is None else weight_fractions(weights)
        first = self.shards[self.names[0]]
        self.seq_len, self.dtype, self.eos = first.seq_len, first.dtype, first.eos

    def __reduce__(self) -> tuple[Callable[..., "MixtureReader"], tuple[Any, ...]]:
        folders = {name: shards.folder for name, shards in self.shards.items()}
        digests = {name: shards.digest for name, shards in self.shards.items()}
        return MixtureReader, (folders, *self._arguments, digests)

    @property
    def digest(self) -> str:
        """The sha256 of all that the rows and their order depend on."""
        _, seed, rows, _ = self._arguments
        digests = {name: shards.digest for name, shards in self.shards.items()}
        shares = [(name, str(self._shares[name]), self.ranges[name]) for name in self.names]
        return hashlib.sha256(repr((digests, shares, seed, rows)).encode()).hexdigest()

    @cached_property
    def order(self) -> MixtureOrder:
        _, seed, rows, _ = self._arguments
        return mixture_order(self.ranges, self._shares, seed, rows)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> MixtureRow:
        place = range(len(self))[place]
        name, row = self.names[self.order.corpora[place]], int(self.order.rows[place])
        return MixtureRow(self.shards[name][row], name, row)

    def batches(
        self,
        batch: int,
        rank: int = 0,
        ranks: int = 1,
        step: int = 0,
        drop_last: bool = False,
        padding: bool = False,
    ) -> Iterator[NDArray[Any]]:
        """Read the batches of one rank from a step on, shape (batch, seq_len), of the shards' dtype.

        Their rows, and those left over or repeated, are as in `places_of_rank`; rank 0 logs how many are left over.

        Rows are read ahead in groups of 4 MiB, each in the order of the files: a batch is a view of its group.

        Raises:
            ValueError: from `places_of_rank`.
        """
        places = places_of_rank(len(self), batch, rank, ranks, step, drop_last, padding)
        if rank == 0:
            log_remainder("the order", len(self), places.stop, ranks)
        return self._read(places, batch)

    def _read(self, places: range, batch: int) -> Iterator[NDArray[Any]]:
        group = max(1, _GROUP_BYTES // (batch * self.seq_len * self.dtype.itemsize)) * batch
        for start in range(0, len(places), group):
            [tokens] = self.read(np.array(places[start : start + group]) % len(self))
            yield from (tokens[first : first + batch] for first in range(0, len(tokens), batch))

    def read(self, places: NDArray[np.int64]) -> tuple[NDArray[Any]]:
        """Read the rows at some places, shape (places, seq_len), copied in the order in which they lie in the files."""
        keys = (self.order.corpora[places].astype(np.int64) << _CORPUS) + self.order.rows[places]
        to = np.argsort(keys)
        keys = keys[to]
        files = np.searchsorted(self._first_keys, keys, "right") - 1
        bounds = [*np.flatnonzero(np.diff(files, prepend=-1)).tolist(), len(keys)]
        tokens = np.empty((len(places), self.seq_len), self.dtype)
        for start, stop in itertools.pairwise(bounds):
            shards, number = self._files[files[start]]
            tokens[to[start:stop]] = shards.mapped(number)[keys[start:stop] - self._first_keys[files[start]]]
        return (tokens,)

    @cached_property
    def _files(self) -> list[tuple[TokenShards, int]]:
        """All files of all corpora, in order."""
        return [(shards, number) for shards in self.shards.values() for number in range(len(shards.files))]

    @cached_property
    def _first_keys(self) -> NDArray[np.int64]:
        """Of each file its first row, and above it the corpus."""
        firsts = [(number << _CORPUS) + one.first_rows[:-1] for number, one in enumerate(self.shards.values())]
        return np.concatenate(firsts)
