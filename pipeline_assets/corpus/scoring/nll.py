"""Negative log-likelihood (NLL) of a row's tokens that count in the loss.

`TokenRow.in_loss` marks these tokens. Logits are computed only for these tokens, in blocks: each block has some
positions and a part of the vocabulary. The log-sum-exp is accumulated block by block (Milakov and Gimelshein 2018,
"Online normalizer calculation for softmax"). Logits are float32 for any dtype of weights, because bfloat16 has only 8
significant bits. A row's sum is float64.
"""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_assets.corpus.scoring.token_rows import TokenRow
from pipeline_assets.spine.errors import one_line

MAX_PADDING_SHARE = 0.05  # maximum share of padding in a batch
_HAS_FLOAT32_SUMS = hasattr(torch.ops.aten.mm, "dtype")  # mm has out_dtype since torch 2.10
BUFFER_BYTES = 1 << 30  # logits in the memory of a GPU at a time
_CPU_BLOCK_SHAPE = 256, 2048  # positions and vocabulary entries of a block: 2 MiB of logits
_GPU_BLOCK_POSITIONS = 4096


def plan_batches(
    lengths: NDArray[np.int64], max_batch_tokens: int, max_batch_rows: int | None = None, *, is_packed: bool
) -> list[list[int]]:
    """Group rows into batches of at most `max_batch_tokens` tokens, padding included.

    `lengths` has the number of tokens of each row, shape (rows,). Each batch is a list of row numbers: indexes in
    `lengths`. A row with more than `max_batch_tokens` tokens is a batch of its own. `max_batch_rows` limits the rows
    per batch, unless None. If `is_packed`, rows keep their order and need no padding. Otherwise rows are sorted by
    length, longest first, and the share of padding in each batch is below `MAX_PADDING_SHARE`.
    """
    batches, sizes, filled = list[list[int]](), lengths.tolist(), 0
    for row in range(len(sizes)) if is_packed else np.argsort(-lengths, kind="stable").tolist():
        current = batches[-1] if batches else []
        # Padded rows all get the length of the first row of the batch, which is the longest.
        tokens = filled + sizes[row] if is_packed or not current else sizes[current[0]] * (len(current) + 1)
        is_wasteful = not is_packed and tokens - (filled + sizes[row]) >= MAX_PADDING_SHARE * tokens
        if not current or tokens > max_batch_tokens or is_wasteful or len(current) == max_batch_rows:
            batches.append([])
            filled = 0
        batches[-1].append(row)
        filled += sizes[row]
    return batches


@dataclass(frozen=True)
class LmHead:
    """LM head, which maps hidden states to logits."""

    weight: torch.Tensor  # shape (vocabulary, width)
    bias: torch.Tensor | None = None  # shape (vocabulary,)
    scale: float = 1.0  # factor of the logits
    logit_cap: float | None = None  # c in Gemma's c · tanh(logit / c)

    def logits(self, hidden: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Compute float32 logits of the ids in [start, stop), shape (positions, ids).

        A `stop` beyond the vocabulary means the end of the vocabulary.
        """
        block = self.weight[start:stop].T
        if block.dtype == torch.float32 or not (block.is_cuda and _HAS_FLOAT32_SUMS):
            logits = hidden.float() @ block.float()
        else:
            logits = torch.mm(hidden, block, out_dtype=torch.float32)
        if self.bias is not None:
            logits += self.bias[start:stop].float()
        if self.scale != 1.0:
            logits *= self.scale
        return logits if self.logit_cap is None else torch.tanh(logits / self.logit_cap) * self.logit_cap


@dataclass(frozen=True)
class LanguageModel:
    """Model that is ready to score rows."""

    network: Any  # model of `transformers`
    head: LmHead
    is_packed: bool  # rows are concatenated without padding; otherwise rows are padded at their end
    needs_single_row_batches: bool  # since positions depend on the longest row of a batch (RoPE `longrope`)
    max_tokens: int | None  # in a row; None if the model's config has no limit
    metadata: Mapping[str, Any]  # architecture, attention, experts and quantization, for the manifest

    def count_batch_tokens(self, lengths: Sequence[int]) -> int:
        """Count the tokens of a batch, padding included, from the lengths of its rows."""
        return sum(lengths) if self.is_packed else max(lengths) * len(lengths)

    def hidden_states(self, rows: Sequence[NDArray[np.int32]]) -> torch.Tensor:
        """Compute the last hidden states of all rows, unpadded, shape (tokens, width)."""
        lengths = [len(row) for row in rows]
        if self.is_packed:
            return self._packed_hidden_states(rows, lengths)
        ids = torch.zeros((len(rows), max(lengths)), dtype=torch.int64)
        is_token = torch.zeros(ids.shape, dtype=torch.bool)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.from_numpy(row.astype(np.int64))
            is_token[number, : len(row)] = True
        # Padding follows all tokens, and a token of a causal model attends only to earlier ones: no mask is needed.
        states = self.network.base_model(input_ids=ids.to(self.network.device), use_cache=False).last_hidden_state
        return torch.as_tensor(states)[is_token.to(states.device)]

    def _packed_hidden_states(self, rows: Sequence[NDArray[np.int32]], lengths: Sequence[int]) -> torch.Tensor:
        device = self.network.device
        # Row i has the tokens from bounds[i] to bounds[i + 1], and positions that start at 0.
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
    """NLL of a row, with the batch that the row was scored in."""

    nll_sum: float | None  # over the tokens in the loss, in nats; NaN if a logit is NaN, None if out of memory
    batch_number: int  # in the order of scoring, from 0
    batch_rows: int
    batch_tokens: int  # padding included
    # NLL of each token in the loss, in order, computed in float32; empty if the row exceeds the memory.
    token_nll: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), compare=False, repr=False)


@dataclass(frozen=True)
class ScoringResult:
    """NLL of each row, in row order, and number of batches halved to fit memory."""

    rows: list[RowNll]
    halved_batches: int


@torch.inference_mode()
def score_rows(
    model: LanguageModel, rows: Sequence[TokenRow], max_batch_tokens: int, max_batch_rows: int | None = None
) -> ScoringResult:
    """Compute the NLL of each row; every row must have a token in the loss.

    `plan_batches` explains `max_batch_tokens` and `max_batch_rows`. A batch that exceeds the device's memory is halved
    until it fits; a single row that exceeds the memory has no NLL.
    """
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    max_batch_rows = 1 if model.needs_single_row_batches else max_batch_rows
    waiting = plan_batches(lengths, max_batch_tokens, max_batch_rows, is_packed=model.is_packed)[::-1]
    results: list[RowNll | None] = [None] * len(rows)
    number = halved = 0
    while waiting:
        batch = waiting.pop()
        try:
            parts: Sequence[NDArray[np.float64] | None] = _batch_nll(model, [rows[row] for row in batch])
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if len(batch) > 1:
                middle = len(batch) // 2
                waiting += [batch[middle:], batch[:middle]]
                halved += 1
                continue
            parts = [None]
        tokens = model.count_batch_tokens(lengths[batch].tolist())
        for row, part in zip(batch, parts, strict=True):
            token_values = () if part is None else (part,)
            nll_sum = None if part is None else float(part.sum())
            results[row] = RowNll(nll_sum, number, len(batch), tokens, *token_values)
        number += 1
    return ScoringResult([result for result in results if result is not None], halved)


def _batch_nll(model: LanguageModel, batch: Sequence[TokenRow]) -> list[NDArray[np.float64]]:
    hidden = model.hidden_states([row.ids for row in batch])
    in_loss = np.concatenate([row.in_loss for row in batch])
    targets = np.concatenate([row.ids for row in batch])[in_loss]
    # The hidden state of a position predicts the next token.
    predicting = torch.from_numpy(np.flatnonzero(in_loss) - 1).to(hidden.device)
    nll = token_nll(hidden[predicting], torch.from_numpy(targets.astype(np.int64)), model.head).double().cpu().numpy()
    ends = np.cumsum([int(row.in_loss.sum()) for row in batch])
    return np.split(nll, ends[:-1])


def token_nll(hidden: torch.Tensor, targets: torch.Tensor, head: LmHead) -> torch.Tensor:
    """Compute -log p of each target token, in float32 on the head's device.

    `hidden` has the states that predict the targets, shape (positions, width). Their dtype may differ from the head's.
    `targets` (int64 ids) and the result have the shape (positions,).
    """
    hidden, targets = hidden.to(head.weight.device, head.weight.dtype), targets.to(head.weight.device)
    positions, block_width = _CPU_BLOCK_SHAPE
    if head.weight.is_cuda:
        positions = _GPU_BLOCK_POSITIONS
        block_width = BUFFER_BYTES // 4 // positions  # a float32 has 4 bytes
    blocks = zip(torch.split(hidden, positions), torch.split(targets, positions), strict=True)
    return torch.cat([_block_nll(*block, head, block_width) for block in blocks])


def _block_nll(hidden: torch.Tensor, targets: torch.Tensor, head: LmHead, block_width: int) -> torch.Tensor:
    """Compute log Σ exp(logit) - target logit, in blocks of `block_width` ids."""
    accumulators = hidden.new_zeros((3, len(targets)), dtype=torch.float32)  # as in `_fold_logits`
    accumulators[0] = torch.finfo(torch.float32).min
    fold = _load_fold_kernel() if hidden.is_cuda else _fold_logits
    for first in range(0, len(head.weight), block_width):
        fold(head.logits(hidden, first, first + block_width), targets - first, accumulators)
    return accumulators[0] + accumulators[1].log() - accumulators[2]


def _fold_logits(logits: torch.Tensor, target_columns: torch.Tensor, accumulators: torch.Tensor) -> None:
    """Add a block of logits to `accumulators`; the block is overwritten.

    `logits` has the shape (positions, ids). `accumulators` has the shape (3, positions): the largest logit so far, Σ
    exp(logit - largest) and the target's logit. `target_columns` has each target's column in the block. A target in
    another block has a column below 0 or too large.
    """
    # Copy the logit of each target in this block; the clamp keeps the other indices valid.
    valid = target_columns.clamp(0, logits.shape[1] - 1)
    accumulators[2] = torch.where(valid == target_columns, logits.gather(1, valid[:, None])[:, 0], accumulators[2])
    # Rescale the sum to the new maximum, then add this block.
    largest = torch.maximum(accumulators[0], logits.amax(1))
    block_sums = logits.sub_(largest[:, None]).exp_().sum(1)
    accumulators[1] = accumulators[1] * torch.exp(accumulators[0] - largest) + block_sums
    accumulators[0] = largest


@functools.cache
def _load_fold_kernel() -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    """Return the GPU kernel `fold_logits`, or `_fold_logits` if the kernel cannot run."""
    try:
        from pipeline_assets.corpus.scoring.head_kernel import fold_logits

        logits, accumulators = torch.zeros(1, 1, device="cuda"), torch.zeros(3, 1, device="cuda")
        fold_logits(logits, logits[0].long(), accumulators)
    except Exception as error:  # Triton or a C compiler is missing; each error has a class of its own
        logging.getLogger(__name__).warning("LM head runs without its GPU kernel: %s", one_line(error, 200))
        return _fold_logits
    return fold_logits
