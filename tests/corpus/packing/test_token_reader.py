"""Token ids of encoded shards are read unchanged or not at all."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from encoded_shards import write_encoded
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.packing import token_reader
from pipeline_assets.corpus.packing.token_reader import TokenReader
from pipeline_assets.spine.errors import RetryableError

DOCUMENTS = [[5, 6, 7], [8], [9, 10], [11, 12, 13, 14], [15]]
IDS = range(5, 16)


def read_blocks(folder: Path, start: int, stop: int, documents: Sequence[Sequence[int]] = DOCUMENTS) -> list[list[int]]:
    with TokenReader(write_encoded(folder, documents)) as reader:
        return [block.tolist() for block in reader.read_blocks(start, stop)]


@given(ends=st.tuples(st.integers(0, 11), st.integers(0, 11)).map(sorted).filter(lambda ends: ends[0] < ends[1]))
@pytest.mark.parametrize("block_tokens", [1, 3, 1 << 20])
def test_any_range_is_read_in_blocks_of_whole_documents(
    tmp_path_factory: pytest.TempPathFactory, block_tokens: int, ends: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_reader, "_BLOCK_TOKENS", block_tokens)
        blocks = read_blocks(tmp_path_factory.mktemp("shard"), *ends)

    assert [*itertools.chain.from_iterable(blocks)] == [*IDS[slice(*ends)]]
    assert all(len(block) <= max(block_tokens, 4) for block in blocks)


def test_a_block_has_at_most_a_million_tokens_unless_one_document_has_more(tmp_path: Path) -> None:
    half, long = [1] * (1 << 19), [2] * ((1 << 20) + 1)

    blocks = read_blocks(tmp_path, 0, 4 * len(half) + len(long), [half, half, half, long, half])

    assert [len(block) for block in blocks] == [1 << 20, 1 << 19, (1 << 20) + 1, 1 << 19]


def test_a_document_is_read_into_a_buffer(tmp_path: Path) -> None:
    target = np.zeros(6, np.int32)
    with TokenReader(write_encoded(tmp_path, DOCUMENTS)) as reader:
        reader.read_document(3, target.data.cast("B")[4:20])

    assert target.tolist() == [0, 11, 12, 13, 14, 0]


@pytest.mark.parametrize("byte", range(44))
def test_each_flipped_byte_of_a_read_document_is_reported(tmp_path: Path, byte: int) -> None:
    shard = write_encoded(tmp_path, DOCUMENTS)
    data = bytearray(shard.token_file.read_bytes())
    data[byte] ^= 0x10
    shard.token_file.write_bytes(data)
    line = "0.tokens: the token ids differ from those encoded; run the same command again"
    tokens = next(range(*ends) for ends in ((0, 3), (3, 4), (4, 6), (6, 10), (10, 11)) if byte // 4 in range(*ends))
    document = [0, 3, 4, 6, 10].index(tokens.start)

    with TokenReader(shard) as reader:
        read_document = functools.partial(reader.read_document, document, memoryview(bytearray(4 * len(tokens))))
        for read in (read_document, lambda: [*reader.read_blocks(tokens[-1], tokens[-1] + 1)]):
            with pytest.raises(RetryableError, match=line):
                read()
        other_ids = [number for number in range(11) if number not in tokens]
        assert [int(block[0]) for number in other_ids for block in reader.read_blocks(number, number + 1)] == [
            IDS[number] for number in other_ids
        ]


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    shard = write_encoded(tmp_path, DOCUMENTS)
    shard.token_file.write_bytes(shard.token_file.read_bytes()[:-1])

    with TokenReader(shard) as reader:
        for read in (lambda: reader.read_document(4, memoryview(bytearray(4))), lambda: [*reader.read_blocks(0, 11)]):
            with pytest.raises(
                RetryableError, match=r"0\.tokens: the file of token ids ends early; run the same command again"
            ):
                read()
