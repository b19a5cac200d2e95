"""Reader of a mixture: rows of several corpora in one seeded order."""

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
    log_unread_or_repeated,
    mixture_order,
    rank_positions,
    weight_fractions,
)
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.spine.argument_types import check_arguments

_ROW_BITS = 32  # a key is corpus << 32 | row
_GROUP_BYTES = 4 << 20  # a larger group would leave the CPU's cache before its batches are read


class MixtureRow(NamedTuple):
    """Tokens of a mixture's row, shape (seq_len,), with its corpus and row number."""

    tokens: NDArray[Any]
    corpus: str
    row: int


def check_compatible(corpora: Mapping[str, TokenShards]) -> None:
    """Raise ValueError if row lengths, dtypes or tokenizers of corpora differ.

    At least one corpus is required.
    """
    if not corpora:
        raise ValueError("at least one corpus is required")
    first, *rest = sorted(corpora)
    for name in rest:
        for field in ("seq_len", "dtype", "tokenizer_sha256"):
            value, expected = getattr(corpora[name], field), getattr(corpora[first], field)
            if value != expected:
                raise ValueError(f"{field} of {name} is {value}, but of {first} {expected}: read them separately")


class MixtureReader:
    """Mixture as a sequence: `reader[position]` is a MixtureRow.

    Attributes:
        names: Sorted names of the corpora; a corpus's number in `order` is its index in this list.
        shards: Opened token shards of each corpus.
        ranges: Rows that are read, by corpus.
        seq_len, dtype, eos: Tokens per row, their dtype, and the id of the end-of-document token.
    """

    @check_arguments
    def __init__(
        self,
        folders: Mapping[str, Path | str],
        weights: Mapping[str, float | str] | None,
        seed: int,
        rows: int | None = None,
        ranges: Mapping[str, range] | None = None,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        """Open the token shards of all corpora.

        Args:
            folders: Folders of token shards by corpus.
            weights: Share of rows by corpus. With None, shares are in proportion to the numbers of rows in `ranges`, so
                that all corpora end together.
            seed: Seed of the order.
            rows: Length of the order, see `mixture_order`.
            ranges: Rows to read of each corpus; None for all.
            digests: Expected digest by corpus; any digest is accepted of a corpus that is not named.

        Raises:
            ValueError: `folders` is empty, or `rows` is below 1. `weights` or `ranges` do not name exactly the corpora,
                or `digests` names another one. A weight is not above 0, or the sum of weights is not 1. A range is
                empty, has a step, or exceeds its corpus. Corpora differ in row length, dtype or tokenizer.
            InputError: A folder has no sealed token shards, a file is damaged, or an argument has a wrong type
                (`UsageError`).
            RetryableError: A folder has token shards with a different digest, or was replaced while it was opened.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        self._arguments, self.names = (weights, seed, rows, ranges), sorted(folders)
        if unknown := sorted({*(digests or {})} - {*self.names}):
            raise ValueError(f"digests must name corpora of {self.names}, got {unknown}")
        self.shards = {name: open_shards(folders[name], (digests or {}).get(name)) for name in self.names}
        check_compatible(self.shards)
        all_rows = {name: range(len(shards)) for name, shards in self.shards.items()}
        self.ranges = dict(ranges or all_rows)
        for argument, mapping in (("weights", weights), ("ranges", ranges)):
            if mapping is not None and sorted(mapping) != self.names:
                raise ValueError(f"{argument} must name the corpora {self.names}, got {sorted(mapping)}")
        for name, rows_to_read in self.ranges.items():
            last = len(all_rows[name]) - 1
            if (
                not isinstance(rows_to_read, range)
                or not rows_to_read
                or rows_to_read[0] < 0
                or rows_to_read[-1] > last
                or rows_to_read.step != 1
            ):
                raise ValueError(f"range of {name} must be within its rows 0 to {last}, got {rows_to_read}")
        total = sum(map(len, self.ranges.values()))
        shares = {name: Fraction(len(rows_to_read), total) for name, rows_to_read in self.ranges.items()}
        self._shares = shares if weights is None else weight_fractions(weights)
        first = self.shards[self.names[0]]
        self.seq_len, self.dtype, self.eos = first.seq_len, first.dtype, first.eos

    def __reduce__(self) -> tuple[Callable[..., "MixtureReader"], tuple[Any, ...]]:
        folders = {name: shards.folder for name, shards in self.shards.items()}
        digests = {name: shards.digest for name, shards in self.shards.items()}
        return MixtureReader, (folders, *self._arguments, digests)

    @property
    def digest(self) -> str:
        """Hash (sha256) of everything that the rows and their order depend on."""
        _, seed, rows, _ = self._arguments
        digests = {name: shards.digest for name, shards in self.shards.items()}
        shares = [(name, str(self._shares[name]), self.ranges[name]) for name in self.names]
        return hashlib.sha256(repr((digests, shares, seed, rows)).encode()).hexdigest()

    @cached_property
    def order(self) -> MixtureOrder:
        """Order of the rows; depends only on names, weights, ranges, length and seed."""
        _, seed, rows, _ = self._arguments
        return mixture_order(self.ranges, self._shares, seed, rows)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, position: int) -> MixtureRow:
        position = range(len(self))[position]
        name, row = self.names[self.order.corpus_numbers[position]], int(self.order.row_numbers[position])
        return MixtureRow(self.shards[name][row], name, row)

    @check_arguments
    def batches(
        self, batch: int, rank: int = 0, ranks: int = 1, step: int = 0, drop_last: bool = False, padding: bool = False
    ) -> Iterator[NDArray[Any]]:
        """Yield one rank's batches, shape (batch, seq_len), starting at a step.

        The last batch may have fewer rows. See `rank_positions` for arguments and errors; a wrong type is a UsageError.
        Rank 0 logs how many rows are not read or are repeated. Rows are read in groups of about 4 MiB; a batch is a
        view of its group.
        """
        positions = rank_positions(len(self), batch, rank, ranks, step, drop_last, padding)
        if rank == 0:
            log_unread_or_repeated("the order", len(self), positions.stop, ranks, drop_last)
        return self._read_batches(positions, batch)

    def _read_batches(self, positions: range, batch: int) -> Iterator[NDArray[Any]]:
        group = max(1, _GROUP_BYTES // (batch * self.seq_len * self.dtype.itemsize)) * batch
        for start in range(0, len(positions), group):
            [tokens] = self.read(np.array(positions[start : start + group]) % len(self))
            yield from (tokens[first : first + batch] for first in range(0, len(tokens), batch))

    def read(self, positions: NDArray[np.int64]) -> tuple[NDArray[Any]]:
        """Return the rows at `positions`, shape (positions, seq_len), as a 1-tuple.

        The tuple is for callers that also use readers whose rows have several arrays.
        """
        # Copy in file order: sort by key (the corpus above the row), then copy the rows of one file at a time.
        keys = (self.order.corpus_numbers[positions].astype(np.int64) << _ROW_BITS) + self.order.row_numbers[positions]
        destinations = np.argsort(keys)
        keys = keys[destinations]
        files = np.searchsorted(self._first_keys, keys, "right") - 1  # the last file that begins at or before the key
        bounds = [*np.flatnonzero(np.diff(files, prepend=-1)).tolist(), len(keys)]  # where the file changes
        tokens = np.empty((len(positions), self.seq_len), self.dtype)
        for start, stop in itertools.pairwise(bounds):
            shards, number = self._files[files[start]]
            rows_in_file = keys[start:stop] - self._first_keys[files[start]]
            tokens[destinations[start:stop]] = shards.map_file(number)[rows_in_file]
        return (tokens,)

    @cached_property
    def _files(self) -> list[tuple[TokenShards, int]]:
        """Pairs (token shards, file number) of all files, in the order of corpora."""
        return [(shards, number) for shards in self.shards.values() for number in range(len(shards.files))]

    @cached_property
    def _first_keys(self) -> NDArray[np.int64]:
        """Keys (corpus << 32 | row) of the first rows of all files, ascending."""
        return np.concatenate(
            [(number << _ROW_BITS) + shards.first_rows[:-1] for number, shards in enumerate(self.shards.values())]
        )
