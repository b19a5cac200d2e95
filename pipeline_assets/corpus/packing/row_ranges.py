"""Ranges of rows, which are written one by one."""

import itertools
from dataclasses import dataclass

import numpy as np

from pipeline_assets.corpus.packing.encoded_shard import EncodedShard
from pipeline_assets.corpus.packing.plan_files import PlanFiles, mapped

_RANGE_TOKENS = 8 << 20
_SEGMENT_TOKENS = 32  # what a segment costs, in tokens: of memory while its line is made


@dataclass(frozen=True)
class RowRange:
    """The rows from `start` to before `stop`."""

    name: str
    start: int
    stop: int
    encoded: tuple[EncodedShard, ...]
    plan: PlanFiles
    rows: int = 0


def row_ranges(encoded: tuple[EncodedShard, ...], plan: PlanFiles, seq_len: int) -> list[RowRange]:
    """All rows in ranges of about 8 Mi tokens, fewer where documents are short; planned from the rows alone."""
    row_starts = mapped(plan.row_starts, np.int64)
    cost = np.arange(len(row_starts)) * seq_len + row_starts * _SEGMENT_TOKENS
    steps = np.arange(_RANGE_TOKENS, cost[-1], _RANGE_TOKENS)
    bounds = np.unique([0, *np.searchsorted(cost, steps), len(cost) - 1]).tolist()
    return [RowRange(f"{start:010d}", start, stop, encoded, plan) for start, stop in itertools.pairwise(bounds)]
