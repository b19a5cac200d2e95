"""A causal language model, ready to score rows: hidden states of a batch, and logits of hidden states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_HAS_FLOAT32_SUMS = hasattr(torch.ops.aten.mm, "dtype")  # out_dtype, from torch 2.10 on


@dataclass(frozen=True)
class LmHead:
    """Hidden states to logits.

    Attributes:
        weight: shape (words, width).
        bias: shape (words,).
        scale: that logits are multiplied by.
        cap: c in c · tanh(logit / c), as Gemma has it.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    scale: float = 1.0
    cap: float | None = None

    def logits(self, hidden: torch.Tensor, first: int, stop: int) -> torch.Tensor:
        """Of words from `first` up to `stop`, float32 from float32 sums, shape (positions, words)."""
        block = self.weight[first:stop].T
        if block.dtype == torch.float32 or not (block.is_cuda and _HAS_FLOAT32_SUMS):
            found = hidden.float() @ block.float()
        else:
            found = torch.mm(hidden, block, out_dtype=torch.float32)
        if self.bias is not None:
            found += self.bias[first:stop].float()
        if self.scale != 1.0:
            found *= self.scale
        return found if self.cap is None else torch.tanh(found / self.cap) * self.cap


@dataclass(frozen=True)
class LanguageModel:
    """A model, ready to score rows.

    Attributes:
        is_packed: whether rows lie one behind the other, without padding; else a batch is padded at its end.
        is_alone: whether a batch is one row, since positions would go by the longest (RoPE of the type `longrope`).
        max_tokens: of a row; None where the model's config doesn't say.
        facts: what is recorded of it: architecture, attention, experts, precision.
    """

    network: Any
    head: LmHead
    is_packed: bool
    is_alone: bool
    max_tokens: int | None
    facts: Mapping[str, Any]

    def hidden_states(self, rows: Sequence[NDArray[np.int32]], batch_tokens: int) -> torch.Tensor:
        """The last hidden states of all tokens, row after row, without those of padding, shape (tokens, width).

        Args:
            batch_tokens: of the batch, padding included.
        """
        lengths = [len(row) for row in rows]
        if self.is_packed:
            return self._packed(rows, lengths)
        ids = torch.zeros((len(rows), batch_tokens // len(rows)), dtype=torch.int64)
        is_token = torch.zeros(ids.shape, dtype=torch.bool)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.from_numpy(row.astype(np.int64))
            is_token[number, : len(row)] = True
        # Padding comes behind all tokens: a causal model's tokens don't see it, whatever the mask.
        states = self.network.base_model(input_ids=ids.to(self.network.device), use_cache=False).last_hidden_state
        return torch.as_tensor(states)[is_token.to(states.device)]

    def _packed(self, rows: Sequence[NDArray[np.int32]], lengths: Sequence[int]) -> torch.Tensor:
        device = self.network.device
        bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=device)
        states = self.network.base_model(
            input_ids=torch.from_numpy(np.concatenate(rows).astype(np.int64))[None].to(device),
            position_ids=torch.cat([torch.arange(length) for length in lengths])[None].to(device),
            use_cache=False,
            cu_seq_lens_q=bounds,
            cu_seq_lens_k=bounds,
            max_length_q=max(lengths),
            max_length_k=max(lengths),
        ).last_hidden_state
        return torch.as_tensor(states)[0]
