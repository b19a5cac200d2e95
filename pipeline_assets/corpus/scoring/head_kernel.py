"""GPU kernel that adds a block of logits to running log-sum-exps, in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_LANES = 2048  # logits of a row that are read together


def fold_logits(logits: Tensor, target_columns: Tensor, accumulators: Tensor) -> None:
    """Add a block of logits to `accumulators`; the block is not overwritten.

    `nll._fold_logits` explains the arguments.
    """
    with torch.cuda.device(logits.device):  # Triton runs on the current GPU; spread weights are on several
        _fold_row[(len(logits),)](logits, *logits.shape, target_columns, accumulators, _LANES, num_warps=8)


@triton.jit  # type: ignore[untyped-decorator]
def _fold_row(logits, position_count, id_count, target_columns, accumulators, LANES: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    position = tl.program_id(0)
    row = logits + position.to(tl.int64) * id_count
    # Each lane has a maximum and a sum of its own, so lanes are reduced only once, after the last logit.
    largest = tl.full((LANES,), -3.4028234663852886e38, tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for first in range(0, id_count, LANES):
        column = first + tl.arange(0, LANES)
        logit = tl.load(row + column, mask=column < id_count, other=float("-inf"))
        former, largest = largest, tl.maximum(largest, logit)  # ignores NaN; the sum below becomes NaN
        total = total * tl.exp(former - largest) + tl.exp(logit - largest)
    # `accumulators` has three rows: largest logits, sums, logits of targets. Rescale both sums to the new maximum and
    # add them.
    before = tl.load(accumulators + position)
    after = tl.maximum(before, tl.max(largest, 0))
    block = tl.sum(total * tl.exp(largest - after), 0)
    tl.store(accumulators + position, after)
    sum_address = accumulators + position_count + position
    tl.store(sum_address, tl.load(sum_address) * tl.exp(before - after) + block)
    target = tl.load(target_columns + position)
    if (target >= 0) & (target < id_count):
        tl.store(sum_address + position_count, tl.load(row + target))
