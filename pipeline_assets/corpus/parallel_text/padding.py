"""Padded batches of sentence pairs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IGNORED_TARGET = -100  # target that torch's losses ignore


class PaddedBatch(NamedTuple):
    """Batch of padded sequences; each array has the shape (batch, seq_len).

    A pair is one sequence of ids, src </s> tgt </s>: all ids but the last are tokens, all but the first are targets.
    Ids are int64, or int32 in the files of a token cache.
    """

    tokens: NDArray[Any]  # ids, then padding
    targets: NDArray[Any]  # id after each token; `IGNORED_TARGET` for padding
    attn_mask: NDArray[Any]  # True for tokens, False for padding (bool)


def pad_sequences(sequences: Sequence[NDArray[Any]], seq_len: int, pad_id: int) -> PaddedBatch:
    """Build a batch, with int64 ids, from sequences of at most seq_len + 1 ids."""
    tokens, targets = (np.full((len(sequences), seq_len), fill, np.int64) for fill in (pad_id, IGNORED_TARGET))
    for row, ids in enumerate(sequences):
        tokens[row, : len(ids) - 1], targets[row, : len(ids) - 1] = ids[:-1], ids[1:]
    return PaddedBatch(tokens, targets, targets != IGNORED_TARGET)


def mask_source(batch: PaddedBatch, eos_id: int) -> NDArray[np.int64]:
    """Return targets (batch, seq_len) that ignore the source side, including its </s>."""
    return np.where(np.cumsum(batch.tokens == eos_id, axis=1) > 0, batch.targets, IGNORED_TARGET)


def causal_mask(attn_mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Expand a mask (batch, seq_len) to a causal mask (batch, seq_len, seq_len).

    Padding attends to the tokens before it, because a softmax over nothing is NaN.
    """
    masks: NDArray[np.bool_] = np.tri(attn_mask.shape[1], dtype=bool) & attn_mask[:, None, :]
    return masks


def cut_lengths(src: NDArray[Any], tgt: NDArray[Any], seq_len: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the lengths of both sides after pairs are cut to seq_len + 1 ids.

    `src` and `tgt` are the sides' lengths before the cut; all arrays have shape (pairs,). The last id of a pair is only
    a target. A side keeps at least half of seq_len + 1 ids (rounded down), or all its ids if it has fewer.
    """
    limit = seq_len + 1
    # The source side keeps all ids that the target side leaves free, and at least half; the target side gets the rest.
    kept = np.where(src + tgt > limit, np.minimum(src, np.maximum(limit // 2, limit - tgt)), src)
    return kept, np.minimum(tgt, limit - kept)
