"""Which pairs come in which batch: seeded, dealt to ranks, of like lengths where that is asked for; without torch.

An epoch is a list of steps, the same for all ranks; a step has a batch for each. So over all ranks a split comes once
an epoch, to the pair, and every rank has as many batches, but where fewer pairs than ranks are there for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.hashed_order import hashed_order
from pipeline_assets.corpus.parallel_text.padding import PaddedBatch, causal_mask, mask_source
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Split
from pipeline_assets.corpus.parallel_text.token_cache import ENCODE_FIX, open_cache
from pipeline_assets.spine.errors import InputError


@dataclass(frozen=True)
class Order:
    """What the steps of an epoch depend on, beside lengths.

    Attributes:
        batch: pairs of a rank's batch; None for all of its share at once.
        drop_last: only full batches; what is left over comes in another epoch, in another order.
        bucket_steps: pairs of so many steps are sorted by length before they are cut into steps, whose order is then
            shuffled; 0 sorts none.
    """

    batch: int | None = 16
    seed: int = 0
    drop_last: bool = False
    bucket_steps: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if (self.batch is not None and self.batch < 1) or self.bucket_steps < 0 or self.ranks < 1:
            raise ValueError(f"{self}: give a batch and ranks of 1 or more, bucket_steps of 0 or more")

    def steps(self, lengths: NDArray[np.int64], epoch: int) -> list[list[NDArray[np.int64]]]:
        """Of each step the places of each rank's batch; one may be empty in the last."""
        batch = self.batch or max(1, (len(lengths) + (0 if self.drop_last else self.ranks - 1)) // self.ranks)
        share = batch * self.ranks
        order = hashed_order(len(lengths), self.seed, "epoch", epoch).astype(np.int64)
        pool = self.bucket_steps * share or max(1, len(order))
        pools = [order[first : first + pool] for first in range(0, len(order), pool)]
        if self.bucket_steps:
            pools = [places[np.argsort(lengths[places], kind="stable")] for places in pools]
        order = np.concatenate([order[:0], *pools])
        full = len(order) // share
        steps = [np.array_split(step, self.ranks) for step in order[: full * share].reshape(full, share)]
        rest = order[full * share :]
        if 0 < len(rest) < self.ranks and steps and batch > 1 and not self.drop_last:  # too few for a step: make two
            parts = np.array_split(np.concatenate([*steps.pop(), rest]), 2 * self.ranks)
            steps += [parts[: self.ranks], parts[self.ranks :]]
            rest = rest[:0]
        if self.bucket_steps:
            steps = [steps[place] for place in hashed_order(len(steps), self.seed, "steps", epoch)]
        return steps + ([np.array_split(rest, self.ranks)] if len(rest) and not self.drop_last else [])


def pad_waste(lengths: NDArray[np.int64], batches: Sequence[NDArray[np.int64]]) -> float:
    """Share of padding among the tokens of dynamically padded batches.

    Args:
        lengths: ids of each sequence, one more than its tokens.
        batches: places in it.
    """
    tokens = sum(int((lengths[batch] - 1).sum()) for batch in batches)
    return 1 - tokens / sum(len(batch) * int(lengths[batch].max() - 1) for batch in batches)


def numpy_batches(
    folder: Path | str, split: Split, batch: int, seed: int, epoch: int = 0, ignore_source: bool = False
) -> Iterator[dict[str, NDArray[Any]]]:
    """Batches of a fixed-length cache for trainers without torch, each pair once, in an order of seed and epoch: tokens
    and targets (batch, seq_len), attn_mask (batch, seq_len, seq_len) as `causal` has it. The last may be smaller.

    Raises:
        InputError: there is no cache, or it has no fixed length.
        ValueError: no such split, or no pair a batch.
    """
    cache = open_cache(folder)
    if cache.meta.seq_len is None:
        raise InputError("its pairs have no fixed length", folder, f"{ENCODE_FIX} with --seq-len")
    if split not in SPLITS or batch < 1:
        raise ValueError(f"split is {split!r}, batch {batch}: give one of {', '.join(SPLITS)}, and 1 or more")
    arrays = PaddedBatch(
        *(np.load(Path(folder) / split / f"{name}.npy", mmap_mode="r") for name in PaddedBatch._fields)
    )
    order = hashed_order(len(arrays.tokens), seed, "epoch", epoch)
    for first in range(0, len(order), batch):
        rows = PaddedBatch(*(array[order[first : first + batch]] for array in arrays))
        targets = mask_source(rows, cache.meta.eos_id) if ignore_source else rows.targets
        yield {"tokens": rows.tokens, "targets": targets, "attn_mask": causal_mask(rows.attn_mask)}
