"""Batches of pairs as arrays of one shape, without torch.

A pair is one sequence, src </s> tgt </s>: all its ids but the last are tokens, all but the first are targets.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.mixture import hashed_order
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Split
from pipeline_assets.corpus.parallel_text.token_cache import ENCODE_FIX, open_cache
from pipeline_assets.corpus.spine.errors import InputError

IGNORED = -100  # what losses of torch pass over


class Padded(NamedTuple):
    """Sequences as a batch, each array of shape (batch, seq_len).

    Attributes:
        tokens: ids, then padding.
        targets: the id after each token; `IGNORED` where there is none.
        attn_mask: whether it is a token, and no padding.
    """

    tokens: NDArray[Any]
    targets: NDArray[Any]
    attn_mask: NDArray[Any]


def padded(sequences: Sequence[NDArray[Any]], seq_len: int, pad_id: int) -> Padded:
    """Sequences of at most seq_len + 1 ids."""
    tokens, targets = (np.full((len(sequences), seq_len), fill, np.int64) for fill in (pad_id, IGNORED))
    for row, ids in enumerate(sequences):
        tokens[row, : len(ids) - 1], targets[row, : len(ids) - 1] = ids[:-1], ids[1:]
    return Padded(tokens, targets, targets != IGNORED)


def without_source(batch: Padded, eos_id: int) -> NDArray[Any]:
    """Targets, ignored up to the </s> that closes the source side: the first target is the first token after it."""
    return np.where(np.cumsum(batch.tokens == eos_id, axis=1) > 0, batch.targets, IGNORED)


def causal(attn_mask: NDArray[Any]) -> NDArray[np.bool_]:
    """May a token attend to another? (batch, seq_len) → (batch, seq_len, seq_len): to itself and to tokens before it.
    Padding attends to the tokens before it, so that no softmax is over nothing.
    """
    before: NDArray[np.bool_] = np.tri(attn_mask.shape[1], dtype=bool)
    masks: NDArray[np.bool_] = before & attn_mask[:, None, :]
    return masks


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
    arrays = Padded(*(np.load(Path(folder) / split / f"{name}.npy", mmap_mode="r") for name in Padded._fields))
    order = hashed_order(len(arrays.tokens), seed, "epoch", epoch)
    for first in range(0, len(order), batch):
        rows = Padded(*(array[order[first : first + batch]] for array in arrays))
        targets = without_source(rows, cache.meta.eos_id) if ignore_source else rows.targets
        yield {"tokens": rows.tokens, "targets": targets, "attn_mask": causal(rows.attn_mask)}
