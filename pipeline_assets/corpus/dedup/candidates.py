"""The stage `propose`: documents that share a band → pairs to be compared, range by range of the bands' keys."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.order import are_members, is_seen, load
from pipeline_assets.corpus.dedup.pairs_of_keys import sorted_pairs
from pipeline_assets.corpus.dedup.seen import SeenRun, with_seen
from pipeline_assets.corpus.dedup.sorted_runs import read_range, write_run
from pipeline_assets.corpus.formats.arrow import numbers, table_of
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window

PAIRS = f"{WORK}/pairs"
MAX_PAIRS = 1 << 21  # in a run: 32 MiB, and as much again three times while they are sorted


@dataclass(frozen=True)
class BandRange:
    """A range of keys, of all runs of bands, and of documents seen before.

    Attributes:
        copies: the set of exact copies, which left before; None where none were looked for.
        max_compared: as in the recipe.
    """

    name: str
    low: int
    high: int
    runs: tuple[Path, ...]
    seen: tuple[SeenRun, ...]
    copies: Path | None
    max_compared: int
    rows: int = 0


def propose_pairs(shard: BandRange, window: Window, folder: BuildFolder) -> Receipt:
    """Every two documents that share a band of the range; in a large bucket, each with its first ones alone. Not two
    that were seen before.

    Files: runs by `later`, the order of the later of two, and `earlier`; a pair may be in several.
    Counts: `buckets` of two documents or more, `capped_buckets`, `proposed` pairs, one for each band.
    """
    keys, orders = _read(shard)
    places = np.arange(len(keys))
    is_first = np.ones(len(keys), bool)
    is_first[1:] = keys[1:] != keys[:-1]
    starts = np.maximum.accumulate(np.where(is_first, places, 0))
    compared = np.where(is_seen(orders), 0, np.minimum(places - starts, shard.max_compared))
    files: list[OutputFile] = []
    for first, stop in _chunks(compared):
        pairs = np.empty((2, int(compared[first:stop].sum())), np.uint64)
        _pair(orders, starts, compared, first, stop, pairs)
        later, earlier = distinct_pairs(pairs[0], pairs[1])
        name = f"{PAIRS}/{shard.name}-{len(files):05d}.parquet"
        files.append(write_run(folder.path(name), name, table_of({"later": later, "earlier": earlier})))
    sizes = np.diff(np.append(np.flatnonzero(is_first), len(keys)))
    capped = np.flatnonzero(sizes > shard.max_compared + 1)
    return Receipt(
        files,
        {"buckets": int((sizes > 1).sum()), "capped_buckets": len(capped), "proposed": int(compared.sum())},
    )


def load_kernels() -> None:
    """Loads the compiled code that `propose_pairs` needs."""
    one, none = np.ones(1, np.uint64), np.zeros(1, np.int64)
    are_members(one, np.zeros(1, np.uint8))
    _pair(*sorted_pairs(one, one)[1:], none, none, 0, 1, np.empty((2, 0), np.uint64))


def _read(shard: BandRange) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Keys and orders of the documents that are still there, in the order of both."""
    table = with_seen(read_range(shard.runs, shard.low, shard.high), shard.seen, shard.low, shard.high)
    keys, orders = numbers(table["key"]), numbers(table["order"])
    if shard.copies is not None:
        stays = ~are_members(orders, load(shard.copies))
        keys, orders = keys[stays], orders[stays]
    return sorted_pairs(keys, orders)


def _chunks(compared: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Spans of rows with about `MAX_PAIRS` pairs each."""
    before = np.cumsum(compared)
    cuts = np.searchsorted(before, np.arange(MAX_PAIRS, before[-1:].sum(), MAX_PAIRS)) + 1
    return list(itertools.pairwise([0, *sorted({*cuts.tolist(), len(compared)})]))


@compiled
def _pair(
    orders: NDArray[np.uint64],
    starts: NDArray[np.int64],
    compared: NDArray[np.int64],
    first: int,
    stop: int,
    pairs: NDArray[np.uint64],
) -> None:
    """Pairs each row with the first `compared` of its bucket: later ones in `pairs[0]`, earlier ones in `pairs[1]`."""
    number = 0
    for place in range(first, stop):
        for other in range(starts[place], starts[place] + compared[place]):
            pairs[0, number], pairs[1, number] = orders[place], orders[other]
            number += 1


def distinct_pairs(
    later: NDArray[np.uint64], earlier: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Each pair once, in the order of both."""
    later, earlier = sorted_pairs(later, earlier)
    is_new = np.ones(len(later), bool)
    is_new[1:] = (later[1:] != later[:-1]) | (earlier[1:] != earlier[:-1])
    return later[is_new], earlier[is_new]
