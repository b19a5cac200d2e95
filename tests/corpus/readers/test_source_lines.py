"""Lines and their positions are equal in whole, ranged and compressed files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.readers import lines as lines_module
from pipeline_assets.corpus.readers.lines import line_before, piece_lines
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, split_byte_ranges
from pipeline_assets.spine.errors import InputError

Source = Callable[..., SourceFile]
texts = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(st.text("ab \r\n\u00e9\ufeff", max_size=12), max_size=12)
).map(lambda parts: parts[0] + "\n".join(parts[1]).encode())


def write_file(folder: Path, content: bytes) -> SourceFile:
    path = folder / "lines"
    path.write_bytes(content)
    return SourceFile(path, "lines", len(content))


@given(content=texts, range_bytes=st.integers(1, 20))
def test_every_line_is_in_one_range(tmp_path_factory: pytest.TempPathFactory, content: bytes, range_bytes: int) -> None:
    file = write_file(tmp_path_factory.getbasetemp(), content)

    in_ranges = [line for piece in split_byte_ranges(file, range_bytes) for line in piece_lines(piece)]

    assert in_ranges == list(piece_lines(ByteRange(file)))
    assert b"".join(line for _, line in in_ranges) == content.removeprefix(b"\xef\xbb\xbf")
    assert all(content[position:].startswith(line) for position, line in in_ranges)


@given(content=texts)
def test_the_line_before_a_line_is_found(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = write_file(tmp_path_factory.getbasetemp(), content)
    lines_before = [line_before(file, position) for position, _ in piece_lines(ByteRange(file))]

    assert lines_before == [b"", *(line for _, line in piece_lines(ByteRange(file)))][: len(lines_before)]


def test_lines_longer_than_a_read_are_found_from_both_sides(source: Source) -> None:
    long = b"x" * 3_000_000 + b"\n"
    file = source(b"first\n" + long + b"last\n")

    assert [(position, len(line)) for position, line in piece_lines(ByteRange(file, 7, 3_000_008))] == [(3_000_007, 5)]
    assert line_before(file, 3_000_007) == long
    assert list(piece_lines(ByteRange(file, 7, 3_000_007))) == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_with_a_fix(source: Source, encoding: str) -> None:
    file = source("\ufeff{}\n".encode(encoding))

    message = refusal(lambda: list(piece_lines(ByteRange(file))))
    assert message == f"{file.path}: the file is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 3 << 20)

    with pytest.raises(InputError, match="a line is longer than 3 MiB; convert the file to lines of text"):
        list(piece_lines(ByteRange(source(b"x" * (5 << 20)))))
