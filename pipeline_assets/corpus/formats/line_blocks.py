"""Blocks of bytes → blocks of whole lines."""

from collections.abc import Iterable, Iterator

import numpy as np

from pipeline_assets.corpus.spine.errors import InputError

_PIECE_BYTES = 1 << 16  # what is made of a piece stays in the cache


def whole_lines(
    blocks: Iterable[bytes], where: object, fix: str = "", max_line_bytes: int | None = None, block_bytes: int = 0
) -> Iterator[bytes]:
    """The same bytes in blocks of at least `block_bytes` that end at a line's end; a last line without one ends the
    last block, which may be shorter.

    Memory is that of one block, or of the longest line.

    Raises:
        InputError: a line is longer than `max_line_bytes`; None is no limit.
    """
    pending: list[bytes] = []
    pending_bytes = line_bytes = 0
    for block in blocks:
        end = block.rfind(b"\n") + 1
        line_bytes = len(block) - end if end else line_bytes + len(block)
        if end and pending_bytes + end >= block_bytes:
            yield b"".join([*pending, memoryview(block)[:end]])
            pending, pending_bytes = [], 0
            block = block[end:]
        if block:
            pending.append(block)
            pending_bytes += len(block)
        if max_line_bytes is not None and line_bytes > max_line_bytes:
            raise InputError(f"a line is longer than {max_line_bytes >> 20} MiB", where, fix)
    if pending:
        yield b"".join(pending)


def count_lines(block: bytes) -> int:
    """How many newlines a block has: as `count` tells, in a third of the time."""
    octets = np.frombuffer(block, np.uint8)
    pieces = (octets[start : start + _PIECE_BYTES] for start in range(0, len(octets), _PIECE_BYTES))
    return sum(int(np.count_nonzero(piece == ord("\n"))) for piece in pieces)
