"""The stage `exact`: documents whose normalised text an earlier one has, found range by range of their hashes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_assets.corpus.dedup.order import document_numbers, is_seen
from pipeline_assets.corpus.dedup.seen import SeenRun, with_seen
from pipeline_assets.corpus.dedup.sorted_runs import read_range, write_run
from pipeline_assets.corpus.formats.arrow import column_of, numbers, table_of
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window

EXACT = f"{WORK}/exact"


@dataclass(frozen=True)
class HashRange:
    """A range of hashes, of all runs of them, and of documents seen before."""

    name: str
    low: int
    high: int
    runs: tuple[Path, ...]
    seen: tuple[SeenRun, ...]
    rows: int = 0


def find_copies(shard: HashRange, window: Window, folder: BuildFolder) -> Receipt:
    """The copies in one range.

    Files: a run by `number` of the copy; `order` and `first`, `first_id`: the order and id of the document that stays.
    Counts: `copies`.
    """
    table = with_seen(read_range(shard.runs, shard.low, shard.high), shard.seen, shard.low, shard.high)
    high, low, order = (numbers(table[name]) for name in ("high", "low", "order"))
    by = np.lexsort((order, low, high))
    is_copy = np.zeros(len(by), bool)
    is_copy[1:] = (high[by[1:]] == high[by[:-1]]) & (low[by[1:]] == low[by[:-1]])
    places = np.arange(len(by))
    firsts = np.maximum.accumulate(np.where(is_copy, 0, places))
    copies = np.flatnonzero(is_copy & ~is_seen(order[by]))
    first_rows, copy_numbers = by[firsts[copies]], document_numbers(order[by[copies]])
    by_number = np.argsort(copy_numbers)
    first_rows = first_rows[by_number]
    run = table_of(
        {
            "number": copy_numbers[by_number],
            "first": order[first_rows],
            "first_id": table["doc_id"].take(column_of(first_rows)),
        }
    )
    name = f"{EXACT}/{shard.name}.parquet"
    return Receipt([write_run(folder.path(name), name, run)], {"copies": len(copies)})
