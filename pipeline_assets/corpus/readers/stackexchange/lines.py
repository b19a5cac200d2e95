"""Pieces of bytes as lines, one behind the other, compiled."""

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.readers.stackexchange.arrays import Bytes, Integers

_NEWLINE = 10


@compiled
def copy_lines(data: Bytes, starts: Integers, stops: Integers, out: Bytes, at: int) -> None:
    """
    Args:
        data: uint8, not writeable, in which the pieces lie.
        starts, stops: where.
        out: is filled from `at` on: each piece and a line break.
    """
    for line in range(len(starts)):
        piece = data[starts[line] : stops[line]]
        copy = out[at : at + len(piece)]
        for offset in range(len(piece)):  # by slices that start at 0 many bytes are copied at once
            copy[offset] = piece[offset]
        at += len(piece)
        out[at] = _NEWLINE
        at += 1
