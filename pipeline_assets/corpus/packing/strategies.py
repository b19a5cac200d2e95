"""Strategies that pack documents into rows: sequential and best fit.

`sequential` puts one document after the other and cuts where a row ends. `best_fit` (Ding et al., "Fewer Truncations
Improve Language Modeling", arXiv 2404.10830, section 3) cuts only documents that are longer than a row. Such a document
fills whole rows first, and its remainder is a piece. Each shorter document is a piece, too. Pieces are placed by
descending length. Each piece is put into the row with the smallest sufficient room (free tokens), or into a new row
if no room is sufficient. Of equal pieces, the earlier is first; of rows with equal room, the row filled last is used.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, compiled_inner
from pipeline_assets.corpus.packing.hashed_order import chunk_slices, hashed_order, lower_halves
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.plural import pluralize


class Segments(NamedTuple):
    """Segments of rows, in the order of rows; all shapes are (segments,).

    Attributes:
        rows: Row of each segment in the packed set.
        ranks: Rank of each segment's draw: its position in the seeded order of all draws. A draw is one use of a
            document.
        starts: First token of each segment in its document.
        lengths: Number of tokens of each segment, at least 1.
    """

    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]


_NONE = np.int64(-1)
_HALF_BITS, _LAST_KEY = np.uint64(32), np.int64(2**32 - 1)


@compiled
def count_best_fit_rows(piece_counts: NDArray[np.int64], seq_len: int) -> int:
    """Count the rows that best fit needs; `piece_counts` is from `count_pieces`.

    Rows with the same room are filled in one step, which is much faster than piece by piece.
    """
    rows = np.zeros(seq_len + 1, np.int64)  # number of rows by their room
    tree = _empty_tree(seq_len)
    opened = 0
    for length in range(seq_len, 0, -1):
        remaining = piece_counts[length]
        while remaining:
            room = _smallest_room(tree, length)
            if room == _NONE:  # open new rows for all remaining pieces
                each = seq_len // length  # pieces that fit in a row
                used = -(-remaining // each)  # rows, rounded up
                opened += used
                room = seq_len
            else:  # use rows of this room, as many as the remaining pieces fill
                each = room // length
                used = min(rows[room], -(-remaining // each))
                rows[room] -= used
                if not rows[room]:  # the last row of this room
                    _mark_room(tree, room, False)
            placed = min(remaining, used * each)
            in_last = placed - (used - 1) * each  # the last row may have fewer pieces than the others
            remaining -= placed
            # Put the rows back with their new room, unless it is 0: those with `each` pieces, then the last.
            for count, new_room in ((used - 1, room - each * length), (1, room - in_last * length)):
                if count and new_room:
                    rows[new_room] += count
                    _mark_room(tree, new_room, True)
    return opened


@compiled
def assign_rows(
    order: NDArray[np.uint32], lengths: NDArray[np.int32], seq_len: int, max_rows: int
) -> tuple[NDArray[np.uint32], int]:
    """Assign the remainder of each document to a row, by best fit.

    The remainder of a document is its length modulo `seq_len`. `order` is from `order_by_remainder`. `max_rows` must be
    at least the number of needed rows. Rows are numbered from 0 in the order in which they are opened.

    Returns:
        The row of each document, shape (documents,), undefined if its remainder is 0; and the number of opened rows.
    """
    document_rows = np.empty(len(lengths), np.uint32)
    # Rows with equal room form a stack: `top` has its last row, `below` the row under each row. Row r is stored in
    # `below` as r + 1, because uint32 has no -1; 0 is the bottom.
    below = np.empty(max_rows, np.uint32)
    top = np.full(seq_len + 1, _NONE, np.int64)
    tree = _empty_tree(seq_len)
    opened = 0
    for document in order:
        length = lengths[document] % seq_len
        room = _smallest_room(tree, length)
        if room == _NONE:  # no row has enough room: open one
            row, room = np.int64(opened), seq_len
            opened += 1
        else:  # pop the row that was filled last
            row = top[room]
            top[room] = np.int64(below[row]) - 1
            if top[room] == _NONE:  # the stack is empty now
                _mark_room(tree, room, False)
        document_rows[document] = row
        room -= length
        if room:  # push the row onto the stack of its new room
            if top[room] == _NONE:  # the stack was empty
                _mark_room(tree, room, True)
            below[row] = top[room] + 1
            top[room] = row
    return document_rows, opened


def order_by_remainder(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """Order documents by length modulo `seq_len`, largest first; omit remainder 0."""
    return _order_documents(lengths, seq_len, lambda chunk, remainders: seq_len - remainders)


def _order_documents(
    lengths: NDArray[np.int32],
    seq_len: int,
    sort_keys: Callable[[slice, NDArray[np.int32]], NDArray[np.int32 | np.uint32]],
) -> NDArray[np.uint32]:
    """Order the documents that have a remainder by their sort keys, then by number.

    `sort_keys` takes a slice of the documents and their remainders, and returns their keys, which must be below
    2**32 - 1.
    """
    keys = np.arange(len(lengths), dtype=np.uint64)
    whole = 0  # number of documents without a remainder: they sort last, where the slice drops them
    for chunk in chunk_slices(len(lengths)):
        remainders = lengths[chunk] % seq_len
        whole += int(np.count_nonzero(remainders == 0))
        upper_halves = np.where(remainders > 0, sort_keys(chunk, remainders), _LAST_KEY)
        keys[chunk] |= upper_halves.astype(np.uint64) << _HALF_BITS  # the document's number is in the lower half
    keys.sort()
    return lower_halves(keys)[: len(lengths) - whole]


def count_pieces(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.int64]:
    """Cut documents into pieces of at most `seq_len` tokens, and count them by length.

    Index n of the result, shape (seq_len + 1,), has the number of pieces of n tokens; index 0 has 0.
    """
    pieces = np.zeros(seq_len + 1, np.int64)
    for chunk in chunk_slices(len(lengths)):
        whole, remainder = np.divmod(lengths[chunk], np.int32(seq_len))
        pieces += np.bincount(remainder, minlength=seq_len + 1)
        pieces[seq_len] += whole.sum(dtype=np.int64)
    pieces[0] = 0
    return pieces


@compiled
def _empty_tree(seq_len: int) -> NDArray[np.bool_]:
    """Return a binary tree over the numbers of free tokens, 0 to seq_len, all false.

    The root is node 1, and node n has the children 2n and 2n + 1. A row's room is the number of its free tokens. The
    leaf of a room is node `leaves + room`; it is true if a row has this room. A node is true if a leaf below it is
    true.
    """
    leaves = 1
    while leaves <= seq_len:  # a power of two above seq_len, so that all leaves are in one layer
        leaves *= 2
    return np.zeros(2 * leaves, np.bool_)


@compiled_inner
def _mark_room(tree: NDArray[np.bool_], room: int, exists: bool) -> None:
    """Add a room to the tree, or remove it if not `exists`; update the nodes above."""
    node = (len(tree) >> 1) + room  # the leaf
    tree[node] = exists
    # Go up and recompute each parent. Stop at a parent that has the new value already: no node above it changes.
    while node > 1 and tree[node >> 1] != exists:
        node >>= 1
        tree[node] = tree[2 * node] or tree[2 * node + 1]


@compiled_inner
def _smallest_room(tree: NDArray[np.bool_], minimum: int) -> int:
    """Return the smallest room in the tree that is at least `minimum`; -1 if none."""
    leaves = len(tree) >> 1
    node = leaves + minimum
    # Find the next subtree to the right that has a room. An odd node is a right child: go up, because the parent's
    # subtree ends where this one ends. An even node is a left child: its sibling, node + 1, is the next subtree.
    while not tree[node]:
        while node & 1:
            node >>= 1
        if not node:  # 1 >> 1: the root is passed, so no larger room exists
            return -1
        node += 1
    # Go down to the leftmost room of the subtree: left if the left child has a room, otherwise right.
    while node < leaves:
        node *= 2
        if not tree[node]:
            node += 1
    return node - leaves


def best_fit_rows(lengths: NDArray[np.int32], seq_len: int, num_seqs: int, seed: int) -> Iterator[Segments]:
    """Pack draws into exactly `num_seqs` rows by best fit; shuffle the rows by seed.

    `lengths` has the number of tokens of each draw, in packed order. Draws keep this order within a row. The token
    budget must be small enough that best fit needs at most `num_seqs` rows. If best fit needs fewer rows, each empty
    row gets a piece from a row with several pieces, the longest pieces first.

    Raises:
        UsageError: There are fewer pieces than rows.
    """
    whole_row_draws = find_whole_row_draws(lengths, seq_len)
    order = order_by_remainder(lengths, seq_len)
    document_rows, opened = assign_rows(order, lengths, seq_len, num_seqs - len(whole_row_draws))
    empty_rows = num_seqs - len(whole_row_draws) - opened
    if empty_rows and fill_empty_rows(order, document_rows, opened, empty_rows):
        filled = len(whole_row_draws) + opened
        what = f"the drawn documents fill {pluralize(filled, 'row')} and cannot be spread over {num_seqs:,}"
        raise UsageError(what, RecipeKey("pack.num_seqs"), f"request {pluralize(filled, 'row')}, or use another seed")
    del order
    starts, ranks = group_by_row(lengths, seq_len, document_rows, num_seqs - len(whole_row_draws))
    del document_rows
    rows = hashed_order(num_seqs, seed, "rows")
    for chunk in chunk_slices(num_seqs):
        row_numbers = rows[chunk].astype(np.int64)
        yield _build_segments(chunk.start, row_numbers, whole_row_draws, starts, ranks, lengths, seq_len)


def find_whole_row_draws(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """Return the ranks of the draws that fill whole rows.

    The ranks ascend, and repeat if a draw fills several rows; shape (filled rows,).
    """
    draws = np.flatnonzero(lengths >= seq_len)
    return np.repeat(draws.astype(np.uint32), lengths[draws] // seq_len)


def fill_empty_rows(order: NDArray[np.uint32], document_rows: NDArray[np.uint32], new_row: int, empty_rows: int) -> int:
    """Fill each empty row with one piece, taken from a row that has several.

    `order` is an argument of `assign_rows`; `document_rows` is its result, and is changed in place. Empty rows are
    numbered from `new_row`. Return the number of rows that remain empty.
    """
    row_sizes = np.bincount(document_rows[order], minlength=new_row)
    for draw in order[row_sizes[document_rows[order]] > 1]:
        if empty_rows and row_sizes[document_rows[draw]] > 1:
            row_sizes[document_rows[draw]] -= 1
            document_rows[draw] = new_row
            new_row += 1
            empty_rows -= 1
        if not empty_rows:
            break
    return empty_rows


def group_by_row(
    lengths: NDArray[np.int32], seq_len: int, document_rows: NDArray[np.uint32], row_count: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Group the draws that have a remainder by their rows in `document_rows`.

    Returns:
        Two arrays, `starts` and `draws`. `draws` has the draws, row after row. `starts`, shape (rows + 1,), has the
        position in `draws` of each row's first draw, then the length of `draws`.
    """
    draws = _order_documents(lengths, seq_len, lambda chunk, _: document_rows[chunk])
    starts = np.zeros(row_count + 1, np.uint32)
    for chunk in chunk_slices(len(draws)):
        np.add.at(starts, document_rows[draws[chunk]] + 1, 1)  # draws of row r, at r + 1
    return np.cumsum(starts, out=starts), draws


def _build_segments(
    first_row: int,
    rows: NDArray[np.int64],
    whole_row_draws: NDArray[np.uint32],
    starts: NDArray[np.uint32],
    draws: NDArray[np.uint32],
    lengths: NDArray[np.int32],
    seq_len: int,
) -> Segments:
    """Build the segments of consecutive rows, starting at the set's row `first_row`.

    `rows` has the numbers of these rows before the shuffle. Row n is filled by one draw, number
    `whole_row_draws[n]`, if n < `len(whole_row_draws)`. The draws of any later row n begin in `draws` at
    `starts[n - len(whole_row_draws)]`. `starts` and `draws` are the results of `group_by_row`.
    """
    is_whole = rows < len(whole_row_draws)
    shared = rows[~is_whole] - len(whole_row_draws)
    begins, counts = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    begins[~is_whole] = starts[shared]
    counts[~is_whole] = starts[shared + 1] - starts[shared]
    # Index of each segment's row in `rows`, and of its draw in `draws`. Segment k of a row is draw `begins + k`. The
    # row's segments start at cumsum - count, so k is the segment's number minus this start.
    row = np.repeat(np.arange(len(rows)), counts)
    draw_positions = np.arange(len(row)) + (begins - np.cumsum(counts) + counts)[row]
    fills_row, filling = is_whole[row], whole_row_draws[rows[is_whole]]
    ranks = np.empty(len(row), np.int64)
    ranks[fills_row], ranks[~fills_row] = filling, draws[draw_positions[~fills_row]]
    pieces = np.where(fills_row, seq_len, lengths[ranks] % seq_len).astype(np.int32)
    # A remainder is at the end of its document. The whole rows of a document are consecutive in `whole_row_draws`, so
    # a row's distance from the first of them counts the pieces before it.
    starts_in_document = lengths[ranks] - pieces
    starts_in_document[fills_row] = (rows[is_whole] - np.searchsorted(whole_row_draws, filling)) * seq_len
    return Segments(first_row + row, ranks, starts_in_document, pieces)


def sequential_rows(lengths: NDArray[np.int32], seq_len: int) -> Iterator[Segments]:
    """Pack draws one after the other; `lengths` must sum to a multiple of `seq_len`.

    `lengths` has each draw's token count, in packed order. Segments are yielded in blocks, which may end within a row.
    """
    offset = 0  # tokens of earlier chunks
    for chunk in chunk_slices(len(lengths)):
        # Begin and end of each draw in the stream of all tokens, and the number of rows that it touches.
        ends = offset + np.cumsum(lengths[chunk], dtype=np.int64)
        begins = np.concatenate(([offset], ends[:-1]))
        pieces = (ends - 1) // seq_len - begins // seq_len + 1
        # Draw of each piece, and the piece's number in its draw, whose pieces begin at cumsum - pieces.
        draws = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.arange(len(draws)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        # Piece k is the intersection of its draw with row k after the draw's first row.
        rows = begins[draws] // seq_len + piece
        starts = np.maximum(begins[draws], rows * seq_len)
        stops = np.minimum(ends[draws], (rows + 1) * seq_len)
        starts_in_document = (starts - begins[draws]).astype(np.int32)
        yield Segments(rows, chunk.start + draws, starts_in_document, (stops - starts).astype(np.int32))
        offset = int(ends[-1])
