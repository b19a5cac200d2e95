"""Which documents go: the greedy rule, in one walk along the edges.

Documents in their order; one is dropped if and only if a kept one before it is an edge away. So no chain of
almost-likes drags in what is unlike the document that stays, and of a family of templates each that is unlike all kept
ones stays. A document's fate depends on those before it alone, and edges come in the order of the later document: one
walk with a bit for each document settles all, whatever components there are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.order import document_numbers, include, is_member
from pipeline_assets.corpus.formats.arrow import column_of, numbers, table_of
from pipeline_assets.corpus.formats.parquet import read_columns

_NONE = -1


def near_duplicates(runs: Sequence[Path], dropped: NDArray[np.uint8]) -> Iterator[pa.Table]:
    """The edges by which documents go, of each run those: `number` of the document, `first` the order of the one that
    stays, and the edge's other columns; by number.

    A document that is an edge away from several kept ones goes for the most similar, of equals the first.

    Args:
        runs: of edges, as `verify` writes them, in the order of their ranges.
        dropped: the documents that go are put into this set.
    """
    for run in runs:
        edges = read_columns(run)
        later, earlier = numbers(edges["later"]), numbers(edges["earlier"])
        shared = numbers(edges["shared"])
        union = numbers(edges["shingles"]) + numbers(edges["other_shingles"]) - shared
        chosen = _walk(later, earlier, shared, union, dropped)
        chosen = chosen[np.argsort(document_numbers(later[chosen]))]
        found = edges.take(column_of(chosen))
        yield table_of(
            {
                "number": document_numbers(later[chosen]),
                "first": earlier[chosen],
                "first_id": found["other_doc_id"],
                "shared": found["shared"],
                "shingles": found["shingles"],
                "other_shingles": found["other_shingles"],
            }
        )


@compiled
def _walk(
    later: NDArray[np.uint64],
    earlier: NDArray[np.uint64],
    shared: NDArray[np.int64],
    union: NDArray[np.int64],
    dropped: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Of each document that goes, the edge by which it does."""
    chosen = np.empty(len(later), np.int64)
    number = start = 0
    while start < len(later):
        best = _NONE
        stop = start
        while stop < len(later) and later[stop] == later[start]:
            if not is_member(dropped, earlier[stop]) and (
                best == _NONE or shared[stop] * union[best] > shared[best] * union[stop]
            ):
                best = stop
            stop += 1
        if best != _NONE:
            chosen[number] = best
            number += 1
            include(dropped, later[start : start + 1])
        start = stop
    return chosen[:number]
