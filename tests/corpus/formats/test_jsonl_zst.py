"""`.jsonl.zst` files: lines are read back complete, or the reader fails."""

import hashlib
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.formats.compression import align_to_lines
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks, write_rows
from pipeline_assets.spine.errors import InputError

LINES = b"".join(b'{"doc_id": %d, "text": "word %d"}\n' % (row, row * 7919) for row in range(12))
lines_lists = st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"") + b"\n"), max_size=30)
reuse_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard.jsonl.zst"


def write(path: Path, *pieces: bytes, level: int = 3) -> JsonlZstWriter:
    with JsonlZstWriter(path, level) as writer:
        for piece in pieces:
            writer.write_lines(piece, piece.count(b"\n"))
    return writer


def read(path: Path, block_bytes: int = 1 << 20) -> bytes:
    return b"".join(read_line_blocks(path, block_bytes))


def incompressible_lines(rows: int, length: int) -> bytes:
    return b"".join(random.Random(row).randbytes(length).hex().encode() + b"\n" for row in range(rows))


def test_output_describes_storage_and_content(path: Path) -> None:
    writer = write(path, b"one\ntwo\n", b"three\n")

    output = writer.output("shards/shard.jsonl.zst")

    assert (output.path, output.rows) == ("shards/shard.jsonl.zst", 3)
    assert output.content_sha256 == hashlib.sha256(b"one\ntwo\nthree\n").hexdigest()
    assert output.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert output.bytes == path.stat().st_size
    assert writer.content_bytes == 14


def test_rows_are_written_as_one_json_object_a_line(path: Path) -> None:
    output = write_rows(path, "rows.jsonl.zst", [{"b": 1, "a": "é\n"}, {}], zstd_level=3)

    assert read(path) == '{"b":1,"a":"é\\n"}\n{}\n'.encode()
    assert output.rows == 2


def test_another_level_changes_the_file_but_not_its_content(path: Path) -> None:
    lines = LINES * 200

    outputs = [write(path.with_name(f"{level}"), lines, level=level).output("x") for level in (1, 3, 19)]

    assert len({output.content_sha256 for output in outputs}) == 1
    assert len({output.sha256 for output in outputs}) == 3


def test_lines_in_other_pieces_give_an_equal_file(path: Path) -> None:
    whole = write(path, LINES).output("x")
    in_pieces = write(path.with_name("other"), *LINES.splitlines(keepends=True)).output("x")

    assert in_pieces == whole


@reuse_folder
@given(lines=lines_lists, cuts=st.lists(st.integers(0, 30), max_size=4), block_bytes=st.integers(1, 200))
@example(lines=[], cuts=[], block_bytes=1)
def test_lines_are_read_back_as_written(path: Path, lines: list[bytes], cuts: list[int], block_bytes: int) -> None:
    bounds = [0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]
    pieces = [b"".join(lines[start:stop]) for start, stop in pairwise(bounds)]

    write(path, *pieces)
    blocks = list(read_line_blocks(path, block_bytes))

    assert b"".join(blocks) == b"".join(lines)
    assert all(block.endswith(b"\n") for block in blocks)


@pytest.mark.parametrize("size", [0, 1, 1 << 18, (1 << 18) + 1, 1 << 19, 700_000])
def test_truncated_large_file_is_refused(path: Path, size: int) -> None:
    write(path, incompressible_lines(rows=1500, length=700))
    os.truncate(path, size)

    with pytest.raises(InputError, match="the zstd stream is truncated"):
        read(path)


def test_damage_is_explained(path: Path) -> None:
    path.write_bytes(b"this was never compressed")

    message = refusal(lambda: read(path))

    assert message.startswith(f"{path}: the zstd stream is damaged (ZSTD decompress")
    assert message.endswith("; restore the file or rebuild the artifact")


def test_an_error_while_writing_leaves_no_file(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), JsonlZstWriter(path, 3) as writer:
        writer.write_lines(LINES, 12)
        _ = 1 / 0

    assert list(path.parent.iterdir()) == []


@given(
    blocks=st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\0", b"\n"))), block_bytes=st.integers(0, 40)
)
def test_blocks_end_with_a_line_and_have_the_requested_size(blocks: list[bytes], block_bytes: int) -> None:
    cut = list(align_to_lines(blocks, "here", block_bytes=block_bytes))

    assert b"".join(cut) == b"".join(blocks)
    assert all(block.endswith(b"\n") and len(block) >= block_bytes for block in cut[:-1])


def test_blocks_are_no_larger_than_necessary() -> None:
    cut = list(align_to_lines([b"one\ntw", b"o\nthr", b"ee\nfour\n", b"fi", b"ve"], "here", block_bytes=6))

    assert cut == [b"one\ntwo\n", b"three\nfour\n", b"five"]
