"""Blocks of bytes → blocks of whole lines."""

from collections.abc import Iterable, Iterator

from pipeline_assets.corpus.spine.errors import InputError


def whole_lines(
    blocks: Iterable[bytes], where: object, fix: str = "", max_line_bytes: int | None = None
) -> Iterator[bytes]:
    """The same bytes in blocks that end at a line's end; a last line without one ends the last block.

    Memory is that of one block, or of the longest line.

    Raises:
        InputError: a line is longer than `max_line_bytes`; None is no limit.
    """
    rest: list[bytes] = []
    rest_bytes = 0
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, memoryview(block)[:end]])
            rest, rest_bytes = [], 0
        if end < len(block):
            rest.append(block[end:])
            rest_bytes += len(rest[-1])
        if max_line_bytes is not None and rest_bytes > max_line_bytes:
            raise InputError(f"a line is longer than {max_line_bytes >> 20} MiB", where, fix)
    if rest:
        yield b"".join(rest)
