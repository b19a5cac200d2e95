"""Attention within packed rows, as an attention function of `transformers`."""

import functools
import inspect
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

QueryKeyValue = tuple[Tensor, Tensor, Tensor]  # query, key, value
ROW_ATTENTION = "corpusmill_by_rows"


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
    **unused: Any,
) -> tuple[Tensor, None]:
    """Compute attention within each row; rows are concatenated without padding.

    `query`, `key` and `value` have the shape (1, heads, tokens, head size); `key` and `value` may have fewer heads. The
    first result has the shape (1, tokens, heads, head size), the second is always None. `cu_seq_lens_q` has the bounds
    of the rows, int32 (rows + 1,): 0 first, the number of tokens last. `max_length_q` is the length of the longest row.

    `scaling` is the factor of the logits, by default 1 / sqrt(head size). `sliding_window` is the number of tokens that
    a token attends to, including itself; None for all. `s_aux` has the sinks of gpt-oss, shape (heads,): logits that
    enlarge the softmax's divisor but have no value vector. Raise ValueError if `softcap` or `attention_mask` is
    not None.
    """
    if softcap is not None or attention_mask is not None:
        raise ValueError("capped logits and attention masks are not supported")
    window = sliding_window or 0
    by_rows = _attend_on_gpu if query.is_cuda else _attend_on_cpu
    return by_rows((query, key, value), cu_seq_lens_q, max_length_q, scaling, window, s_aux)[None], None


def _attend_on_gpu(
    qkv: QueryKeyValue, row_bounds: Tensor, max_length: int, scaling: float | None, window: int, sinks: Tensor | None
) -> Tensor:
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    query, key, value = qkv
    output: Any = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        row_bounds,
        row_bounds,
        max_length,
        max_length,
        return_aux=AuxRequest(lse=True) if sinks is not None else None,
        scale=scaling,
        window_size=(window - 1 if window else -1, 0),
        **_torch_2_11_options(),
    )
    if sinks is None:
        return torch.as_tensor(output)
    # A sink adds exp(sink) to the softmax's divisor exp(log_sum), which scales the output by their logistic function.
    out, log_sum = output
    log_sum = log_sum if log_sum.shape == out.shape[:2] else log_sum.T  # (heads, tokens) or (tokens, heads)
    return torch.as_tensor(out * torch.sigmoid(log_sum - sinks.float())[:, :, None]).to(query.dtype)


@functools.cache
def _torch_2_11_options() -> dict[str, Any]:
    """Return options with which newer versions of `varlen_attn` act as in torch 2.11."""
    from torch.nn.attention.varlen import varlen_attn

    # No splits: if a row's keys were split, the other rows of the batch would change bits of its attention.
    options = {"enable_gqa": True, "num_splits": 1}
    return options if options.keys() <= inspect.signature(varlen_attn).parameters.keys() else {}


def _attend_on_cpu(
    qkv: QueryKeyValue, row_bounds: Tensor, max_length: int, scaling: float | None, window: int, sinks: Tensor | None
) -> Tensor:
    query, key, _ = qkv
    out = torch.empty_like(query[0].transpose(0, 1))
    for start, stop in itertools.pairwise(row_bounds.tolist()):
        queries, keys, values = (tensor[:, :, start:stop] for tensor in qkv)
        if sinks is None and not 0 < window < stop - start:
            is_grouped = key.shape[1] != query.shape[1]
            attention = scaled_dot_product_attention(
                queries, keys, values, is_causal=True, scale=scaling, enable_gqa=is_grouped
            )
        else:
            attention = _attend_with_full_logits(queries, keys, values, scaling, window, sinks)
        out[start:stop] = attention[0].transpose(0, 1)
    return out


def _attend_with_full_logits(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int, sinks: Tensor | None
) -> Tensor:
    """Compute attention of one row from its full logit matrix."""
    groups, tokens = query.shape[1] // key.shape[1], query.shape[2]
    key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    logits = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)  # from a query back to a key
    logits.masked_fill_((distance < 0) | (distance >= (window or tokens)), float("-inf"))
    if sinks is not None:
        logits = torch.cat([logits, sinks.to(logits.dtype)[None, :, None, None].expand(1, -1, tokens, 1)], dim=-1)
    return logits.float().softmax(-1)[..., :tokens].to(value.dtype) @ value
