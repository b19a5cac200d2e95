"""Text files: whole, by paragraph or by line, equal for any byte ranges."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.readers import local
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.local import paragraphs, text_lines, whole_text
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, split_byte_ranges

Source = Callable[..., SourceFile]


def test_a_whole_file_is_one_unchanged_text(source: Source) -> None:
    assert list(whole_text(ByteRange(source("  Ünder\r\n\n\nlines \n")))) == [(0, "  Ünder\r\n\n\nlines \n")]
    assert list(whole_text(ByteRange(source(b"")))) == [(0, "")]
    assert list(whole_text(ByteRange(source(b"\xef\xbb\xbfmarked")))) == [(0, "marked")]


def test_a_paragraph_is_a_run_of_nonblank_lines(source: Source) -> None:
    file = source("\n\nOne,\n  still one.\n \t\r\nTwo.\r\nStill two.\r\n\n\nThree")

    assert list(paragraphs(ByteRange(file))) == [(2, "One,\n  still one."), (24, "Two.\r\nStill two."), (44, "Three")]


@given(
    content=st.lists(st.sampled_from(["word", "é", " ", "\n", "\n\n", "\r\n", "\ufeff"]), max_size=30).map("".join),
    range_bytes=st.integers(4, 30),
)
def test_ranges_change_no_paragraphs(tmp_path_factory: pytest.TempPathFactory, content: str, range_bytes: int) -> None:
    path = tmp_path_factory.getbasetemp() / "paragraphs"
    path.write_bytes(content.encode())
    file = SourceFile(path, "paragraphs", path.stat().st_size)
    blocks = re.split(r"(?m)^[ \r]*(?:\n|\Z)", content.removeprefix("\ufeff"))
    expected = [block.rstrip("\r\n") for block in blocks if block.strip(" \r\n")]

    items = [item for piece in split_byte_ranges(file, range_bytes) for item in paragraphs(piece)]

    assert [text for _, text in items] == expected
    assert items == list(paragraphs(ByteRange(file)))


def test_each_nonblank_line_is_a_text(source: Source) -> None:
    file = source("\ufeffOne.\n\n \t\r\n  Two, ünder.\r\nThree\u2028still three")

    assert list(text_lines(ByteRange(file))) == [(3, "One."), (13, "  Two, ünder."), (29, "Three\u2028still three")]
    assert list(text_lines(ByteRange(source(b"a\ncaf\xe9\nb\n"))))[1] == (
        2,
        Fault("invalid_utf8", "unexpected end of data at byte 3"),
    )


@given(
    content=st.lists(st.sampled_from(["word", "é", " ", "\n", "\r\n", "\ufeff"]), max_size=30).map("".join),
    range_bytes=st.integers(4, 30),
)
def test_ranges_change_no_lines(tmp_path_factory: pytest.TempPathFactory, content: str, range_bytes: int) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(content.encode())
    file = SourceFile(path, "lines", path.stat().st_size)

    texts = [item for piece in split_byte_ranges(file, range_bytes) for item in text_lines(piece)]

    rows = [row.rstrip("\r") for row in content.removeprefix("\ufeff").split("\n")]
    assert [text for _, text in texts] == [row for row in rows if row.strip(" ")]
    assert texts == list(text_lines(ByteRange(file)))


def test_a_paragraph_that_is_not_utf8_is_a_fault(source: Source) -> None:
    file = source(b"one\n\ncaf\xe9\n\nthree\n")

    assert list(paragraphs(ByteRange(file))) == [
        (0, "one"),
        (5, Fault("invalid_utf8", "unexpected end of data at byte 3")),
        (11, "three"),
    ]
    assert list(whole_text(ByteRange(file))) == [(0, Fault("invalid_utf8", "invalid continuation byte at byte 8"))]


@pytest.mark.parametrize("read", [whole_text, paragraphs])
def test_a_text_above_the_size_limit_is_refused(
    source: Source, monkeypatch: pytest.MonkeyPatch, read: Callable[[ByteRange], object]
) -> None:
    monkeypatch.setattr(local, "MAX_LINE_BYTES", 1 << 20)
    file = source(b"a line of text\n" * 100_000)

    assert refusal(lambda: list(read(ByteRange(file)))) == (  # type: ignore[call-overload]
        f"{file.path}: the text at byte 0 is longer than 1 MiB; "
        "set `text_unit` to `paragraph` or `line`, or split the file at blank lines"
    )
