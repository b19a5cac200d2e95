"""Padded batches of sentence pairs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IGNORED = -100  # what losses of torch pass over


class PaddedBatch(NamedTuple):
    """Sequences as a batch, each array of shape (batch, seq_len): all ids of a sequence but the last are tokens, all
    but the first are targets. A pair is one sequence, src </s> tgt </s>.

    Attributes:
        tokens: ids, then padding.
        targets: the id after each token; `IGNORED` where there is none.
        attn_mask: whether it is a token, and no padding.
    """

    tokens: NDArray[Any]
    targets: NDArray[Any]
    attn_mask: NDArray[Any]


def pad_sequences(sequences: Sequence[NDArray[Any]], seq_len: int, pad_id: int) -> PaddedBatch:
    """Sequences of at most seq_len + 1 ids."""
    tokens, targets = (np.full((len(sequences), seq_len), fill, np.int64) for fill in (pad_id, IGNORED))
    for row, ids in enumerate(sequences):
        tokens[row, : len(ids) - 1], targets[row, : len(ids) - 1] = ids[:-1], ids[1:]
    return PaddedBatch(tokens, targets, targets != IGNORED)


def mask_source(batch: PaddedBatch, eos_id: int) -> NDArray[Any]:
    """Targets, ignored up to the </s> that closes the source side: the first target is the first token after it."""
    return np.where(np.cumsum(batch.tokens == eos_id, axis=1) > 0, batch.targets, IGNORED)


def causal_mask(attn_mask: NDArray[Any]) -> NDArray[np.bool_]:
    """May a token attend to another? (batch, seq_len) → (batch, seq_len, seq_len): to itself and to tokens before it.
    Padding attends to the tokens before it, so that no softmax is over nothing.
    """
    masks: NDArray[np.bool_] = np.tri(attn_mask.shape[1], dtype=bool) & attn_mask[:, None, :]
    return masks


def cut_lengths(src: NDArray[Any], tgt: NDArray[Any], seq_len: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """What stays of the sides of pairs, so that each has at most seq_len + 1 ids, of which seq_len are tokens and the
    last is a target alone. Neither side is cut below half of that to make room for the other.
    """
    room = seq_len + 1
    kept = np.where(src + tgt > room, np.minimum(src, np.maximum(room // 2, room - tgt)), src)
    return kept, np.minimum(tgt, room - kept)
