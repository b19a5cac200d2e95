"""Pages in the files of wikiextractor: their bounds, faults and refused files."""

import bz2
import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.source_folder import SourceFile, split_byte_ranges
from pipeline_assets.corpus.readers.wikipedia_pages import Page, count_pages, read_pages

Source = Callable[..., SourceFile]
URL = "https://en.wikipedia.org/wiki?curid="


def doc(number: int, text: str = "Text.", title: str = "Title") -> str:
    return f'<doc id="{number}" url="{URL}{number}" title="{title}">\n{title}\n\n{text}\n\n</doc>\n'


def line(number: int, text: str = "Text.", **changes: object) -> str:
    page = {"id": str(number), "revid": "9", "url": f"{URL}{number}", "title": "Title", "text": text}
    return json.dumps(page | changes) + "\n"


def read_all(file: SourceFile, range_bytes: int = 1 << 30) -> list[tuple[int, Page | Fault]]:
    return [page for piece in split_byte_ranges(file, range_bytes) for page in read_pages(piece)]


def list_ids(file: SourceFile) -> list[str]:
    return [page.id if isinstance(page, Page) else page.reason for _, page in read_all(file)]


def read_error(file: SourceFile) -> str:
    message = refusal(lambda: read_all(file))
    assert "\n" not in message
    return message.removeprefix(str(file.path)).lstrip(": ")


def test_a_page_is_everything_between_its_header_and_its_end_or_a_line_of_json(source: Source) -> None:
    docs, lines = source(doc(12, "One.\nTwo.") + doc(25), "doc"), source(line(12) + "\n" + line(25, extra={"a": [1]}))

    assert read_all(docs) == [
        (0, Page("12", None, f"{URL}12", "Title", "Title\n\nOne.\nTwo.\n\n", {})),
        (len(doc(12, "One.\nTwo.")), Page("25", None, f"{URL}25", "Title", "Title\n\nText.\n\n", {})),
    ]
    assert read_all(lines) == [
        (0, Page("12", "9", f"{URL}12", "Title", "Text.", {})),
        (len(line(12)) + 1, Page("25", "9", f"{URL}25", "Title", "Text.", {"extra": {"a": [1]}})),
    ]


@pytest.mark.parametrize(
    ("header", "title", "revid"),
    [
        ('<doc id="1" revid="77" url="u" title="T">', "T", "77"),
        ('<doc id="1" url="u" title="T" language="en" revision="78">', "T", "78"),
        ('<doc id="1" url="u" title="&quot;Hello&quot; &amp; bye">', "&quot;Hello&quot; &amp; bye", None),
        ('<doc id="1" url="u" title=""Hello, World!" program">', '"Hello, World!" program', None),
        ('<doc id="1" url="u" title="a "> b">', 'a "> b', None),
    ],
    ids=["revid of 2.x", "cirrus-extract", "escaped title", "quotes in a title", "a title like an end"],
)
def test_headers_of_every_version_are_read(source: Source, header: str, title: str, revid: str | None) -> None:
    ((_, page),) = read_all(source(f"{header}\nT\n\nText.\n</doc>\n"))

    assert isinstance(page, Page)
    assert (page.title, page.revid) == (title, revid)


def test_windows_line_ends_belong_to_the_format_not_the_text(source: Source) -> None:
    windows = source((doc(1, "One.\nTwo.") + doc(2)).replace("\n", "\r\n"), "windows")
    linux = source(doc(1, "One.\nTwo.") + doc(2), "linux")

    assert [page for _, page in read_all(windows)] == [page for _, page in read_all(linux)]


@pytest.mark.parametrize(
    "text",
    ['see <doc id="1">', '<doc id="5">', "<doc>\nx", '<doc id="5" title="x">', "a </doc> b", "</doc>x", "<document"],
)
def test_text_that_resembles_a_tag_is_text(source: Source, text: str) -> None:
    for content in (text, f"before\n{text}", f"{text}\nafter"):
        ((_, page), (_, after)) = read_all(source(doc(1, content) + doc(2)))

        assert isinstance(page, Page) and isinstance(after, Page)
        assert page.text == f"Title\n\n{content}\n\n"


def test_a_page_with_an_early_end_line_is_rejected_and_the_next_is_read(source: Source) -> None:
    joined = doc(1) + "the rest of a page whose beginning was lost\n\n</doc>\n" + doc(2)

    assert list_ids(source(joined)) == ["unclear_end", "2"]
    assert list_ids(source(doc(1) + "lost\n" + doc(2))) == ["unclear_end", "2"]
    assert list_ids(source(doc(1) + "\n \n" + doc(2))) == ["1", "2"]


def test_a_page_that_is_not_utf8_is_rejected_and_the_next_is_read(source: Source) -> None:
    file = source(doc(1, "caf\udce9").encode("utf-8", "surrogateescape") + doc(2).encode())

    assert next(page for _, page in read_all(file)) == Fault("invalid_utf8", "invalid continuation byte at byte 10")
    assert list_ids(file) == ["invalid_utf8", "2"]


@pytest.mark.parametrize(("page", "message"), [(doc, ""), (line, "is truncated")])
def test_a_file_cut_at_any_byte_is_refused_or_complete(source: Source, page: Callable[..., str], message: str) -> None:
    first, whole = len(page(1)), (page(1) + page(2, "Tëxt.")).encode()
    ends = {first: ["1"], first - 1: ["1"], len(whole): ["1", "2"], len(whole) - 1: ["1", "2"]}

    for length in range(1, len(whole) + 1):
        file = source(whole[:length])
        if length in ends:
            assert list_ids(file) == ends[length]
        else:
            assert message in read_error(file)


CUT_PAGE = '<doc id="2" url="u" title="T">\nT\n\ncut'
NO_HEADER = "is not a header of wikiextractor; "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty, as after a killed extraction; extract again"),
        ("\n\n", "the file is empty, "),
        ("[" + line(1) + "]", "the file is a JSON array, not JSON lines; write one line per element: jq -c '.[]' FILE"),
        ('<mediawiki xml:lang="en">\n', "the file is a dump, not an extraction; run wikiextractor on it, and read its"),
        ("Anarchism\n\nAnarchism is", "the first line, 'Anarchism', is neither <doc id=…> nor JSON; pass output of"),
        ('{"text": "a"}\n', "keys not found in the first line: id, url, title; it has text; pass JSON lines of "),
        ('<doc id="1" title="T">\nT\n', f'the first line, \'<doc id="1" title="T">\', {NO_HEADER}'),
        (f"  {CUT_PAGE}", f'the first line, \'<doc id="2" url="u" title="T">\', {NO_HEADER}'),
        (doc(1) + CUT_PAGE, f"line 7 (byte {len(doc(1))}): the page is not closed: the file is trunc"),
        (
            f"{CUT_PAGE}\n{doc(3)}",
            "line 1 (byte 0): the page is not closed before the next; extract again, or omit the file in `files`",
        ),
    ],
    ids=["empty", "blank", "array", "dump", "text", "other json", "other doc", "indented", "cut", "joined"],
)
def test_an_invalid_extraction_is_refused_in_one_line(source: Source, content: str, message: str) -> None:
    assert read_error(source(content)).startswith(message)


@pytest.mark.parametrize("name", ["AA/wiki_00", "en/AA/wiki_00", "AA/wiki_00.bz2"])
def test_only_the_first_file_of_an_extraction_may_be_empty(source: Source, name: str) -> None:
    empty = bz2.compress(b"") if name.endswith("bz2") else b""

    assert read_all(source(empty, name)) == []
    for other in (name.replace("wiki_00", "wiki_01"), name.replace("AA", "AB"), "wiki_00"):
        assert read_error(source(empty, other)).startswith("the file is empty, as after a killed extraction")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (line(2, None), Fault("no_text", "null")),  # type: ignore[arg-type]
        (line(2, 5), Fault("wrong_type", "text is int")),  # type: ignore[arg-type]
        (line(2, title=None), Fault("wrong_type", "title is NoneType")),
        (line(2, id=True), Fault("wrong_type", "id is bool")),
        ('{"id": "2"}\n', Fault("no_text", "null")),
        ("{\n", Fault("not_json", "Input data was truncated")),
        ("[1]\n", Fault("wrong_type", "the line is list")),
    ],
)
def test_a_bad_line_is_rejected_and_the_others_are_read(source: Source, row: str, fault: Fault) -> None:
    file = source(line(1) + row + line(3, id=3))

    assert [page.id if isinstance(page, Page) else page for _, page in read_all(file)] == ["1", fault, "3"]
    assert all(read_all(file, size) == read_all(file) for size in (4, 50, 100))


words = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=30)
titles = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1, max_size=8)
reuse_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@reuse_folder
@given(pages=st.lists(st.tuples(titles, words), min_size=1, max_size=6), range_bytes=st.integers(4, 200))
def test_pages_of_both_formats_are_read_back_in_any_ranges(
    source: Source, pages: list[tuple[str, str]], range_bytes: int
) -> None:
    docs = source("".join(doc(number, text, title) for number, (title, text) in enumerate(pages)), "doc")
    lines = source("".join(line(number, text, title=title) for number, (title, text) in enumerate(pages)), "json")

    from_docs, from_lines = ([page for _, page in read_all(file, range_bytes)] for file in (docs, lines))

    assert [(page.title, page.text) for page in from_lines if isinstance(page, Page)] == pages
    assert [(page.title, page.text) for page in from_docs if isinstance(page, Page)] == [
        (title, f"{title}\n\n{text}\n\n") for title, text in pages
    ]
    assert read_all(docs, range_bytes) == read_all(docs)


@pytest.mark.parametrize("range_bytes", [4, 20, 1000])
def test_a_page_is_counted_once_in_any_ranges(source: Source, range_bytes: int) -> None:
    docs = doc(1, '<doc id="5">\nsee <doc id="1" url="u" title="T">') * 5
    lines = '{"id": "1"}\n\n' * 4

    for content, count in ((docs, 5), (bz2.compress(docs.encode()), 5), (lines, 4)):
        assert sum(map(count_pages, split_byte_ranges(source(content), range_bytes))) == count
