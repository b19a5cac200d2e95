"""Attention within packed rows."""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Heads = tuple[Tensor, Tensor, Tensor]  # query, key, value
BY_ROWS = "corpusmill_by_rows"


def attend_by_rows(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention within each of many rows that lie one behind the other, without padding between them.

    `transformers` gives it the bounds that the caller passes (`cu_seq_lens_q`): nothing is read back from a device to
    find them. On a GPU it is PyTorch's variable-length kernel, on a CPU one call a row. Sliding windows and the sinks
    of gpt-oss are kept: a sink is a logit of no value, so it shrinks what comes out by the logistic function of
    log-sum-exp - sink.

    Args:
        query: shape (1, heads, tokens, head size); key and value may have fewer heads.
        cu_seq_lens_q: bounds of rows, shape (rows + 1,) int32: 0 first, the number of tokens last.
        sliding_window: tokens that one sees, itself included.
        s_aux: sinks, shape (heads,).
    Returns:
        shape (1, tokens, heads, head size).
    Raises:
        ValueError: the model asks for what there is no form for here: capped logits, or a mask of its own.
    """
    if softcap is not None or attention_mask is not None:
        raise ValueError("capped logits, or a mask of the model's own")
    window = sliding_window or 0
    by_rows = _on_gpu if query.is_cuda else _on_cpu
    return by_rows((query, key, value), cu_seq_lens_q, max_length_q, scaling, window, s_aux)[None], None


def _on_gpu(
    heads: Heads, bounds: Tensor, longest: int, scaling: float | None, window: int, sinks: Tensor | None
) -> Tensor:
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    query, key, value = heads
    found: Any = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        bounds,
        bounds,
        longest,
        longest,
        return_aux=AuxRequest(lse=True) if sinks is not None else None,
        scale=scaling,
        window_size=(window - 1 if window else -1, 0),
        enable_gqa=key.shape[1] != query.shape[1],
        num_splits=1,  # so that the rows beside it change no bit of a row's attention
    )
    if sinks is None:
        return torch.as_tensor(found)
    out, log_sum = found  # by heads and tokens, one way round or the other
    log_sum = log_sum if log_sum.shape == out.shape[:2] else log_sum.T
    return torch.as_tensor(out * torch.sigmoid(log_sum - sinks.float())[:, :, None]).to(query.dtype)


def _on_cpu(
    heads: Heads, bounds: Tensor, longest: int, scaling: float | None, window: int, sinks: Tensor | None
) -> Tensor:
    query, key, value = heads
    out = torch.empty_like(query[0].transpose(0, 1))
    for start, stop in itertools.pairwise(bounds.tolist()):
        asked, keys, values = query[:, :, start:stop], key[:, :, start:stop], value[:, :, start:stop]
        if sinks is None and not 0 < window < stop - start:
            is_grouped = key.shape[1] != query.shape[1]
            found = scaled_dot_product_attention(
                asked, keys, values, is_causal=True, scale=scaling, enable_gqa=is_grouped
            )
        else:
            found = _in_full(asked, keys, values, scaling, window, sinks)
        out[start:stop] = found[0].transpose(0, 1)
    return out


def _in_full(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int, sinks: Tensor | None
) -> Tensor:
    """Attention of one row, its logits in full."""
    groups, tokens = query.shape[1] // key.shape[1], query.shape[2]
    key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
    logits = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    behind = torch.arange(tokens)[:, None] - torch.arange(tokens)
    logits.masked_fill_((behind < 0) | (behind >= (window or tokens)), float("-inf"))
    if sinks is not None:
        logits = torch.cat([logits, sinks.to(logits.dtype)[None, :, None, None].expand(1, -1, tokens, 1)], dim=-1)
    return logits.float().softmax(-1)[..., :tokens].to(value.dtype) @ value
