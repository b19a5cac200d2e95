"""What trainers load, in torch: packed sets and mixtures of token shards, as rows over ranks and epochs, with masks and
labels within a document; and padded batches of sentence pairs, which go on in the middle of an epoch.
`parallel_text.batches` says which pairs come when.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.formats.row_batches import RowReader, open_rows
from pipeline_assets.corpus.parallel_text import token_cache
from pipeline_assets.corpus.parallel_text.batches import Order
from pipeline_assets.corpus.parallel_text.pairs import Split
from pipeline_assets.corpus.shards.reader import MixtureReader, log_remainder, places_of_rank
from pipeline_assets.corpus.spine.errors import InputError

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
        _ = self._reader  # before workers are forked, which share its arrays

    @cached_property
    def _reader(self) -> RowReader:
        return open_rows(self.packed)

    def __getstate__(self) -> dict[str, Any]:
        return {"packed": self.packed, "rows": self.rows}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        row = int(self.rows[place])
        tokens, documents = self._reader.read(np.array([row]))
        return torch.from_numpy(tokens[0]), torch.from_numpy(documents[0]), row


class _Batches(PackedRows):
    """Rows that a loader reads by the batch."""

    def __getitems__(self, places: Sequence[int]) -> "list[torch.Tensor] | _SentBatch":
        rows = self.rows[places].astype(np.int64)
        if get_worker_info() is None:
            return _batch(rows, self._reader, rows)
        return _SentBatch(rows, self._reader.part(rows))


@dataclass(frozen=True)
class _SentBatch:
    """Rows that a worker read, a batch in the process that receives them.

    Tokens of 4 bytes and boundaries in a pipe take less time than three tensors with a file descriptor each.
    """

    rows: NDArray[np.int64]
    part: RowReader

    def __reduce__(self) -> tuple[Callable[..., list[torch.Tensor]], tuple[Any, ...]]:
        return _batch, (self.rows, self.part, np.arange(len(self.rows)))


def _batch(numbers: NDArray[np.int64], reader: RowReader, rows: NDArray[np.int64]) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in (*reader.read(rows), numbers)]


def _as_read(batch: list[torch.Tensor] | _SentBatch) -> list[torch.Tensor] | _SentBatch:
    return batch


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
    padding: bool = False,
) -> DataLoader[tuple[torch.Tensor, torch.Tensor, int]]:
    """Batches of one rank from a step on. Over all ranks and steps a row comes once at most, in an order of seed and
    epoch; every rank has as many batches, and at each step as many rows. The last of the order, which can't be dealt
    so, are left over in this epoch, and logged by rank 0: fewer than `ranks`, none of one rank.

    Args:
        workers: processes that read ahead; they change no batch.
        drop_last: every batch is full: fewer than ranks × batch rows are left over. Else the last batch may be smaller.
        padding: no row is left over: the first rows of the order come a second time, fewer than `ranks`.
    Raises:
        ValueError: a rank that isn't one of `ranks`, or a step or batch that is none; too few rows for one batch;
            both `drop_last` and `padding`; a seed or epoch below 0.
    """
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed and epoch must be 0 or more, got {seed} and {epoch}")
    order = np.random.default_rng([seed, epoch]).permutation(len(open_packed(folder)))
    places = places_of_rank(len(order), batch, rank, ranks, step, drop_last, padding)
    if rank == 0:
        log_remainder(f"epoch {epoch}", len(order), places.stop, ranks)
        if places.stop < len(order):
            logger.info("epoch %d: rows left out: %s", epoch, ", ".join(map(str, order[places.stop :])))
    dataset = _Batches(folder, order[np.arange(places.start, places.stop, places.step) % len(order)])
    return DataLoader(dataset, batch_size=batch, num_workers=workers, collate_fn=_as_read)


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
    padding: bool = False,
) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of one rank of a mixture from a step on: those of `MixtureReader.batches`. Arguments and errors as there,
    `workers` as of `loader`.
    """
    places = reader.places_of(batch, rank, ranks, step, drop_last, padding)
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


Mask = Literal["causal", "padding"]


class EncodedPair(TypedDict):
    """Ids, int64 (length,), each side closed by </s>."""

    ids: torch.Tensor
    length: int


class PairDataset(Dataset[EncodedPair]):
    """Pairs in the manifest's order, of the cache and nothing else: what isn't there is an error, not made. Workers of
    a loader, forked or spawned, map the files for themselves.

    Args:
        split: None for all.
        side: `pair` for src </s> tgt </s>.
        experiment_id: that the cache must have; None for any.
        manifest: of which it must have been made; None for any.
    Raises:
        InputError: there is no such cache; names the command that makes it.
    """

    def __init__(
        self,
        folder: Path | str,
        split: Split | None = "train",
        side: token_cache.Side = "pair",
        experiment_id: str | None = None,
        manifest: Path | str | None = None,
    ) -> None:
        self.cache = token_cache.open_cache(folder, experiment_id, manifest)
        self.split, self.side, self.rows = split, side, self.cache.rows(split)
        self.lengths = self.cache.lengths(side)[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> EncodedPair:
        ids = torch.from_numpy(self.cache.row(int(self.rows[place]), self.side).astype(np.int64))
        return {"ids": ids, "length": len(ids)}

    def uid(self, place: int) -> str:
        """Of the pair, as the manifest has it."""
        return bytes(self.cache.uids[self.rows[place]]).decode()


class Batch(TypedDict):
    """tokens and targets, int64 (batch, seq_len), as `Padded` has them; attn_mask, bool: (batch, seq_len,
    seq_len), as `causal`, or (batch, 1, seq_len), what is no padding; places, int64 (batch,), in the dataset.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    attn_mask: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True)
class Collate:
    """Pairs to a batch.

    Attributes:
        seq_len: None pads to the longest of the batch.
    """

    pad_id: int
    eos_id: int
    seq_len: int | None
    ignore_source: bool
    mask: Mask

    def __call__(self, pairs: Sequence[EncodedPair]) -> list[torch.Tensor]:
        """Tokens, targets, attn_mask."""
        longest = max(pair["length"] for pair in pairs) - 1
        batch = token_cache.padded([pair["ids"].numpy() for pair in pairs], self.seq_len or longest, self.pad_id)
        targets = token_cache.without_source(batch, self.eos_id) if self.ignore_source else batch.targets
        mask = token_cache.causal(batch.attn_mask) if self.mask == "causal" else batch.attn_mask[:, None, :]
        return [torch.from_numpy(array) for array in (batch.tokens, targets, mask)]


class PairLoader:
    """One rank's batches: each pass over it is an epoch, or what is left of one after `load_state_dict` or a break.

    Args:
        seq_len: of every batch; None pads each to its longest.
        ignore_source: no target is a token of the source side.
        workers: processes that read ahead; they change no batch.
    Raises:
        InputError: a pair is longer than `seq_len`: pairs are cut once, when they are encoded.
        ValueError: a rank that isn't one of `order.ranks`; no source side to ignore.
    """

    def __init__(
        self,
        dataset: PairDataset,
        order: Order,
        rank: int = 0,
        seq_len: int | None = None,
        ignore_source: bool = False,
        mask: Mask = "causal",
        workers: int = 0,
    ) -> None:
        longest, meta = int(dataset.lengths.max(initial=1)) - 1, dataset.cache.meta
        if seq_len is not None and longest > seq_len:
            what = f"its longest pair has {longest:,} tokens, and seq_len is {seq_len:,}"
            raise InputError(
                what, dataset.cache.folder, f"{token_cache.ENCODE_FIX} --seq-len {seq_len}, which cuts pairs"
            )
        if mask not in get_args(Mask):
            raise ValueError(f"mask is {mask!r}: give {' or '.join(get_args(Mask))}")
        if not 0 <= rank < order.ranks:
            raise ValueError(f"rank is {rank}, of {order.ranks} ranks: give 0 to ranks - 1")
        if ignore_source and dataset.side != "pair":
            raise ValueError(f"the side is {dataset.side}, which has no source to ignore: give a dataset of pairs")
        self._dataset, self._order, self._rank, self._workers = dataset, order, rank, workers
        self._collate = Collate(meta.pad_id, meta.eos_id, seq_len, ignore_source, mask)
        self._epoch = self._step = 0

    def batches(self) -> list[NDArray[np.int64]]:
        """Places in the dataset of each batch of this epoch."""
        steps = self._order.steps(self._dataset.lengths, self._epoch)
        return [step[self._rank] for step in steps if len(step[self._rank])]

    def __len__(self) -> int:
        return len(self.batches())

    def __iter__(self) -> Iterator[Batch]:
        batches = [places.tolist() for places in self.batches()]
        pairs, dealt = len(self._dataset), sum(map(len, batches)) * self._order.ranks
        if self._order.drop_last and self._rank == self._step == 0 and dealt < pairs:
            logger.warning("epoch %d: drop_last leaves out %d of %d pairs", self._epoch, pairs - dealt, pairs)
        left = batches[self._step :]
        loader = DataLoader(
            self._dataset,
            batch_sampler=left,
            collate_fn=self._collate,
            num_workers=self._workers,
            generator=torch.Generator(),  # its own, so that no random number of the caller's is used up
        )
        for places, (tokens, targets, attn_mask) in zip(left, loader, strict=True):
            self._step += 1
            yield {"tokens": tokens, "targets": targets, "attn_mask": attn_mask, "places": torch.tensor(places)}
        self._epoch, self._step = self._epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Where this rank is: after the batch that came last. The same for all ranks at one step."""
        return {"epoch": self._epoch, "step": self._step, "of": self._of()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on behind the batch that came last. Raises ValueError where that was of other batches, or of none."""
        if (own := self._of()) != state.get("of"):
            raise ValueError(f"the state is of {state.get('of')}, this loader of {own}: give it what it was saved with")
        before, (self._epoch, self._step) = (self._epoch, self._step), (state["epoch"], state["step"])
        if self._epoch < 0 or not 0 <= self._step <= len(self):
            self._epoch, self._step = before
            raise ValueError(
                f"there is no step {state['step']} of epoch {state['epoch']}: give a state as it was saved"
            )

    def _of(self) -> dict[str, Any]:
        """What the batches depend on."""
        data = {"experiment_id": self._dataset.cache.meta.experiment_id, "split": self._dataset.split}
        return data | {"side": self._dataset.side} | asdict(self._order)
