"""Strategies that pack documents into rows: sequential and best fit.

`sequential` puts one document after the other and cuts where a row ends. `best_fit` cuts no document that fits in a
row: Ding et al., "Fewer Truncations Improve Language Modeling" (arXiv 2404.10830), section 3. Pieces are placed by
length, the longest first, each into the row with the least room that still holds it, or else into a new row. Ties: of
pieces of equal length the first in order is placed first; of rows with equal room the one filled last is used. A tree
over the existing rooms finds the least one in O(log seq_len) per piece.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.packing.hashed_order import chunks, hashed_order, lower_halves
from pipeline_assets.spine.errors import RecipeKey, UsageError


class Segments(NamedTuple):
    """Segments in the order of rows, without gaps within a row.

    Attributes:
        rows: Row of the packed set, shape (segments,).
        ranks: Position of the segment's draw in the packed order, shape (segments,).
        starts: First token in the document, shape (segments,).
        lengths: Tokens, at least 1, shape (segments,).
    """

    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]


_NONE = np.int64(-1)
_UPPER_HALF = np.uint64(32)


@compiled
def rows_needed(pieces: NDArray[np.int64], seq_len: int) -> int:
    """Count the rows that best fit needs, from the lengths of pieces alone.

    A row that takes a piece of some length has the least room for the next piece of that length too, as long as it
    fits. So all pieces of one length are placed at once into rows of one room, much faster than one by one.

    Args:
        pieces: Number of pieces of each length, shape (seq_len + 1,).
        seq_len: Tokens in a row.
    """
    rows = np.zeros(seq_len + 1, np.int64)  # number of rows by their room
    tree = _empty_tree(seq_len)
    opened = 0
    for length in range(seq_len, 0, -1):
        remaining = pieces[length]
        while remaining:
            room = _smallest_room(tree, length)
            if room == _NONE:  # open new rows for all remaining pieces
                each = seq_len // length
                used = -(-remaining // each)
                opened += used
                room = seq_len
            else:  # take rows of this room out, as many as the remaining pieces fill
                each = room // length
                used = min(rows[room], -(-remaining // each))
                rows[room] -= used
                if not rows[room]:
                    _mark_room(tree, room, False)
            placed = min(remaining, used * each)
            in_last = placed - (used - 1) * each  # the last row may have fewer pieces than the others
            remaining -= placed
            # Put the rows back with their new room, unless they are full.
            for count, new_room in ((used - 1, room - each * length), (1, room - in_last * length)):
                if count and new_room:
                    rows[new_room] += count
                    _mark_room(tree, new_room, True)
    return opened


@compiled
def assign_rows(
    order: NDArray[np.uint32], lengths: NDArray[np.int32], seq_len: int, max_rows: int
) -> tuple[NDArray[np.uint32], int]:
    """Assign the rest of each document beyond whole rows to a row.

    Args:
        order: Documents in the order of `order_by_remainder`.
        lengths: Tokens of the documents, shape (documents,).
        seq_len: Tokens in a row.
        max_rows: At least as many as `rows_needed` counts.

    Returns:
        Row of each document, undefined for multiples of `seq_len`; number of rows. Rows are numbered as they are
        opened.
    """
    document_rows = np.empty(len(lengths), np.uint32)
    # Rows with equal room form a stack, linked by `below`; 0 is the bottom, and row r is stored as r + 1.
    below = np.empty(max_rows, np.uint32)
    top = np.full(seq_len + 1, _NONE, np.int64)
    tree = _empty_tree(seq_len)
    opened = 0
    for document in order:
        length = lengths[document] % seq_len
        room = _smallest_room(tree, length)
        if room == _NONE:
            row, room = np.int64(opened), seq_len
            opened += 1
        else:  # pop the row
            row = top[room]
            top[room] = np.int64(below[row]) - 1
            if top[room] == _NONE:
                _mark_room(tree, room, False)
        document_rows[document] = row
        room -= length
        if room:  # push the row onto the stack of its new room
            if top[room] == _NONE:
                _mark_room(tree, room, True)
            below[row] = top[room] + 1
            top[room] = row
    return document_rows, opened


def order_by_remainder(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """Order documents by their rest beyond whole rows, the longest first.

    Documents without a rest are omitted. Memory: 8 bytes for each document.
    """
    keys = np.arange(len(lengths), dtype=np.uint64)
    whole = 0
    # Key: `seq_len - rest` in the upper half, the document's number in the lower one; without a rest it sorts last.
    for chunk in chunks(len(lengths)):
        rest = lengths[chunk] % seq_len
        whole += int(np.count_nonzero(rest == 0))
        keys[chunk] |= (seq_len - rest).astype(np.uint64) << _UPPER_HALF
    keys.sort()
    return lower_halves(keys)[: len(lengths) - whole]


def count_pieces(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.int64]:
    """Count the pieces of each length: whole rows, and the rest of each document.

    Returns:
        Shape (seq_len + 1,); 0 pieces of length 0.
    """
    pieces = np.zeros(seq_len + 1, np.int64)
    for chunk in chunks(len(lengths)):
        whole, rest = np.divmod(lengths[chunk], np.int32(seq_len))
        pieces += np.bincount(rest, minlength=seq_len + 1)
        pieces[seq_len] += whole.sum(dtype=np.int64)
    pieces[0] = 0
    return pieces


@compiled
def _empty_tree(seq_len: int) -> NDArray[np.bool_]:
    """Return a tree over the rooms 0 to seq_len.

    Node n has the children 2n and 2n + 1, and is true if a leaf below it is.
    """
    leaves = 1
    while leaves <= seq_len:
        leaves *= 2
    return np.zeros(2 * leaves, np.bool_)


@inner
def _mark_room(tree: NDArray[np.bool_], room: int, exists: bool) -> None:
    """Add a room to the tree or remove it, and update the nodes above."""
    node = (len(tree) >> 1) + room
    tree[node] = exists
    # Stop at the first parent that is correct already.
    while node > 1 and tree[node >> 1] != exists:
        node >>= 1
        tree[node] = tree[2 * node] or tree[2 * node + 1]


@inner
def _smallest_room(tree: NDArray[np.bool_], minimum: int) -> int:
    """Return the smallest room in the tree of at least `minimum`; -1 if missing."""
    leaves = len(tree) >> 1
    node = leaves + minimum
    # Go right: up until a node is a left child, then to its sibling, until a subtree has a room.
    while not tree[node]:
        while node & 1:
            node >>= 1
        if not node:  # the root is passed
            return -1
        node += 1
    # Go down to the leftmost room of the subtree.
    while node < leaves:
        node *= 2
        if not tree[node]:
            node += 1
    return node - leaves


def best_fit_rows(lengths: NDArray[np.int32], seq_len: int, num_seqs: int, seed: int) -> Iterator[Segments]:
    """Pack draws into exactly `num_seqs` rows in a seeded order.

    In a row, documents are in their order. Best fit may leave one or two rows empty, if a token more would need one row
    too many. Each of these gets a document from a row with several, the longest first: nothing is cut, and no row is
    empty.

    Args:
        lengths: Tokens of the draws in their order, shape (draws,); they fit.
        seq_len: Tokens in a row.
        num_seqs: Number of rows.
        seed: Seed of the order of rows.

    Raises:
        UsageError: There are fewer pieces than rows.
    """
    whole = whole_rows(lengths, seq_len)
    order = order_by_remainder(lengths, seq_len)
    document_rows, opened = assign_rows(order, lengths, seq_len, num_seqs - len(whole))
    empty_rows = num_seqs - len(whole) - opened
    if empty_rows and fill_empty_rows(order, document_rows, opened, empty_rows):
        what = f"the drawn documents fill {len(whole) + opened:,} rows and cannot be spread over {num_seqs:,}"
        raise UsageError(what, RecipeKey("pack.num_seqs"), f"request {len(whole) + opened:,} rows, or use another seed")
    del order
    starts, ranks = group_by_row(lengths, seq_len, document_rows, num_seqs - len(whole))
    del document_rows
    rows = hashed_order(num_seqs, seed, "rows")
    for chunk in chunks(num_seqs):
        yield _segments(chunk.start, rows[chunk].astype(np.int64), whole, starts, ranks, lengths, seq_len)


def whole_rows(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """Return the draw of each row that a single piece fills, ascending, shape (rows,)."""
    draws = np.flatnonzero(lengths >= seq_len)
    return np.repeat(draws.astype(np.uint32), lengths[draws] // seq_len)


def fill_empty_rows(order: NDArray[np.uint32], document_rows: NDArray[np.uint32], opened: int, empty_rows: int) -> int:
    """Move a document into each empty row; return the number of rows still empty."""
    row_sizes = np.bincount(document_rows[order], minlength=opened)
    for draw in order[row_sizes[document_rows[order]] > 1]:
        if empty_rows and row_sizes[document_rows[draw]] > 1:
            row_sizes[document_rows[draw]] -= 1
            document_rows[draw] = opened
            opened += 1
            empty_rows -= 1
        if not empty_rows:
            break
    return empty_rows


def group_by_row(
    lengths: NDArray[np.int32], seq_len: int, document_rows: NDArray[np.uint32], rows: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Group draws by their row, in their order within a row.

    Returns:
        Start of each row among the draws, shape (rows + 1,), and the draws.
    """
    keys = np.arange(len(lengths), dtype=np.uint64)
    for chunk in chunks(len(lengths)):
        # Draws without a rest have no row: they sort after all others.
        row = np.where(lengths[chunk] % seq_len, document_rows[chunk], np.uint32(rows))
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
    """Build the segments of consecutive rows of the packed set, from row `first` on.

    `rows` has the number of each row in the order of filling: first the whole rows, then the rows of `starts`.
    """
    is_whole = rows < len(whole)
    shared = rows[~is_whole] - len(whole)
    begins, counts = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    begins[~is_whole] = starts[shared]
    counts[~is_whole] = starts[shared + 1] - starts[shared]
    # Index of each segment's row in `rows`, and of its draw in `draws`: segment k of a row is draw `begins + k`.
    row = np.repeat(np.arange(len(rows)), counts)
    draw_positions = np.arange(len(row)) + (begins - np.cumsum(counts) + counts)[row]
    fills_row, filling = is_whole[row], whole[rows[is_whole]]
    ranks = np.empty(len(row), np.int64)
    ranks[fills_row], ranks[~fills_row] = filling, draws[draw_positions[~fills_row]]
    pieces = np.where(fills_row, seq_len, lengths[ranks] % seq_len).astype(np.int32)
    # A rest is at the end of its document. Whole pieces of a document have consecutive rows, so piece k is k rows after
    # the document's first one.
    starts_in_document = lengths[ranks] - pieces
    starts_in_document[fills_row] = (rows[is_whole] - np.searchsorted(whole, filling)) * seq_len
    return Segments(first + row, ranks, starts_in_document, pieces)


def sequential_rows(lengths: NDArray[np.int32], seq_len: int) -> Iterator[Segments]:
    """Pack draws one after the other; blocks of segments may end within a row.

    Args:
        lengths: Tokens of the draws in their order, shape (draws,); their sum is a multiple of `seq_len`.
        seq_len: Tokens in a row.
    """
    offset = 0  # tokens of earlier chunks
    for chunk in chunks(len(lengths)):
        # Begin and end of each draw in the stream of all tokens, and the number of rows that it touches.
        ends = offset + np.cumsum(lengths[chunk], dtype=np.int64)
        begins = np.concatenate(([offset], ends[:-1]))
        pieces = (ends - 1) // seq_len - begins // seq_len + 1
        # Draw of each piece, and the piece's number in its draw.
        draws = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.arange(len(draws)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        # Each piece is the intersection of its draw and its row.
        rows = begins[draws] // seq_len + piece
        starts = np.maximum(begins[draws], rows * seq_len)
        stops = np.minimum(ends[draws], (rows + 1) * seq_len)
        starts_in_document = (starts - begins[draws]).astype(np.int32)
        yield Segments(rows, chunk.start + draws, starts_in_document, (stops - starts).astype(np.int32))
        offset = int(ends[-1])
