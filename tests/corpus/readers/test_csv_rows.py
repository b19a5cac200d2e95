"""CSV and TSV files: headers, quotes, line breaks, faults and compression."""

import bz2
import csv
import gzip
import io
import lzma
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.normalize.files import read_piece
from pipeline_assets.corpus.readers.csv_rows import read_csv
from pipeline_assets.corpus.readers.local import LocalRecipe, plan_local
from pipeline_assets.corpus.readers.row_positions import format_row_position, locate_line
from pipeline_assets.corpus.readers.source_folder import SourceFile

Source = Callable[..., SourceFile]
RECIPE = LocalRecipe.model_validate({"source": "table", "domain": "web", "license_tag": "cc0-1.0"})
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def read_rows(file: SourceFile, recipe: LocalRecipe = RECIPE) -> list[object]:
    """Return the texts of Documents, and row, reason and detail of rejects."""
    rows = (row for piece in plan_local([file], recipe, 10) for row in read_piece(piece, recipe))
    return [row.text if isinstance(row, Document) else (row.row, row.reason, row.detail) for row in rows]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_the_first_row_names_the_columns_of_a_document(source: Source, suffix: str) -> None:
    content = b'id,text,license,n\r\nr-1,"One, ""two""\r\nthree.",MIT,5\r\n\r\nr-2,Four.,,6'
    file = source(COMPRESS[suffix](content), f"a.csv{suffix}")

    first, second = (row for piece in plan_local([file], RECIPE, 10) for row in read_piece(piece, RECIPE))

    assert isinstance(first, Document) and isinstance(second, Document)
    assert (first.text, first.doc_id, first.license_tag) == ('One, "two"\r\nthree.', "r-1", "mit")
    assert first.meta.columns() == {"license": "MIT", "n": "5", "source_file": file.name} | {
        "source_row": 19,
        "license_evidence": "row: license",
    }
    assert (second.text, second.doc_id, second.license_tag, second.meta.source_row) == ("Four.", "r-2", "cc0-1.0", 55)


def test_a_bad_row_is_a_reject_and_the_next_line_starts_a_row(source: Source) -> None:
    content = (
        b'text,n\n"an open quote,1\nOne 5" pipe.,2\n"Two\nlines.",3\none field\nthree,fie,lds\n\xff,4\n \n,5\n'
        b'a\rb,1\n"c\rd",2\n"ends open'
    )

    assert read_rows(source(content, "a.csv")) == [
        (7, "not_csv", "unexpected end of data"),
        'One 5" pipe.',
        "Two\nlines.",
        (54, "wrong_columns", "fields: 1, columns: 2"),
        (64, "wrong_columns", "fields: 3, columns: 2"),
        (78, "invalid_utf8", "invalid start byte at byte 0"),
        (84, "empty_text", ""),
        (87, "not_csv", "a carriage return within an unquoted field"),
        "c\rd",
        (101, "not_csv", "unexpected end of data"),
    ]


def test_a_row_too_long_by_a_lost_quote_costs_one_line(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_assets.corpus.readers.csv_rows._MAX_ROW_BYTES", 1 << 18)
    rows = [f"text {number}" for number in range(60_000)]

    rows_read = read_rows(source("text\n" + '"lost\n' + "\n".join(rows), "a.csv"))

    assert rows_read == [(5, "not_csv", "unexpected end of data"), *rows]


def test_a_table_of_300_000_columns_is_read_in_linear_time(source: Source) -> None:
    columns = [f"c{number}" for number in range(300_000)]  # otherwise 20 minutes

    assert read_rows(source(f"text,{','.join(columns)}\na{',1' * len(columns)}\n", "a.csv")) == ["a"]


def test_quotes_in_tab_separated_fields_are_text(source: Source) -> None:
    content = 'text\tid\n"Hello" he said\ta\n"open\tb\n"with\ttab"\tc\n'

    assert read_rows(source(content, "a.tsv")) == ['"Hello" he said', '"open', "with\ttab"]


_TABS = b"text\twords, by number, or none\nOne, two.\t2\n"


def marked(mark: str) -> str:
    return f"\ufeffid{mark}text{mark}\nx{mark}a text{mark}z\n"


@pytest.mark.parametrize(
    ("name", "content", "row"),
    [
        *(("a.csv", marked(mark), {"id": "x", "text": "a text", "column_3": "z"}) for mark in ",;\t|"),
        ("a.csv", 'text,"notes; in words; or none"\na; b,c\n', {"text": "a; b", "notes; in words; or none": "c"}),
        ("a.tsv", _TABS, {"text": "One, two.", "words, by number, or none": "2"}),
        ("a.TSV.gz", gzip.compress(_TABS, mtime=0), {"text": "One, two.", "words, by number, or none": "2"}),
    ],
)
def test_the_delimiter_is_the_most_frequent_one_in_the_header(
    source: Source, name: str, content: str | bytes, row: dict[str, str]
) -> None:
    names, rows = read_csv(source(content, name))

    assert names == list(row)
    assert [rows_read for _, _, rows_read in rows] == [row]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,text\n", "two columns have the name `text`; write a first line with a unique name for each"),
        (b'"text\n', "the header cannot be read (not_csv: unexpected end of data); write a first"),
        (b"text,n\ra,1\r", "the header cannot be read (not_csv: a carriage return within an unquoted"),
        (b"body,n\n", "column `text` not found; the columns are body, n; set `columns.text` in the"),
        (b"sep=;\nid;text\n", "the first line `sep=;` names the delimiter, not the columns; remove this line"),
        (b'\xef\xbb\xbf"sep=,"\r\nid,text\r\n', 'the first line `"sep=,"` names the delimiter, not'),
        ("text\n".encode("utf-16"), "the file is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_a_header_without_column_names_stops_the_plan(source: Source, content: bytes, message: str) -> None:
    file = source(content, "a.csv")

    assert refusal(lambda: plan_local([file], RECIPE, 10)).startswith(f"{file.path}: {message}")


def test_a_field_may_be_long(source: Source) -> None:
    text = "A line.\n" * 30_000

    assert read_rows(source(f'text\n"{text}"\n', "a.csv")) == [text]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"text\n"])
def test_a_file_without_rows_gives_none(source: Source, content: bytes) -> None:
    assert read_rows(source(content, "a.csv")) == []


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_line_of_delimiters_is_a_row_of_empty_fields(source: Source, name: str, mark: str) -> None:
    _, rows = read_csv(source(f"id{mark}text\n{mark}\r\n \n\n1{mark}One.\n", name))

    assert [row for _, _, row in rows] == [{"id": "", "text": ""}, {"id": "1", "text": "One."}]


def test_a_row_is_located_by_its_first_line(source: Source) -> None:
    file = source('text\n"One\ntwo"\nThree.\n', "a.csv")

    assert [position for position, _, _ in read_csv(file)[1]] == [locate_line(file, 2), locate_line(file, 4)] == [5, 15]
    assert format_row_position("a.csv", 15, file) == "line 4 (byte 15)"


def test_a_line_within_a_row_leads_to_the_row_and_a_blank_line_to_none(source: Source) -> None:
    file = source('text\r\n"One\n\ntwo"\r\n\r\nThree.\n\n', "a.csv")

    assert [locate_line(file, line) for line in (2, 3, 4)] == [6, 6, 6]
    assert [locate_line(file, line) for line in (5, 6, 7)] == [18, 20, 27]


fields = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(fields.filter(str.strip), fields), max_size=8), delimiter=st.sampled_from(",;\t|"))
def test_rows_of_the_csv_module_are_read_back(source: Source, rows: list[tuple[str, str]], delimiter: str) -> None:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "other"), *rows])
    content = sink.getvalue().encode()

    rows_read = [*read_csv(source(content, "a.csv"))[1]]

    assert [(row["text"], row["other"]) for _, _, row in rows_read if isinstance(row, dict)] == rows
    assert b"".join(record for _, record, _ in rows_read) == content.split(b"\r\n", 1)[1]
    assert all(content[position:].startswith(record) for position, record, _ in rows_read)
