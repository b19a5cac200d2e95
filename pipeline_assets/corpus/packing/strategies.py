"""Documents into rows: one after the other, cut where a row ends; or by best fit, so that none is cut that fits in one.

Best fit is of Ding et al., "Fewer Truncations Improve Language Modeling" (arXiv 2404.10830), section 3: pieces are
placed by length, the longest first, each into the row with the least room that still holds it, else into a new one.
Here: of pieces of one length the first in order comes first; of rows with the same room the one that was filled last
takes it. A tree over the rooms that there are finds the least one, in O(log seq_len) a piece.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.packing.mixture import chunks, hashed_order, lower_halves
from pipeline_assets.spine.errors import UsageError, bare


class Segments(NamedTuple):
    """Segments in the order of rows, and in a row as they follow one another, without a gap.

    Attributes:
        rows: of the packed set, shape (segments,).
        ranks: of the draws that they are of, shape (segments,).
        starts: first token in the document, shape (segments,).
        lengths: tokens, shape (segments,), at least 1.
    """

    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]


_NONE = np.int64(-1)
_UPPER_HALF = np.uint64(32)


@compiled
def rows_needed(pieces: NDArray[np.int64], seq_len: int) -> int:
    """How many rows pieces take, by their lengths alone: much faster than to place them one by one.

    A row that takes one piece of a length has the least room for the next one of that length too, while it has room:
    so pieces of one length are placed into rows of one room all together.

    Args:
        pieces: how many there are of each length, shape (seq_len + 1,).
    """
    rows = np.zeros(seq_len + 1, np.int64)  # by room
    tree = _empty_tree(seq_len)
    opened = 0
    for length in range(seq_len, 0, -1):
        left = pieces[length]
        while left:
            room = _smallest_room(tree, length)
            if room == _NONE:
                each = seq_len // length
                taken = -(-left // each)
                opened += taken
                room = seq_len
            else:
                each = room // length
                taken = min(rows[room], -(-left // each))
                rows[room] -= taken
                if not rows[room]:
                    _mark(tree, room, False)
            placed = min(left, taken * each)
            in_last = placed - (taken - 1) * each
            left -= placed
            for number, room_left in ((taken - 1, room - each * length), (1, room - in_last * length)):
                if number and room_left:
                    rows[room_left] += number
                    _mark(tree, room_left, True)
    return opened


@compiled
def assign_rows(
    order: NDArray[np.uint32], lengths: NDArray[np.int32], seq_len: int, max_rows: int
) -> tuple[NDArray[np.uint32], int]:
    """The row of what is left of each document beyond whole rows, and how many rows are opened, in which order they
    are numbered.

    Args:
        order: of documents, `order_by_remainder`.
        lengths: of the documents, shape (documents,). Of a multiple of `seq_len` nothing is left, its row is no row.
        max_rows: at least so many as `rows_needed` says.
    """
    row_of = np.empty(len(lengths), np.uint32)
    below = np.empty(max_rows, np.uint32)  # under each row in the stack of those with its room
    top = np.full(seq_len + 1, _NONE, np.int64)
    tree = _empty_tree(seq_len)
    opened = 0
    for document in order:
        length = lengths[document] % seq_len
        room = _smallest_room(tree, length)
        if room == _NONE:
            row, room = np.int64(opened), seq_len
            opened += 1
        else:
            row = top[room]
            top[room] = np.int64(below[row]) - 1
            if top[room] == _NONE:
                _mark(tree, room, False)
        row_of[document] = row
        room -= length
        if room:
            if top[room] == _NONE:
                _mark(tree, room, True)
            below[row] = top[room] + 1
            top[room] = row
    return row_of, opened


def order_by_remainder(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """Documents of which something is left beyond whole rows, in the order in which `place` takes them: by what it is.

    8 bytes a document while it is made.
    """
    keys = np.arange(len(lengths), dtype=np.uint64)
    whole = 0
    for chunk in chunks(len(lengths)):
        left = lengths[chunk] % seq_len
        whole += int(np.count_nonzero(left == 0))
        keys[chunk] |= (seq_len - left).astype(np.uint64) << _UPPER_HALF
    keys.sort()
    return lower_halves(keys)[: len(lengths) - whole]


def count_pieces(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.int64]:
    """How many pieces of each length documents give, shape (seq_len + 1,): whole rows, and what is left of each."""
    pieces = np.zeros(seq_len + 1, np.int64)
    for chunk in chunks(len(lengths)):
        whole, left = np.divmod(lengths[chunk], np.int32(seq_len))
        pieces += np.bincount(left, minlength=seq_len + 1)
        pieces[seq_len] += whole.sum(dtype=np.int64)
    pieces[0] = 0
    return pieces


@compiled
def _empty_tree(seq_len: int) -> NDArray[np.bool_]:
    """A tree over the rooms 0 … seq_len; node n has the children 2n and 2n + 1, and is true where a leaf below is."""
    leaves = 1
    while leaves <= seq_len:
        leaves *= 2
    return np.zeros(2 * leaves, np.bool_)


@inner
def _mark(tree: NDArray[np.bool_], room: int, is_there: bool) -> None:
    node = (len(tree) >> 1) + room
    tree[node] = is_there
    while node > 1 and tree[node >> 1] != is_there:
        node >>= 1
        tree[node] = tree[2 * node] or tree[2 * node + 1]


@inner
def _smallest_room(tree: NDArray[np.bool_], at_least: int) -> int:
    """The least room that there is from `minimum` on; -1 where there is none."""
    leaves = len(tree) >> 1
    node = leaves + at_least
    while not tree[node]:
        while node & 1:  # a right child: nothing beside it
            node >>= 1
        if not node:
            return -1
        node += 1
    while node < leaves:
        node *= 2
        if not tree[node]:
            node += 1
    return node - leaves


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
    order = order_by_remainder(lengths, seq_len)
    row_of, opened = assign_rows(order, lengths, seq_len, num_seqs - len(whole))
    left_over = num_seqs - len(whole) - opened
    if left_over and fill_empty_rows(order, row_of, opened, left_over):
        what = f"what is drawn makes {len(whole) + opened:,} rows and can't be spread over {num_seqs:,}"
        raise UsageError(what, bare("pack.num_seqs"), f"ask for {len(whole) + opened:,}, or take another seed")
    del order
    starts, ranks = group_by_row(lengths, seq_len, row_of, num_seqs - len(whole))
    del row_of
    rows = hashed_order(num_seqs, seed, "rows")
    for chunk in chunks(num_seqs):
        yield _segments(chunk.start, rows[chunk].astype(np.int64), whole, starts, ranks, lengths, seq_len)


def whole_rows(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """The draw of each row that a part of a document fills, shape (rows,), ascending."""
    draws = np.flatnonzero(lengths >= seq_len)
    return np.repeat(draws.astype(np.uint32), lengths[draws] // seq_len)


def fill_empty_rows(order: NDArray[np.uint32], row_of: NDArray[np.uint32], opened: int, left_over: int) -> int:
    """Gives each row that is left over one document out of another; how many rows are empty still."""
    documents = np.bincount(row_of[order], minlength=opened)
    for draw in order[documents[row_of[order]] > 1]:
        if left_over and documents[row_of[draw]] > 1:
            documents[row_of[draw]] -= 1
            row_of[draw] = opened
            opened += 1
            left_over -= 1
        if not left_over:
            break
    return left_over


def group_by_row(
    lengths: NDArray[np.int32], seq_len: int, row_of: NDArray[np.uint32], rows: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The draws of each row, in their order: where a row starts among them, shape (rows + 1,), and the draws."""
    keys = np.arange(len(lengths), dtype=np.uint64)
    for chunk in chunks(len(lengths)):
        row = np.where(lengths[chunk] % seq_len, row_of[chunk], np.uint32(rows))
        keys[chunk] |= row.astype(np.uint64) << _UPPER_HALF
    keys.sort()
    starts = np.empty(rows + 1, np.uint32)
    for chunk in chunks(rows + 1):
        starts[chunk] = np.searchsorted(keys, np.arange(chunk.start, chunk.stop, dtype=np.uint64) << _UPPER_HALF)
    return starts, lower_halves(keys)[: starts[-1]]


def _segments(
    first: int,
    rows: NDArray[np.int64],
    whole: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    draws: NDArray[np.uint32],
    lengths: NDArray[np.int32],
    seq_len: int,
) -> Segments:
    """The segments of some rows of the packed set, the first of which is `first`. Here rows are numbered as they were
    filled: whole ones first, then as `starts` has them.
    """
    is_whole = rows < len(whole)
    shared = rows[~is_whole] - len(whole)
    begins, counts = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    begins[~is_whole] = starts[shared]
    counts[~is_whole] = starts[shared + 1] - starts[shared]
    row = np.repeat(np.arange(len(rows)), counts)
    of_draws = np.arange(len(row)) + (begins - np.cumsum(counts) + counts)[row]
    of_whole, filling = is_whole[row], whole[rows[is_whole]]
    ranks = np.empty(len(row), np.int64)
    ranks[of_whole], ranks[~of_whole] = filling, draws[of_draws[~of_whole]]
    pieces = np.where(of_whole, seq_len, lengths[ranks] % seq_len).astype(np.int32)
    in_document = lengths[ranks] - pieces
    in_document[of_whole] = (rows[is_whole] - np.searchsorted(whole, filling)) * seq_len
    return Segments(first + row, ranks, in_document, pieces)


def sequential_rows(lengths: NDArray[np.int32], seq_len: int) -> Iterator[Segments]:
    """All rows, in pieces that may end within a row.

    Args:
        lengths: of the draws in their order, shape (draws,), together a multiple of `seq_len`.
    """
    offset = 0
    for chunk in chunks(len(lengths)):
        ends = offset + np.cumsum(lengths[chunk], dtype=np.int64)
        begins = np.concatenate(([offset], ends[:-1]))
        pieces = (ends - 1) // seq_len - begins // seq_len + 1
        draws = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.arange(len(draws)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        rows = begins[draws] // seq_len + piece
        starts = np.maximum(begins[draws], rows * seq_len)
        stops = np.minimum(ends[draws], (rows + 1) * seq_len)
        in_document = (starts - begins[draws]).astype(np.int32)
        yield Segments(rows, chunk.start + draws, in_document, (stops - starts).astype(np.int32))
        offset = int(ends[-1])
