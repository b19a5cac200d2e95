"""Torch loaders, masks and labels for sentence pairs, packed sets and mixtures.

The loaders deal batches to ranks, read ahead in worker processes, and can resume in the middle of an epoch.
"""

import functools
import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from pipeline_assets.corpus.formats.memmap import PackedSet, open_packed, resolve_row
from pipeline_assets.corpus.formats.row_batches import open_row_reader
from pipeline_assets.corpus.parallel_text import padding, token_cache
from pipeline_assets.corpus.parallel_text.batches import Order
from pipeline_assets.corpus.parallel_text.pairs import Split
from pipeline_assets.corpus.rank_loader import Batches, RankLoader
from pipeline_assets.corpus.shards.mixture_order import log_unread_or_repeated, rank_positions
from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.errors import InputError

logger = logging.getLogger("corpusmill")
_IGNORED_LABEL = -100  # torch's losses ignore this label
_PIPE_BYTES = 1 << 20  # workers send larger arrays as tensors, in shared memory, and smaller ones through a pipe


class TokenRows(Dataset[tuple[torch.Tensor, ...]]):
    """Rows of a packed set by row number, or of a mixture by position in its order.

    An item is (tokens, documents, row number) for a packed set, and (tokens, position) for a mixture. `tokens` is int64
    (seq_len,); `documents` has the number of each token's document in the row, int32 (seq_len,), -1 for padding. To
    find the source of a row, pass its number to `corpusmill trace --row`, or its position to the `MixtureReader`.
    """

    def __init__(self, source: Path | str | MixtureReader) -> None:
        self.source = source if isinstance(source, MixtureReader) else open_packed(source)
        _ = self.read  # opened before the fork, so that workers share the arrays

    @functools.cached_property
    def read(self) -> Callable[[NDArray[np.int64]], tuple[NDArray[Any], ...]]:
        """Function that returns the rows of a batch as arrays, see `RowReader.read`."""
        return open_row_reader(self.source).read if isinstance(self.source, PackedSet) else self.source.read

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source}

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        number = resolve_row(row, len(self))
        return tuple(part[0] for part in _to_tensors(self.read(np.array([number])), torch.tensor([number])))


def _to_tensors(arrays: tuple[NDArray[Any], ...], row_numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Build a batch of tensors from row numbers and the result of `RowReader.read`."""
    tokens, *runs = arrays
    documents = [torch.from_numpy(np.repeat(*runs).reshape(tokens.shape))] if runs else []
    return torch.from_numpy(tokens.astype(np.int64)), *documents, row_numbers


@check_arguments
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
    """Create a loader of one rank's batches from a packed set or a mixture.

    Seed and epoch determine the order of a packed set; the order of a mixture is fixed. All ranks have the same number
    of batches, and at each step their batches have the same number of rows. No row is in two batches of an epoch.

    Args:
        folder: Folder of a packed set, or an open mixture.
        batch: Rows per batch and rank.
        seed: Random seed of the order, >= 0.
        epoch: Number of the first epoch, from 0.
        rank: Number of this process, in 0..`ranks` - 1.
        ranks: Number of training processes.
        step: Number of batches that the first epoch skips, to resume an interrupted run.
        workers: Processes that read ahead; 0 reads in this process.
        drop_last: Whether to skip a last batch that is not full.
        padding: Whether to repeat the first rows at the end of an epoch if the rows cannot be divided evenly among the
            ranks. Otherwise the last rows are skipped, and rank 0 logs them.

    Returns:
        An iterable of (tokens, documents, row numbers) for a packed set, and of (tokens, positions) for a mixture.
        `tokens` is int64 (batch, seq_len). `documents` has the number of each token's document in its row, int32
        (batch, seq_len), -1 for padding. Row numbers and positions are int64 (batch,).

    Raises:
        ValueError: An argument is out of range, the rows are too few, or `drop_last` and `padding` are both set.
        InputError: An argument has a wrong type (`UsageError`), or the packed set in the folder is missing or damaged.
    """
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed and epoch must be 0 or more, got {seed} and {epoch}")
    rows = TokenRows(folder)
    source, size = rows.source, len(rows)
    stop = rank_positions(size, batch, rank, ranks, step, drop_last, padding).stop

    def plan(epoch: int) -> Batches:
        is_packed = isinstance(source, PackedSet)
        order = np.random.default_rng([seed, epoch]).permutation(size) if is_packed else np.arange(size)
        if rank == 0:
            log_unread_or_repeated(f"epoch {epoch}" if is_packed else "the order", size, stop, ranks, drop_last)
            if stop < size:
                logger.info("epoch %d: skipped rows: %s", epoch, ", ".join(map(str, order[stop:])))
        rows_of_rank = order[np.arange(rank, stop, ranks) % size]
        return [rows_of_rank[first : first + batch] for first in range(0, len(rows_of_rank), batch)]

    plan_inputs = {"digest": source.digest, "seed": seed, "batch": batch, "ranks": ranks}
    plan_inputs |= {"drop_last": drop_last, "padding": padding}
    return RankLoader(rows, plan, plan_inputs, tuple, _to_tensors, workers, epoch, step)


def attention_mask(documents: torch.Tensor) -> torch.Tensor:
    """Build a causal attention mask within documents, bool (batch, seq_len, seq_len).

    `documents` has the number of each token's document, shape (batch, seq_len), -1 for padding. Padding attends to
    padding, because a softmax over nothing is NaN.
    """
    return (documents[:, :, None] == documents[:, None, :]).tril()


def labels(tokens: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Return the token that follows each token in its document; -100 if none follows.

    The losses of torch ignore -100. `tokens` and `documents` come from a batch of `loader`; the result is int64
    (batch, seq_len).

    Raises:
        ValueError: `tokens` and `documents` differ in shape or have no rows.
    """
    if tokens.shape != documents.shape or tokens.ndim != 2:
        shapes = f"{tuple(tokens.shape)} and {tuple(documents.shape)}"
        raise ValueError(f"tokens and documents must both have the shape (batch, seq_len), got {shapes}")
    follows = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    return torch.nn.functional.pad(torch.where(follows, tokens[:, 1:], _IGNORED_LABEL), (0, 1), value=_IGNORED_LABEL)


Mask = Literal["causal", "padding"]


class EncodedPair(TypedDict):
    """Token ids of a pair or of one side, int64 (length,); each side ends with </s>."""

    ids: torch.Tensor
    length: int


class PairDataset(Dataset[EncodedPair]):
    """Encoded pairs of a token cache, in the order of the sample's manifest.jsonl.

    Args:
        folder: Folder of the token cache.
        split: Split of the sample; None for all splits.
        side: Token ids of an item: `src` or `tgt` for one side, or `pair` for the sequence src </s> tgt </s>.
        experiment_id: Expected experiment id of the cache; None for any.
        manifest: Path of the expected manifest.jsonl; None for any.

    Raises:
        ValueError: `split` is not `train`, `val`, `test` or None, or `side` is not `src`, `tgt` or `pair`.
        InputError: The cache is missing, damaged, or not the expected one.
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
        self.split, self.side, self.pair_numbers = split, side, self.cache.pair_numbers(split)
        self.lengths = self.cache.lengths(side)[self.pair_numbers]

    def __len__(self) -> int:
        return len(self.pair_numbers)

    def __getitem__(self, position: int) -> EncodedPair:
        number = int(self.pair_numbers[operator.index(position)])
        ids = torch.from_numpy(self.cache.token_ids(number, self.side).astype(np.int64))
        return {"ids": ids, "length": len(ids)}

    def read(self, positions: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the token ids of each item at `positions`."""
        return [self.cache.token_ids(row, self.side) for row in self.pair_numbers[positions].tolist()]

    def uid(self, position: int) -> str:
        """Return the uid of the pair at a position of the dataset."""
        return bytes(self.cache.uids[self.pair_numbers[operator.index(position)]]).decode()


class Batch(TypedDict):
    """Padded batch of pairs.

    Attributes:
        tokens, targets: int64 (batch, seq_len), see `PaddedBatch`.
        attn_mask: bool, True to attend; shape (batch, seq_len, seq_len) if causal, else (batch, 1, seq_len).
        places: Positions of the pairs in the dataset, int64 (batch,).
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    attn_mask: torch.Tensor
    places: torch.Tensor


def _pad_pairs(
    pad_id: int, eos_id: int, seq_len: int | None, ignore_source: bool, mask: Mask, pairs: Sequence[NDArray[Any]]
) -> list[NDArray[Any] | torch.Tensor]:
    """Pad pairs to `seq_len`, or to the longest if None; return tokens, targets, mask."""
    batch = padding.pad_sequences(pairs, seq_len or max(map(len, pairs)) - 1, pad_id)
    targets = padding.mask_source(batch, eos_id) if ignore_source else batch.targets
    masked = padding.causal_mask(batch.attn_mask) if mask == "causal" else batch.attn_mask[:, None, :]
    return [torch.from_numpy(part) if part.nbytes > _PIPE_BYTES else part for part in (batch.tokens, targets, masked)]


class PairLoader(RankLoader[Batch]):
    """Iterable over one rank's batches of sentence pairs.

    Args:
        order: Settings that determine the batches of all ranks in each epoch.
        seq_len: Length to which all pairs are padded, in tokens; None pads each batch to its longest pair.
        ignore_source: Exclude the source side from the targets.
        mask: `causal`, or `padding` for a mask that hides only padding.
        workers: Number of processes that read ahead; batches do not depend on it.

    Raises:
        ValueError: `mask`, `rank` or `workers` is invalid, or `ignore_source` is set although items have only one side.
        InputError: A pair has more tokens than `seq_len`.
        UsageError: An argument has a wrong type.
    """

    @check_arguments
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
            what = f"the longest pair has {longest:,} tokens, more than seq_len {seq_len:,}"
            raise InputError(what, dataset.cache.folder, token_cache.long_pair_fix(longest, seq_len))
        if mask not in get_args(Mask):
            raise ValueError(f"mask must be {' or '.join(get_args(Mask))}, got {mask!r}")
        if not 0 <= rank < order.ranks:
            raise ValueError(f"rank must be in 0..{order.ranks - 1}, got {rank}")
        if ignore_source and dataset.side != "pair":
            raise ValueError(f"ignore_source requires a dataset of side pair, got {dataset.side}")

        def plan(epoch: int) -> Batches:
            steps = order.steps(dataset.lengths, epoch)  # equally many for all ranks, so that they share states
            dealt, pairs = sum(len(part) for step in steps for part in step), len(dataset)
            if order.drop_last and rank == 0 and dealt < pairs:
                logger.warning("epoch %d: drop_last skips %d of %d pairs", epoch, pairs - dealt, pairs)
            return [step[rank] for step in steps]

        source = {"experiment_id": meta.experiment_id, "split": dataset.split, "side": dataset.side}
        collate = functools.partial(_pad_pairs, meta.pad_id, meta.eos_id, seq_len, ignore_source, mask)
        super().__init__(dataset, plan, source | asdict(order), collate, _pair_batch, workers)


def _pair_batch(arrays: list[NDArray[Any] | torch.Tensor], places: torch.Tensor) -> Batch:
    tokens, targets, attn_mask = map(torch.as_tensor, arrays)
    return {"tokens": tokens, "targets": targets, "attn_mask": attn_mask, "places": places}
