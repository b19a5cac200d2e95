"""Sorted runs of proposed pairs."""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.sorted_runs import (
    distinct_pairs,
    write_run,
)
from pipeline_assets.corpus.formats.arrow_columns import to_table
from pipeline_assets.spine.staging import WORK, OutputFile, StagingView

_PAIRS = f"{WORK}/pairs"
MAX_PAIRS = 1 << 21  # pairs in a run: 32 MiB, and four times as much while they are sorted


def write_pairs(folder: StagingView, name: str, pairs: NDArray[np.uint64]) -> OutputFile:
    """Write distinct pairs of later and earlier documents, shape (2, pairs)."""
    later, earlier = distinct_pairs(pairs)
    return write_run(folder, f"{_PAIRS}/{name}.parquet", to_table({"later": later, "earlier": earlier}))
