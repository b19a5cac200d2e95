"""Seeded order of sentence pairs in batches, without torch.

An epoch is a list of steps, and a step has one batch per rank. All ranks compute the same list, so that no pair is in
two batches of an epoch, and every rank has the same number of batches. If the last step has fewer pairs than ranks,
some of its batches are empty; `PairLoader` skips them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.npy_header import map_npy
from pipeline_assets.corpus.packing.hashed_order import hashed_order
from pipeline_assets.corpus.parallel_text.padding import PaddedBatch, causal_mask, mask_source
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Split
from pipeline_assets.corpus.parallel_text.token_cache import ENCODE_FIX, open_cache, unreadable_as_damage
from pipeline_assets.spine.argument_types import check_arguments, plain_integers
from pipeline_assets.spine.errors import InputError


@dataclass(frozen=True)
class Order:
    """Settings that, with the lengths of the pairs, determine the steps of each epoch.

    Attributes:
        batch: Number of pairs per batch of a rank; None for one batch with all pairs of a rank.
        drop_last: Whether to drop the pairs that do not fill a step; which pairs are dropped depends on the epoch.
        bucket_steps: Number of steps per bucket; 0 for no buckets. Each bucket is sorted by length, so that the pairs
            of a step have similar lengths. Then the full steps are shuffled; an incomplete step is last.

    Raises:
        ValueError: A number is not an integer, `batch` or `ranks` is below 1, `bucket_steps` is below 0, or `drop_last`
            is not a bool.
    """

    batch: int | None = 16
    seed: int = 0
    drop_last: bool = False
    bucket_steps: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        for name in ("batch", "seed", "bucket_steps", "ranks"):  # products of NumPy's small integers overflow
            object.__setattr__(self, name, plain_integers(getattr(self, name)))
        numbers = (self.seed, self.bucket_steps, self.ranks, 1 if self.batch is None else self.batch)
        if {*map(type, numbers)} != {int} or not isinstance(self.drop_last, bool):
            what = "seed, bucket_steps, ranks and batch must be integers, and drop_last True or False"
            raise ValueError(f"{what}, got {self}")
        if (self.batch is not None and self.batch < 1) or self.bucket_steps < 0 or self.ranks < 1:
            raise ValueError(f"batch and ranks must be >= 1, bucket_steps >= 0, got {self}")

    def steps(self, lengths: NDArray[np.int64], epoch: int) -> list[list[NDArray[np.int64]]]:
        """Return the steps of an epoch; a step has an array of pair numbers for each rank.

        `lengths` has the number of ids of each pair, shape (pairs,).
        """
        batch = self.batch or max(1, (len(lengths) + (0 if self.drop_last else self.ranks - 1)) // self.ranks)
        share = batch * self.ranks
        order = hashed_order(len(lengths), self.seed, "epoch", epoch).astype(np.int64)
        if self.drop_last:  # before sorting, after which the longest pairs would be dropped
            order = order[: len(order) // share * share]
        if self.bucket_steps:
            bucket_pairs = self.bucket_steps * share
            for bucket in np.split(order, range(bucket_pairs, len(order), bucket_pairs)):  # views of `order`
                bucket[:] = bucket[np.argsort(lengths[bucket], kind="stable")]
        full = len(order) // share
        steps = [np.array_split(step, self.ranks) for step in order[: full * share].reshape(full, share)]
        rest = order[full * share :]
        # Too few pairs for a step of their own: redistribute them and the last full step over two steps.
        if 0 < len(rest) < self.ranks and steps and batch > 1:
            parts = np.array_split(order[(full - 1) * share :], 2 * self.ranks)
            steps[-1:] = [parts[: self.ranks], parts[self.ranks :]]
            rest = rest[:0]
        if self.bucket_steps:
            steps = [steps[number] for number in hashed_order(len(steps), self.seed, "steps", epoch)]
        return steps + ([np.array_split(rest, self.ranks)] if len(rest) else [])


def padding_share(lengths: NDArray[np.int64], batches: Sequence[NDArray[np.int64]]) -> float:
    """Compute the share of padding if each batch is padded to its longest sequence.

    Args:
        lengths: Number of ids of each sequence, shape (sequences,). A sequence of n ids has n - 1 tokens, see
            `PaddedBatch`.
        batches: Sequence numbers of each batch; without batches, the share is 0.
    """
    tokens = sum(int((lengths[batch] - 1).sum()) for batch in batches)
    padded = sum(len(batch) * int(lengths[batch].max() - 1) for batch in batches)
    return 1 - tokens / padded if padded else 0.0


@check_arguments
def numpy_batches(
    folder: Path | str, split: Split, batch: int, seed: int, epoch: int = 0, ignore_source: bool = False
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield a split's batches from a token cache with a fixed `seq_len`.

    Each pair occurs once, in an order that depends on seed and epoch. The last batch may have fewer than `batch` pairs.
    `ignore_source` replaces targets on the source side with `IGNORED_TARGET`.

    Yields:
        `tokens` and `targets`, int32 (batch, seq_len); `attn_mask` from `causal_mask`, bool (batch, seq_len, seq_len).

    Raises:
        InputError: The cache is missing or damaged, or has no fixed `seq_len`.
        ValueError: `split` is not a split, or `batch` is below 1.
        UsageError: An argument has a wrong type; raised by the call, the other errors by the first batch.
    """
    cache = open_cache(folder)
    if cache.meta.seq_len is None:
        raise InputError("pairs have no fixed length", folder, f"{ENCODE_FIX} with --seq-len")
    if split not in SPLITS or batch < 1:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, and batch >= 1, got {split!r} and {batch}")
    with unreadable_as_damage(folder):
        arrays = PaddedBatch(*(map_npy(Path(folder) / split / f"{name}.npy") for name in PaddedBatch._fields))
    for [numbers] in Order(batch, seed).steps(cache.lengths("pair")[cache.pair_numbers(split)], epoch):
        rows = PaddedBatch(*(array[numbers] for array in arrays))
        targets = mask_source(rows, cache.meta.eos_id) if ignore_source else rows.targets
        yield {"tokens": rows.tokens, "targets": targets, "attn_mask": causal_mask(rows.attn_mask)}
