"""Negative log-likelihood of completions: hidden states once, the LM head for the tokens that count alone.

Logits of a few positions by a few words of the vocabulary are held at a time, in float32 from float32 sums whatever the
weights are: a float32 copy of bfloat16 logits has their 8 bits. The log-sum-exp goes along block by block (Milakov and
Gimelshein 2018, "Online normalizer calculation for softmax"), so that blocks stay in a CPU's cache, or within
`BUFFER_BYTES` of a GPU. A row's sum is float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline_assets.corpus.scoring.batch_journal import BatchJournal
from pipeline_assets.corpus.scoring.batches import Batch, packed, padded
from pipeline_assets.corpus.scoring.language_model import LanguageModel, LmHead
from pipeline_assets.corpus.scoring.token_rows import TokenRow

BUFFER_BYTES = 1 << 30  # of logits
_ON_CPU = 256, 2048  # positions and words of a block: 2 MiB of logits
_GPU_POSITIONS = 4096


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
class Scored:
    """The NLL of each row, in the order of the rows, and how many batches didn't fit into memory and were halved."""

    rows: list[RowNll]
    halved: int


@torch.inference_mode()
def score_rows(
    model: LanguageModel,
    rows: Sequence[TokenRow],
    batch_tokens: int,
    batch_rows: int | None = None,
    journal: BatchJournal | None = None,
) -> Scored:
    """The NLL of each row.

    A batch that doesn't fit into the device's memory is halved, as often as needed.

    Args:
        batch_tokens: of a batch at most, padding included; a longer row is alone.
        batch_rows: of a batch at most; None for any number.
        journal: of equal rows, model and arguments; batches that are in it are not worked out again.
    """
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    plan, batch_rows = packed if model.is_packed else padded, 1 if model.is_alone else batch_rows
    waiting = plan(lengths, batch_tokens, batch_rows)[::-1]
    found: list[RowNll | None] = [None] * len(rows)
    number = halved = 0
    while waiting:
        batch = waiting.pop()
        try:
            known = None if journal is None else journal.known(batch.rows)
            sums: Sequence[float | None] = _sums(model, rows, batch) if known is None else known
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if len(batch.rows) > 1:
                waiting += batch.halves(lengths.tolist())[::-1]
                halved += 1
                continue
            sums = [None]
        if journal is not None and known is None:
            journal.add(batch.rows, sums)
        for row, nll_sum in zip(batch.rows, sums, strict=True):
            found[row] = RowNll(nll_sum, number, len(batch.rows), batch.tokens)
        number += 1
    return Scored([one for one in found if one is not None], halved)


def _sums(model: LanguageModel, rows: Sequence[TokenRow], batch: Batch) -> list[float]:
    chosen = [rows[number] for number in batch.rows]
    hidden = model.hidden_states([row.ids for row in chosen], batch.tokens)
    counts = np.concatenate([row.counts for row in chosen])
    targets = np.concatenate([row.ids for row in chosen])[counts]
    # The state before a token predicts it.
    before = torch.from_numpy(np.flatnonzero(counts) - 1).to(hidden.device)
    nll = token_nll(hidden[before], torch.from_numpy(targets.astype(np.int64)), model.head).double().cpu().numpy()
    ends = np.cumsum([int(row.counts.sum()) for row in chosen])
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
