"""Packed sets and mixtures of token shards in torch: rows over ranks and epochs; masks and labels within a document."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.shards.reader import MixtureReader, places_of_rank

logger = logging.getLogger("corpusmill")
_IGNORED = -100  # what torch's losses pass over


class PackedRows(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """Of each row its tokens, int64 (seq_len,), the number of each token's document in it, int32 (seq_len,), -1 for
    padding, and the row's own number, by which `corpusmill trace --row` finds its files. Workers of a loader, forked or
    spawned, map the file for themselves.

    Args:
        rows: of the set, in the order in which they come; None for all as they lie.
    """

    def __init__(self, folder: Path | str, rows: Sequence[int] | NDArray[np.int64] | None = None) -> None:
        self.packed = open_packed(folder)
        self.rows = np.arange(len(self.packed)) if rows is None else np.asarray(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        row = int(self.rows[place])
        tokens = torch.from_numpy(self.packed[row].astype(np.int64))
        return tokens, torch.from_numpy(self.packed.document_numbers(row)), row


def loader(
    folder: Path | str,
    batch: int,
    seed: int,
    epoch: int = 0,
    rank: int = 0,
    ranks: int = 1,
    step: int = 0,
    workers: int = 0,
    drop_last: bool = False,
) -> DataLoader[tuple[torch.Tensor, torch.Tensor, int]]:
    """Batches of one rank from a step on. Over all ranks and steps a row comes once at most, in an order of seed and
    epoch; every rank has as many batches, and at each step as many rows. The last of the order, which can't be dealt
    so, are left over in this epoch, and logged by rank 0: fewer than `ranks`, none of one rank.

    Args:
        workers: processes that read ahead; they change no batch.
        drop_last: every batch is full: fewer than ranks × batch rows are left over. Else the last batch may be smaller.
    Raises:
        ValueError: a rank that isn't one of `ranks`, or a step or batch that is none; too few rows for one batch.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(open_packed(folder)))
    places = places_of_rank(len(order), batch, rank, ranks, step, drop_last)
    if rank == 0 and places.stop < len(order):
        logger.info("epoch %d leaves rows over: %s", epoch, ", ".join(map(str, order[places.stop :])))
    rows = PackedRows(folder, order[places.start : places.stop : places.step])
    return DataLoader(rows, batch_size=batch, num_workers=workers)


class MixtureBatches(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """The batches of places of a mixture: tokens, int64 (batch, seq_len), and the places, int64 (batch,), at which
    `reader[place]` tells corpus and row. Workers of a loader, forked or spawned, take batches in turn.
    """

    def __init__(self, reader: MixtureReader, places: range, batch: int) -> None:
        self.reader, self.places, self.batch = reader, places, batch

    def __len__(self) -> int:
        return -(-len(self.places) // self.batch)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        turn = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        for one in self.reader.read(self.places, self.batch, *turn):
            yield torch.from_numpy(one.tokens.astype(np.int64)), torch.from_numpy(one.places)


def mixture_loader(
    reader: MixtureReader,
    batch: int,
    rank: int = 0,
    ranks: int = 1,
    step: int = 0,
    workers: int = 0,
    drop_last: bool = False,
) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of one rank of a mixture from a step on: those of `MixtureReader.batches`. Arguments and errors as there,
    `workers` as of `loader`.
    """
    places = reader.places_of(batch, rank, ranks, step, drop_last)
    return DataLoader(MixtureBatches(reader, places, batch), batch_size=None, num_workers=workers)


def attention_mask(documents: torch.Tensor) -> torch.Tensor:
    """May a token attend to another? (batch, seq_len) → bool (batch, seq_len, seq_len): to those before it, of its
    document; padding to padding, so that no softmax is over nothing.
    """
    return (documents[:, :, None] == documents[:, None, :]).tril()


def labels(tokens: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """The next token of the same document, int64 (batch, seq_len); -100 at its end, and for padding."""
    follows = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    return torch.nn.functional.pad(torch.where(follows, tokens[:, 1:], _IGNORED), (0, 1), value=_IGNORED)
