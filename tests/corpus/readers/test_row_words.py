"""Positions of rows for people: line and byte, row number or byte."""

import datetime
import gzip
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.build.rows.source_record import read_record
from pipeline_assets.build.rows.source_row import LocalRow
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.row_positions import format_row_position, line_number, locate_line, source_file_at
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import UsageError

Source = Callable[..., SourceFile]
TEXT = b"\xef\xbb\xbf{}\r\n\n" + b"x" * 3_000_000 + b"\nlast"


@pytest.mark.parametrize(("position", "line"), [(3, 1), (7, 2), (8, 3), (len(TEXT) - 4, 4)])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_lines_count_from_1_also_within_compressed_files(
    source: Source, position: int, line: int, is_compressed: bool
) -> None:
    file = source(zstandard.compress(TEXT) if is_compressed else TEXT, "notes.jsonl")

    assert format_row_position("notes.jsonl", position, file) == f"line {line:,} (byte {position:,})"


def test_a_row_without_lines_has_its_number_and_a_missing_file_its_byte(source: Source) -> None:
    assert format_row_position("a/part.parquet", 1234, None) == "row 1,234"
    assert format_row_position("Posts.xml", 12, None) == format_row_position("site.7z", 12, None) == "row 12"
    assert format_row_position("AA/wiki_00.bz2", 3456, None) == "byte 3,456"
    assert format_row_position("a.txt", 0, source(b"", "a.txt")) == "line 1 (byte 0)"
    with pytest.raises(UsageError, match="this format has numbered rows, not lines"):
        locate_line(source(b"PAR1", "a.parquet"), 1)


def test_changed_and_sparse_files_have_no_line_numbers(source: Source, tmp_path: Path) -> None:
    changed = source(b"one\ntwo\n", "a.jsonl")
    changed.path.write_bytes(b"one\n")
    with open(tmp_path / "sample.jsonl", "wb") as sparse:
        sparse.truncate(1 << 24)

    assert format_row_position("a.jsonl", 4, changed) == "byte 4"
    assert format_row_position("sample.jsonl", 1 << 23, source_file_at(tmp_path / "sample.jsonl")) == "byte 8,388,608"
    assert source_file_at(tmp_path / "gone.jsonl") is None


@pytest.mark.parametrize("is_compressed", [False, True])
@given(lines=st.lists(st.text("ab ", max_size=9), min_size=1), ends=st.booleans())
def test_line_numbers_and_positions_are_inverse(
    is_compressed: bool, lines: list[str], ends: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / ("notes.txt.gz" if is_compressed else "notes.txt")
    text = ("\n".join(lines) + ("\n" if ends else "end")).encode()
    path.write_bytes(gzip.compress(text) if is_compressed else text)
    file = SourceFile(path, path.name, path.stat().st_size)
    starts = list(itertools.accumulate((len(line) + 1 for line in lines[:-1]), initial=0))

    assert [locate_line(file, number + 1) for number in range(len(lines))] == starts
    assert [line_number(file, position) for position in starts] == list(range(1, len(lines) + 1))
    counted = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    with pytest.raises(UsageError, match=f"line {len(lines) + 1} not found; the file has {counted};"):
        locate_line(file, len(lines) + 1)


def test_the_first_line_after_a_byte_order_mark_starts_at_byte_3(source: Source) -> None:
    file = source(b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n', "a.jsonl")

    assert [locate_line(file, number) for number in (1, 2)] == [3, 17]
    assert read_record(LocalRow(file.path, 3), HubFiles(file.path.parent)) == b'{"text": "a"}'
    assert read_record(LocalRow(file.path, 17), HubFiles(file.path.parent)) == b'{"text": "b"}'


def test_a_record_of_parquet_is_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    day = datetime.datetime(2024, 1, 2, 3, 4, 5)
    row = {"score": math.nan, "raw": b"\xff\x00", "text": "é".encode(), "when": day, "nested": {"a": [-math.inf, 1.0]}}
    pq.write_table(pa.Table.from_pylist([row]), path)

    record = read_record(LocalRow(path, 0), HubFiles(tmp_path))

    values = '"score": null, "raw": "/wA=", "text": "é", "when": "2024-01-02T03:04:05", "nested": {"a": [null, 1.0]}'
    assert record.decode() == f"{{{values}}}"


def test_a_record_is_found_in_a_compressed_file_without_its_suffix(source: Source) -> None:
    file = source(gzip.compress(b'{"text": "a"}\n{"text": "b"}\n'), "a.jsonl")

    assert read_record(LocalRow(file.path, 14), HubFiles(file.path.parent)) == b'{"text": "b"}'
