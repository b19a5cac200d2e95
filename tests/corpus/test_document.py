"""Documents: their bytes, metadata, dates and derived ids."""

import datetime
import io
import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import json as arrow_json

from pipeline_assets.corpus.document import Document, Meta, derive_doc_id, to_iso_time
from pipeline_assets.corpus.partial_documents import DocumentText, decode_columns
from pipeline_assets.spine.errors import InputError

META = Meta.from_mapping("a.jsonl", 7, {"score": 3.5, "title": "Ä"}, "row: license")
DOCUMENT = Document("Ärger\n", "fineweb_edu", "web", "<urn:1>", "odc-by", "2019-04-21T18:54:04.000", META)
BARE = Document("Text.", "notes", "books", "1", "unknown", "", Meta("a.txt", 0))


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            DOCUMENT,
            '{"text":"Ärger\\n","source":"fineweb_edu","domain":"web","doc_id":"<urn:1>","license_tag":"odc-by",'
            '"created_at":"2019-04-21T18:54:04.000","meta":{"source_file":"a.jsonl","source_row":7,'
            '"license_evidence":"row: license","title":"Ä","url":"","language":"","extra":"{\\"score\\":3.5}"}}',
        ),
        (
            BARE,
            '{"text":"Text.","source":"notes","domain":"books","doc_id":"1","license_tag":"unknown","created_at":"",'
            '"meta":{"source_file":"a.txt","source_row":0,"license_evidence":"recipe","title":"","url":"",'
            '"language":"","extra":"{}"}}',
        ),
    ],
)
def test_a_document_is_written_with_every_field_in_order_and_read_back(document: Document, line: str) -> None:
    assert msgspec.json.encode(document).decode() == line
    assert msgspec.json.decode(line, type=Document) == document
    assert msgspec.json.decode(line, type=DocumentText) == DocumentText(
        document.doc_id, document.text, document.license_tag
    )


values = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
names = st.sampled_from(["title", "url", "language", "extra", "text"]) | st.text(max_size=5)


@given(st.dictionaries(names, values | st.text() | st.lists(st.text(), max_size=2), max_size=6))
def test_columns_are_read_back_by_name(columns: dict[str, object]) -> None:
    origin = {"source_file": "a.jsonl", "source_row": 7, "license_evidence": "row: license"}

    meta = Meta.from_mapping("a.jsonl", 7, dict(columns), "row: license")

    assert meta.columns() == columns | origin
    assert decode_columns(msgspec.json.encode(meta), "a") == columns | origin


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (b'{"source_row":7}', "Object missing required field `source_file`"),
        (b'{"source_file":"a","source_row":7,"extra":"[1]"}', "Expected `object`, got `array`"),
        (b'{"source_file":"a","source_row":7,"extra":"{"}', "Input data was truncated"),
        (b'{"source_file":"a","source_row":7,"title":null}', "Expected `str`, got `null` - at `$.title`"),
        (b'{"source_file":"\xff","source_row":7}', "'utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_a_meta_that_cannot_be_read_is_an_error_that_names_its_file(meta: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        decode_columns(meta, "00000.jsonl.zst")

    assert str(error.value).startswith(f"00000.jsonl.zst: a document's `meta` is invalid ({message}")


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2013-05-18", "2013-05-18T00:00:00.000"),
        ("2013-05-18T05", "2013-05-18T05:00:00.000"),
        ("2013-05-18 05:48", "2013-05-18T05:48:00.000"),
        ("2013-05-18t05:48:54", "2013-05-18T05:48:54.000"),
        ("2013-05-18T05:48:54Z", "2013-05-18T05:48:54.000"),
        ("2013-05-18T05:48:54.5Z", "2013-05-18T05:48:54.500"),
        ("2013-05-18T05:48:54.1239", "2013-05-18T05:48:54.123"),
        ("2013-05-18 05:48:54+00:00", "2013-05-18T05:48:54.000"),
        ("2013-05-18T01:00:00+02:30", "2013-05-17T22:30:00.000"),
        ("2013-12-31T23:00:00-0200", "2014-01-01T01:00:00.000"),
        (datetime.date(2013, 5, 18), "2013-05-18T00:00:00.000"),
        (datetime.datetime(2013, 5, 18, 5, 48, 54, 999_999), "2013-05-18T05:48:54.999"),
        (
            datetime.datetime(2013, 5, 18, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=9))),
            "2013-05-17T20:00:00.000",
        ),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00.000+01:00"),  # UTC has no such day
        ("9999-12-31T23:00:00-01:00", "9999-12-31T23:00:00.000-01:00"),
    ],
)
def test_a_date_is_written_in_utc_to_the_millisecond(value: str | datetime.date, moment: str) -> None:
    assert to_iso_time(value) == moment


@pytest.mark.parametrize(
    "value",
    ["", "2013", "2013-05", "20130518", "1512041251000", "2013-W20-6", "2013-02-30", "2013-05-18T24:00",
     "2013-05-18x05", "18 May 2013", " 2013-05-18", "٢٠١٣-٠٥-١٨"],
)  # fmt: skip
def test_other_date_formats_are_kept_as_text(value: str) -> None:
    assert to_iso_time(value) == value


@pytest.mark.parametrize(("value", "text"), [(None, ""), (1512041251000, "1512041251000"), (1.5e9, "1500000000.0")])
def test_numbers_are_kept_as_text_and_null_is_empty(value: float | None, text: str) -> None:
    assert to_iso_time(value) == text


dates = st.datetimes(timezones=st.none() | st.timezones()).map(str) | st.dates().map(str)
# Without the year 0, which Arrow has and Python lacks.
near_dates = st.from_regex(r"\A[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9:.+Z-]{0,14}\Z")


@given(dates | near_dates)
def test_arrow_infers_no_timestamp_from_a_date_or_a_title(value: str) -> None:
    meta = Meta.from_mapping("a.jsonl", 0, {"title": value})
    line = json.dumps({"created_at": to_iso_time(value), "title": meta.title}).encode()

    assert set(arrow_json.read_json(io.BytesIO(line)).schema.types) == {pa.string()}
    assert meta.columns()["title"] == value


def test_a_derived_id_is_the_sha256_of_dataset_config_split_and_text_joined_by_nul() -> None:
    # printf 'maker/pages\0default\0train\0text' | sha256sum
    assert derive_doc_id("maker/pages", "default", "train", "text") == (
        "86e79c823f2b52e0ca7f125e73ac2b7420ad69b986e51d2bc75d3f7ba92e6780"
    )
