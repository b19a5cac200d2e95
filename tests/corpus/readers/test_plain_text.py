"""Text files: whole, or by lines, which are the same in whatever ranges a file is read."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.readers import local
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.local import text_lines, whole_text
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, byte_ranges

Source = Callable[..., SourceFile]


def test_a_whole_file_is_one_text_as_it_is(source: Source) -> None:
    assert list(whole_text(ByteRange(source("  Ünder\r\n\n\nlines \n")))) == [(0, "  Ünder\r\n\n\nlines \n")]
    assert list(whole_text(ByteRange(source(b"")))) == [(0, "")]
    assert list(whole_text(ByteRange(source(b"\xef\xbb\xbfmarked")))) == [(0, "marked")]
    fault = Fault("invalid_utf8", "invalid continuation byte at byte 3")
    assert list(whole_text(ByteRange(source(b"caf\xe9\n")))) == [(0, fault)]


def test_each_line_that_is_not_blank_is_a_text(source: Source) -> None:
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
def test_lines_are_the_same_in_any_ranges(
    tmp_path_factory: pytest.TempPathFactory, content: str, range_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(content.encode())
    file = SourceFile(path, "lines", path.stat().st_size)

    texts = [item for piece in byte_ranges(file, range_bytes) for item in text_lines(piece)]

    rows = [row.rstrip("\r") for row in content.removeprefix("\ufeff").split("\n")]
    assert [text for _, text in texts] == [row for row in rows if row.strip(" ")]
    assert texts == list(text_lines(ByteRange(file)))


def test_a_text_too_large_to_be_one_is_refused(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_LINE_BYTES", 1 << 20)
    file = source(b"a line of text\n" * 100_000)

    assert refusal(lambda: list(whole_text(ByteRange(file)))) == (
        f"{file.path}: the text is longer than 1 MiB; as `text_unit` take `line`, or cut the file"
    )
