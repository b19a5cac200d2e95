"""The count of pages is another way to the same number."""

import bz2
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, byte_ranges, list_files
from pipeline_assets.corpus.readers.wikipedia_pages import count_pages

Source = Callable[..., SourceFile]
PAGE = '<doc id="1" url="u" title="T">\nT\n\nText.\n\n</doc>\n'


@pytest.mark.parametrize("range_bytes", [4, 20, 1000])
def test_a_page_is_counted_once_in_whatever_ranges(source: Source, range_bytes: int) -> None:
    docs = source(PAGE * 5, "doc")
    lines = source('{"id": "1"}\n\n' * 4, "json")

    assert count_pages(byte_ranges(docs, range_bytes)) == 5
    assert count_pages(byte_ranges(lines, range_bytes)) == 4


def test_compressed_files_are_counted_and_what_looks_like_a_tag_in_a_text_is_not(source: Source) -> None:
    text = PAGE.replace("Text.", '<doc id="5">\nsee <doc id="1" url="u" title="T">')

    assert count_pages([ByteRange(source(bz2.compress(text.encode() * 3)))]) == 3


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("en_doc/AA/wiki_00", 37),
        ("en_doc/AB/wiki_00", 66),
        ("en_json/AA/wiki_00", 35),
        ("en_stub/AA/wiki_00", 1530),
        ("zh_doc/AA/wiki_18", 1045),
        ("vi_json_revid/AA/wiki_00", 4),
    ],
)
def test_real_files_have_as_many_pages_as_their_provenance_says(shared_data: Path, name: str, records: int) -> None:
    (file,) = list_files(shared_data / "wikipedia", [name])

    assert count_pages([ByteRange(file)]) == records
