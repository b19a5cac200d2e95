"""Best-fit packing: pieces of documents into rows, so that none is cut that fits in one.

Ding et al., "Fewer Truncations Improve Language Modeling" (arXiv 2404.10830), section 3: pieces are placed by length,
the longest first, each into the row with the least room that still holds it, else into a new one. Here: of pieces of
one length the first in order comes first; of rows with the same room the one that was filled last takes it.

A tree over the rooms that there are finds the least one, in O(log seq_len) a piece.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner

_NONE = np.int64(-1)


@compiled
def rows_needed(pieces: NDArray[np.int64], seq_len: int) -> int:
    """How many rows pieces take, by their lengths alone: much faster than to place them one by one.

    A row that takes one piece of a length has the least room for the next one of that length too, while it has room:
    so pieces of one length are placed into rows of one room all together.

    Args:
        pieces: how many there are of each length, shape (seq_len + 1,).
    """
    rows = np.zeros(seq_len + 1, np.int64)  # by room
    tree = _no_rooms(seq_len)
    opened = 0
    for length in range(seq_len, 0, -1):
        left = pieces[length]
        while left:
            room = _least_room(tree, length)
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
def place(lengths: NDArray[np.int32], seq_len: int, max_rows: int) -> tuple[NDArray[np.uint32], int]:
    """The row of what is left of each document beyond whole rows, and how many rows are opened, in which order they
    are numbered.

    Args:
        lengths: of the documents, shape (documents,). Of a multiple of `seq_len` nothing is left, its row is no row.
        max_rows: at least so many as `rows_needed` says.
    """
    row_of = np.empty(len(lengths), np.uint32)
    below = np.empty(max_rows, np.uint32)  # under each row in the stack of those with its room
    top = np.full(seq_len + 1, _NONE, np.int64)
    tree = _no_rooms(seq_len)
    opened = 0
    for document in longest_first(lengths, seq_len):
        length = lengths[document] % seq_len
        if not length:
            break
        room = _least_room(tree, length)
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


@compiled
def longest_first(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.uint32]:
    """Documents in the order in which `place` takes them: by what is left of them beyond whole rows."""
    starts = np.zeros(seq_len + 1, np.int64)
    for length in lengths:
        starts[seq_len - length % seq_len] += 1
    starts = np.cumsum(starts) - starts
    documents = np.empty(len(lengths), np.uint32)
    for document in range(len(lengths)):
        place = seq_len - lengths[document] % seq_len
        documents[starts[place]] = document
        starts[place] += 1
    return documents


@compiled
def count_pieces(lengths: NDArray[np.int32], seq_len: int) -> NDArray[np.int64]:
    """How many pieces of each length documents give, shape (seq_len + 1,): whole rows, and what is left of each."""
    pieces = np.zeros(seq_len + 1, np.int64)
    for length in lengths:
        if length < seq_len:  # most are: a division takes longer than all else
            pieces[length] += 1
        else:
            pieces[seq_len] += length // seq_len
            pieces[length % seq_len] += 1
    pieces[0] = 0
    return pieces


@compiled
def _no_rooms(seq_len: int) -> NDArray[np.bool_]:
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
def _least_room(tree: NDArray[np.bool_], at_least: int) -> int:
    """The least room that there is from `at_least` on; -1 where there is none."""
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
