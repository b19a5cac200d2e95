"""Proposal of pairs to compare, by bands or by binary sketches."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.dedup_run import DedupRun
from pipeline_assets.corpus.dedup.document_order import is_from_seen_corpus
from pipeline_assets.corpus.dedup.exact_copies import ExactCopies, is_not_copy, memory_ranges
from pipeline_assets.corpus.dedup.neighbours import neighbour_tasks
from pipeline_assets.corpus.dedup.recipe import NearRecipe
from pipeline_assets.corpus.dedup.signature_store import SeenRuns, read_with_seen
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS
from pipeline_assets.corpus.dedup.sorted_runs import MAX_PAIRS, KeyRange, is_first_in_group, sorted_pairs, write_pairs
from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.spine.stage import Task, Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView

_BAND_BYTES = 120  # memory for a row: as read, sorted and written


def propose_corpus_pairs(
    dedup: DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, exact: ExactCopies
) -> list[Receipt]:
    """Propose pairs of the whole corpus from its sketches.

    Returns:
        Receipts of `propose_pairs`, or of `propose_neighbours` with faiss.
    """
    if recipe.faiss is not None:
        tasks = neighbour_tasks(dedup, dedup.run_paths(sketched, BITS), recipe.faiss, recipe.max_compared, exact)
    else:
        seen = tuple(store.bands for store in dedup.seen)
        bands = memory_ranges(dedup, dedup.run_paths(sketched, BANDS), seen, _BAND_BYTES)
        rules = (seen, exact.copies, recipe.max_compared)
        tasks = [Task.for_kernel(propose_pairs, key_range, *rules) for key_range in bands]
    return dedup.run_tasks("propose", tasks)


def propose_pairs(
    bands: KeyRange,
    seen: Sequence[SeenRuns],
    copies: Path | None,
    max_compared: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Propose every two documents that share a band of the range.

    A document is paired with the first `max_compared` documents of its bucket that precede it. Documents in the bitmap
    `copies` are skipped, and two documents of stores are not paired.

    Files: runs by `later` and `earlier`, the priorities of a pair; a pair may be in several. Counts: `buckets` of at
    least two documents; `capped_buckets`; `proposed` pairs, one for each band.
    """
    table = read_with_seen(bands, seen)
    keys, orders = to_numpy(table["key"]), to_numpy(table["order"])
    is_kept = is_not_copy(orders, copies)
    keys, orders = sorted_pairs(keys[is_kept], orders[is_kept])
    is_new = is_first_in_group(keys)
    rows = np.arange(len(keys))
    # The first row of each row's bucket; a row is paired with all rows of its bucket before it, up to the cap.
    starts = np.maximum.accumulate(np.where(is_new, rows, 0))
    compared = np.where(is_from_seen_corpus(orders), 0, np.minimum(rows - starts, max_compared))
    files: list[OutputFile] = []
    for first, stop in _chunks(compared):
        own, pair_counts = orders[first:stop], compared[first:stop]
        # Pairs of a row are consecutive: pair p of a row whose pairs begin at b is with row `start + p - b`.
        bucket_offsets = np.repeat(starts[first:stop] - np.cumsum(pair_counts) + pair_counts, pair_counts)
        pairs = np.stack((np.repeat(own, pair_counts), orders[bucket_offsets + np.arange(len(bucket_offsets))]))
        files.append(write_pairs(folder, f"{bands.name}-{len(files):05d}", pairs))
    sizes = np.diff(np.append(np.flatnonzero(is_new), len(keys)))
    capped = np.flatnonzero(sizes > max_compared + 1)
    return Receipt(
        files, {"buckets": int((sizes > 1).sum()), "capped_buckets": len(capped), "proposed": int(compared.sum())}
    )


def _chunks(compared: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Divide rows into spans with about `MAX_PAIRS` pairs each."""
    total = np.cumsum(compared)
    # The row that reaches each multiple of the limit ends a span; `total[-1:]` is empty without rows.
    bounds = np.searchsorted(total, np.arange(MAX_PAIRS, total[-1:].sum(), MAX_PAIRS)) + 1
    return list(itertools.pairwise([0, *np.unique(np.append(bounds, len(compared))).tolist()]))
