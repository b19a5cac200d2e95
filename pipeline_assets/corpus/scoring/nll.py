"""Negative log-likelihood of completions: hidden states once, the LM head for the tokens that count alone.

Logits of a few positions by a few words of the vocabulary are held at a time, in float32 from float32 sums whatever the
weights are: a float32 copy of bfloat16 logits has their 8 bits. The log-sum-exp goes along block by block (Milakov and
Gimelshein 2018, "Online normalizer calculation for softmax"), so that blocks stay in a CPU's cache, or within
`BUFFER_BYTES` of a GPU. A row's sum is float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_assets.corpus.scoring.token_rows import TokenRow

PADDING = 0.05  # of a padded batch at most
_HAS_FLOAT32_SUMS = hasattr(torch.ops.aten.mm, "dtype")  # out_dtype, from torch 2.10 on
BUFFER_BYTES = 1 << 30  # of logits
_ON_CPU = 256, 2048  # positions and words of a block: 2 MiB of logits
_GPU_POSITIONS = 4096


def plan_batches(
    lengths: NDArray[np.int64], batch_tokens: int, batch_rows: int | None = None, *, is_packed: bool
) -> list[list[int]]:
    """Rows in batches, by their numbers, as many as fit; a longer one is alone.

    Batches are planned from lengths alone, so that equal rows make equal ones. Packed rows lie one behind the other, in
    their order. Others go by length, the longest first, with less than `PADDING` of padding.

    Args:
        lengths: tokens of each row, shape (rows,).
        batch_rows: of a batch at most; None for any number.
    """
    batches, of, filled = list[list[int]](), lengths.tolist(), 0
    for row in range(len(of)) if is_packed else np.argsort(-lengths, kind="stable").tolist():
        current = batches[-1] if batches else []
        tokens = filled + of[row] if is_packed or not current else of[current[0]] * (len(current) + 1)
        is_wasteful = not is_packed and tokens - (filled + of[row]) >= PADDING * tokens
        if not current or tokens > batch_tokens or is_wasteful or len(current) == batch_rows:
            batches.append([])
            filled = 0
        batches[-1].append(row)
        filled += of[row]
    return batches


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
        single_row_batches: whether each batch is one row, because positions depend on the longest row (RoPE type
            `longrope`).
        max_tokens: of a row; None where the model's config doesn't say.
        facts: what is recorded of it: architecture, attention, experts, precision.
    """

    network: Any
    head: LmHead
    is_packed: bool
    single_row_batches: bool
    max_tokens: int | None
    facts: Mapping[str, Any]

    def batch_tokens(self, lengths: Sequence[int]) -> int:
        """Return the tokens of a batch of such rows, padding included."""
        return sum(lengths) if self.is_packed else max(lengths) * len(lengths)

    def hidden_states(self, rows: Sequence[NDArray[np.int32]]) -> torch.Tensor:
        """The last hidden states of all tokens, row after row, without those of padding, shape (tokens, width)."""
        lengths = [len(row) for row in rows]
        if self.is_packed:
            return self._packed(rows, lengths)
        ids = torch.zeros((len(rows), max(lengths)), dtype=torch.int64)
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


@dataclass(frozen=True)
class RowNll:
    """The NLL of a row.

    Attributes:
        nll_sum: nats; NaN where a logit is no number, None where the row doesn't fit into memory alone.
        batch: number, rows and tokens of the batch that it was scored in.
    """

    nll_sum: float | None
    batch: int
    batch_rows: int
    batch_tokens: int


@dataclass(frozen=True)
class ScoringResult:
    """The NLL of each row, in the order of the rows, and how many batches didn't fit into memory and were halved."""

    rows: list[RowNll]
    halved: int


@torch.inference_mode()
def score_rows(
    model: LanguageModel, rows: Sequence[TokenRow], batch_tokens: int, batch_rows: int | None = None
) -> ScoringResult:
    """The NLL of each row.

    A batch that doesn't fit into the device's memory is halved, as often as needed.

    Args:
        batch_tokens: of a batch at most, padding included; a longer row is alone.
        batch_rows: of a batch at most; None for any number.
    """
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    batch_rows = 1 if model.single_row_batches else batch_rows
    waiting = plan_batches(lengths, batch_tokens, batch_rows, is_packed=model.is_packed)[::-1]
    found: list[RowNll | None] = [None] * len(rows)
    number = halved = 0
    while waiting:
        batch = waiting.pop()
        try:
            sums: Sequence[float | None] = _sums(model, [rows[row] for row in batch])
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if len(batch) > 1:
                middle = len(batch) // 2
                waiting += [batch[middle:], batch[:middle]]
                halved += 1
                continue
            sums = [None]
        tokens = model.batch_tokens(lengths[batch].tolist())
        for row, nll_sum in zip(batch, sums, strict=True):
            found[row] = RowNll(nll_sum, number, len(batch), tokens)
        number += 1
    return ScoringResult([one for one in found if one is not None], halved)


def _sums(model: LanguageModel, batch: Sequence[TokenRow]) -> list[float]:
    hidden = model.hidden_states([row.ids for row in batch])
    counts = np.concatenate([row.counts for row in batch])
    targets = np.concatenate([row.ids for row in batch])[counts]
    # The state before a token predicts it.
    before = torch.from_numpy(np.flatnonzero(counts) - 1).to(hidden.device)
    nll = token_nll(hidden[before], torch.from_numpy(targets.astype(np.int64)), model.head).double().cpu().numpy()
    ends = np.cumsum([int(row.counts.sum()) for row in batch])
    return [float(part.sum()) for part in np.split(nll, ends[:-1])]


def token_nll(hidden: torch.Tensor, targets: torch.Tensor, head: LmHead) -> torch.Tensor:
    """-log p of each target.

    Args:
        hidden: the states that predict them, shape (positions, width); what a model keeps in float32 becomes the
            head's dtype, as in the model.
        targets: shape (positions,), int64.
    Returns:
        shape (positions,), float32, on the head's device.
    """
    hidden, targets = hidden.to(head.weight.device, head.weight.dtype), targets.to(head.weight.device)
    positions, words = _ON_CPU
    if head.weight.is_cuda:
        positions = _GPU_POSITIONS
        words = BUFFER_BYTES // 4 // positions
    parts = [_block_nll(hidden[at : at + positions], targets[at : at + positions], head, words)
             for at in range(0, len(targets), positions)]  # fmt: skip
    return torch.cat([hidden.new_empty(0, dtype=torch.float32), *parts])


def _block_nll(hidden: torch.Tensor, targets: torch.Tensor, head: LmHead, words: int) -> torch.Tensor:
    largest = hidden.new_full((len(targets),), torch.finfo(torch.float32).min, dtype=torch.float32)
    total = torch.zeros_like(largest)
    of_target = torch.zeros_like(largest)
    for first in range(0, len(head.weight), words):
        logits = head.logits(hidden, first, first + words)
        is_here = (targets >= first) & (targets < first + words)
        place = (targets - first).clamp(0, logits.shape[1] - 1)[:, None]
        of_target = torch.where(is_here, logits.gather(1, place)[:, 0], of_target)
        former, largest = largest, torch.maximum(largest, logits.amax(1))
        total = total * torch.exp(former - largest) + logits.sub_(largest[:, None]).exp_().sum(1)
    return largest + total.log() - of_target
