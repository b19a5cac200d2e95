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
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.shards.mixture_order import (
    MixtureOrder,
    log_remainder,
    mixture_order,
    rank_places,
    weight_fractions,
)
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards

_CORPUS = 32  # bits of a row
_GROUP_BYTES = 4 << 20  # that of larger ones is seldom still in the cache when a batch is taken


class MixtureRow(NamedTuple):
    """Row, its corpus, and its number there for `corpusmill trace --row`."""

    tokens: NDArray[Any]
    corpus: str
    row: int


def check_compatible(corpora: Mapping[str, TokenShards]) -> None:
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
        check_compatible(self.shards)
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

        Their rows, and those left over or repeated, are as in `rank_places`; rank 0 logs how many are left over.

        Rows are read ahead in groups of 4 MiB, each in the order of the files: a batch is a view of its group.

        Raises:
            ValueError: from `rank_places`.
        """
        places = rank_places(len(self), batch, rank, ranks, step, drop_last, padding)
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
