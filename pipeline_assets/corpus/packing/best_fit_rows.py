"""The rows of best-fit packing: whole rows of long documents, and rows that hold what is left of all, in one order."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.packing.best_fit import longest_first, place
from pipeline_assets.corpus.packing.hashed_order import hashed_order
from pipeline_assets.corpus.packing.segments import Segments
from pipeline_assets.corpus.spine.errors import UsageError, bare

_CHUNK = 1 << 16


def best_fit_rows(lengths: NDArray[np.int32], seq_len: int, num_seqs: int, seed: int) -> Iterator[Segments]:
    """Exactly `num_seqs` rows, in an order that the seed gives them; in a row documents stand in their order.

    Best fit may leave rows over, one or two, where a token more would take one too many. Each of these takes a document
    out of a row that holds others too, the longest first: nothing is cut, and no row is empty.

    Args:
        lengths: of the draws in their order, shape (draws,); they fit.
    Raises:
        UsageError: there are fewer pieces than rows.
    """
    whole = whole_rows(lengths, seq_len)
    row_of, opened = place(lengths, seq_len, num_seqs - len(whole))
    left_over = num_seqs - len(whole) - opened
    if left_over and move_out(longest_first(lengths, seq_len), lengths, seq_len, row_of, opened, left_over):
        what = f"what is drawn makes {len(whole) + opened:,} rows and can't be spread over {num_seqs:,}"
        raise UsageError(what, bare("pack.num_seqs"), f"ask for {len(whole) + opened:,}, or take another seed")
    starts, ranks = group(lengths, seq_len, row_of, num_seqs - len(whole))
    del row_of
    order = hashed_order(num_seqs, seed, "rows")
    for first in range(0, num_seqs, _CHUNK):
        rows, of, starts_in, pieces = _segments(order[first : first + _CHUNK], whole, starts, ranks, lengths, seq_len)
        yield Segments(first + rows, of, starts_in, pieces)


@compiled
def whole_rows(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """The draw of each row that a part of a document fills, shape (rows,), ascending."""
    rows = 0
    for length in lengths:
        rows += length // seq_len
    draws = np.empty(rows, np.uint32)
    row = 0
    for draw in range(len(lengths)):
        for _ in range(lengths[draw] // seq_len):
            draws[row] = draw
            row += 1
    return draws


@compiled
def move_out(
    order: NDArray[np.uint32],
    lengths: NDArray[np.int32],
    seq_len: int,
    row_of: NDArray[np.uint32],
    opened: int,
    left_over: int,
) -> int:
    """Gives each row that is left over one document out of another; how many rows are empty still."""
    documents = np.zeros(opened, np.uint32)
    for draw in order:
        if lengths[draw] % seq_len:
            documents[row_of[draw]] += 1
    for draw in order:
        if not left_over or not lengths[draw] % seq_len:
            break
        if documents[row_of[draw]] > 1:
            documents[row_of[draw]] -= 1
            row_of[draw] = opened
            opened += 1
            left_over -= 1
            documents = np.append(documents, np.uint32(1))
    return left_over


@compiled
def group(
    lengths: NDArray[np.int32], seq_len: int, row_of: NDArray[np.uint32], rows: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The draws of each row, in their order: where a row starts among them, shape (rows + 1,), and the draws."""
    starts = np.zeros(rows + 2, np.uint32)
    for draw in range(len(lengths)):
        if lengths[draw] % seq_len:
            starts[row_of[draw] + 2] += 1
    for row in range(2, rows + 2):
        starts[row] += starts[row - 1]
    draws = np.empty(starts[rows + 1], np.uint32)
    for draw in range(len(lengths)):
        if lengths[draw] % seq_len:
            row = row_of[draw] + 1
            draws[starts[row]] = draw
            starts[row] += 1
    return starts[: rows + 1], draws


@compiled
def _segments(
    rows: NDArray[np.uint32],
    whole: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    draws: NDArray[np.uint32],
    lengths: NDArray[np.int32],
    seq_len: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """The columns of `Segments` of some rows. They are numbered from 0: whole ones first, then as `starts` has them."""
    count = np.int64(0)
    for row in rows:
        shared = np.int64(row) - len(whole)
        count += np.int64(1) if shared < 0 else np.int64(starts[shared + 1]) - np.int64(starts[shared])
    places, ranks = np.empty(count, np.int64), np.empty(count, np.int64)
    in_document, pieces = np.empty(count, np.int32), np.empty(count, np.int32)
    segment = 0
    for place_of, row in enumerate(rows):
        shared = np.int64(row) - len(whole)
        if shared < 0:
            draw = whole[row]
            places[segment], ranks[segment], pieces[segment] = place_of, draw, seq_len
            in_document[segment] = (np.int64(row) - np.searchsorted(whole, draw)) * seq_len
            segment += 1
            continue
        for number in range(starts[shared], starts[shared + 1]):
            draw = draws[number]
            left = lengths[draw] % seq_len
            places[segment], ranks[segment], pieces[segment] = place_of, draw, left
            in_document[segment] = lengths[draw] - left
            segment += 1
    return places, ranks, in_document, pieces
