"""What trainers load, in torch: rows of packed sets and of mixtures of token shards, with masks and labels within a
document; and padded batches of sentence pairs. Batches of both are dealt to ranks, read ahead by workers, and go on in
the middle of an epoch.
"""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from pipeline_assets.corpus.formats.memmap import PackedSet, open_packed
from pipeline_assets.corpus.formats.row_batches import open_rows
from pipeline_assets.corpus.parallel_text import padding, token_cache
from pipeline_assets.corpus.parallel_text.batches import Order
from pipeline_assets.corpus.parallel_text.pairs import Split
from pipeline_assets.corpus.shards.mixture_order import log_remainder, rank_places
from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.spine.errors import InputError

logger = logging.getLogger("corpusmill")
_IGNORED = -100  # what torch's losses pass over
B = TypeVar("B")
Batches = Sequence[NDArray[np.int64]]


class RankLoader(Generic[B]):
    """Batches of one rank: each pass is an epoch, or the rest of one after a break or `load_state_dict`.

    Args:
        plan: Numbers in the dataset of each batch of an epoch, for this rank.
        made_by: All that plans depend on but the rank, as JSON has it.
        collate, finish: Make a batch of rows, in a worker and then in this process, which knows their numbers too.
        epoch, step: Where the first pass starts.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        plan: Callable[[int], Batches],
        made_by: Mapping[str, Any],
        collate: Callable[[Any], Any],
        finish: Callable[[Any, torch.Tensor], B],
        workers: int,
        epoch: int = 0,
        step: int = 0,
    ) -> None:
        self._dataset, self._plan, self._made_by = dataset, functools.lru_cache(1)(plan), made_by
        self._collate, self._finish, self._workers = collate, finish, workers
        self._epoch, self._step = epoch, step

    def batches(self) -> Batches:
        """Return the numbers in the dataset of each batch of this epoch."""
        return self._plan(self._epoch)

    def __len__(self) -> int:
        return max(0, len(self.batches()) - self._step)

    def __iter__(self) -> Iterator[B]:
        remaining = self.batches()[self._step :]
        loader = DataLoader(
            self._dataset,
            batch_sampler=remaining,  # type: ignore[arg-type]
            collate_fn=self._collate,
            num_workers=self._workers,
            generator=torch.Generator(),  # its own, so that no random number of the caller's is used up
        )
        for numbers, sent in zip(remaining, loader, strict=True):
            self._step += 1
            yield self._finish(sent, torch.from_numpy(numbers))
        self._epoch, self._step = self._epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return where this rank is, after the batch that came last: equal for all ranks at one step."""
        return {"epoch": self._epoch, "step": self._step, "of": self._made_by}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the batch that came last. Raises ValueError if the state is of other batches."""
        if self._made_by != (other := state.get("of")):
            what = f"the state is of {other}, this loader of {self._made_by}"
            raise ValueError(f"{what}: give it what it was saved with")
        epoch, step = state["epoch"], state["step"]
        if epoch < 0 or not 0 <= step <= len(self._plan(epoch)):
            raise ValueError(f"there is no step {step} of epoch {epoch}: give a state as it was saved")
        self._epoch, self._step = epoch, step


class TokenRows(Dataset[tuple[torch.Tensor, ...]]):
    """Rows of a packed set by their numbers, or of a mixture of token shards by their places.

    A row is its tokens, int64 (seq_len,), and its number, which `corpusmill trace --row` traces, or place, at which
    `reader[place]` has corpus and row. Between them, a packed row has the number of each token's document in it, int32
    (seq_len,), -1 for padding. Workers of a loader, forked or spawned, map the files for themselves.
    """

    def __init__(self, source: Path | str | MixtureReader) -> None:
        self.source = source if isinstance(source, MixtureReader) else open_packed(source)
        _ = self._read  # before workers are forked, which share its arrays

    @functools.cached_property
    def _read(self) -> Callable[[NDArray[np.int64]], tuple[NDArray[Any], ...]]:
        return open_rows(self.source).read if isinstance(self.source, PackedSet) else self.source.read

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source}

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        return tuple(part[0] for part in _row_batch(self.__getitems__([row]), torch.tensor([row])))

    def __getitems__(self, rows: Sequence[int] | NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        return self._read(np.asarray(rows, np.int64))


def _row_batch(sent: tuple[NDArray[Any], ...], rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Make a batch of what a worker sent: half the bytes of its tensors, so a pipe takes less time."""
    tokens, *runs = sent
    documents = [torch.from_numpy(np.repeat(*runs).reshape(tokens.shape))] if runs else []
    return torch.from_numpy(tokens.astype(np.int64)), *documents, rows


def loader(
    folder: Path | str | MixtureReader,
    batch: int,
    seed: int = 0,
    epoch: int = 0,
    rank: int = 0,
    ranks: int = 1,
    step: int = 0,
    workers: int = 0,
    drop_last: bool = False,
    padding: bool = False,
) -> RankLoader[tuple[torch.Tensor, ...]]:
    """Load a packed set, or a mixture: batches as of `TokenRows`, for one rank from a step on.

    Over all ranks and steps a row comes once at most, in an order of seed and epoch; every rank has as many batches,
    and at each step as many rows. The last of the order, which can't be dealt so, are left over in this epoch, and
    logged by rank 0: fewer than `ranks`, none of one rank.

    Args:
        seed, epoch: Of a packed set; a mixture has its order, that of `MixtureReader.batches`, and its errors.
        workers: Processes that read ahead; they change no batch.
        drop_last: Every batch is full: fewer than ranks × batch rows are left over. Else the last batch may be smaller.
        padding: No row is left over: the first rows of the order come a second time, fewer than `ranks`.
    Raises:
        ValueError: From `rank_places`; a seed or epoch below 0.
    """
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed and epoch must be 0 or more, got {seed} and {epoch}")
    rows = TokenRows(folder)
    source, size = rows.source, len(rows)
    rank_places(size, batch, rank, ranks, step, drop_last, padding)  # its errors come before any row is read

    def plan(epoch: int) -> Batches:
        is_packed = isinstance(source, PackedSet)
        order = np.random.default_rng([seed, epoch]).permutation(size) if is_packed else np.arange(size)
        places = rank_places(size, batch, rank, ranks, 0, drop_last, padding)
        if rank == 0:
            log_remainder(f"epoch {epoch}" if is_packed else "the order", size, places.stop, ranks)
            if places.stop < size:
                logger.info("epoch %d: rows left out: %s", epoch, ", ".join(map(str, order[places.stop :])))
        own = order[np.arange(places.start, places.stop, places.step) % size]
        return [own[first : first + batch] for first in range(0, len(own), batch)]

    made_by = {"digest": source.digest, "seed": seed, "batch": batch, "ranks": ranks}
    made_by |= {"drop_last": drop_last, "padding": padding}
    return RankLoader(rows, plan, made_by, tuple, _row_batch, workers, epoch, step)


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
    """tokens and targets, int64 (batch, seq_len), as `PaddedBatch` has them; attn_mask, bool: (batch, seq_len,
    seq_len), as `causal`, or (batch, 1, seq_len), what is no padding; places, int64 (batch,), in the dataset.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    attn_mask: torch.Tensor
    places: torch.Tensor


def _collate(
    pad_id: int, eos_id: int, seq_len: int | None, ignore_source: bool, mask: Mask, pairs: Sequence[EncodedPair]
) -> list[torch.Tensor]:
    """Make tokens, targets and attn_mask of pairs; without `seq_len` they are padded to their longest."""
    longest = max(pair["length"] for pair in pairs) - 1
    batch = padding.pad_sequences([pair["ids"].numpy() for pair in pairs], seq_len or longest, pad_id)
    targets = padding.mask_source(batch, eos_id) if ignore_source else batch.targets
    masked = padding.causal_mask(batch.attn_mask) if mask == "causal" else batch.attn_mask[:, None, :]
    return [torch.from_numpy(array) for array in (batch.tokens, targets, masked)]


class PairLoader(RankLoader[Batch]):
    """One rank's batches of pairs, in the order of `order`.

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
            fix = f"{token_cache.ENCODE_FIX} --seq-len {seq_len}, which cuts pairs"
            raise InputError(what, dataset.cache.folder, fix)
        if mask not in get_args(Mask):
            raise ValueError(f"mask is {mask!r}: give {' or '.join(get_args(Mask))}")
        if not 0 <= rank < order.ranks:
            raise ValueError(f"rank is {rank}, of {order.ranks} ranks: give 0 to ranks - 1")
        if ignore_source and dataset.side != "pair":
            raise ValueError(f"the side is {dataset.side}, which has no source to ignore: give a dataset of pairs")

        def plan(epoch: int) -> Batches:
            steps = [step for step in order.steps(dataset.lengths, epoch) if len(step[rank])]
            dealt, pairs = sum(len(part) for step in steps for part in step), len(dataset)
            if order.drop_last and rank == 0 and dealt < pairs:
                logger.warning("epoch %d: drop_last leaves out %d of %d pairs", epoch, pairs - dealt, pairs)
            return [step[rank] for step in steps]

        made_by = {"experiment_id": meta.experiment_id, "split": dataset.split, "side": dataset.side, **asdict(order)}
        collate = functools.partial(_collate, meta.pad_id, meta.eos_id, seq_len, ignore_source, mask)
        super().__init__(dataset, plan, made_by, collate, _pair_batch, workers)


def _pair_batch(sent: list[torch.Tensor], places: torch.Tensor) -> Batch:
    tokens, targets, attn_mask = sent
    return {"tokens": tokens, "targets": targets, "attn_mask": attn_mask, "places": places}
