"""Blocks of bytes are cut anew, at the ends of lines: nothing is lost, and no block is smaller than asked for but the
last.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.formats.jsonl_zst import count_lines, whole_lines


@given(
    blocks=st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\0", b"\n"))), block_bytes=st.integers(0, 40)
)
def test_blocks_end_with_a_line_and_have_the_size_that_was_asked_for(blocks: list[bytes], block_bytes: int) -> None:
    cut = list(whole_lines(blocks, "here", block_bytes=block_bytes))

    assert b"".join(cut) == b"".join(blocks)
    assert all(block.endswith(b"\n") and len(block) >= block_bytes for block in cut[:-1])


def test_blocks_are_no_larger_than_it_takes() -> None:
    cut = list(whole_lines([b"one\ntw", b"o\nthr", b"ee\nfour\n", b"fi", b"ve"], "here", block_bytes=6))

    assert cut == [b"one\ntwo\n", b"three\nfour\n", b"five"]


@pytest.mark.parametrize(
    "block", [b"", b"\n", b"one\n\ntwo", b"\n" * 70_000, b"x" * (1 << 16) + b"\n" + b"y" * (1 << 16)]
)
def test_lines_are_counted_as_their_newlines(block: bytes) -> None:
    assert count_lines(block) == block.count(b"\n")
