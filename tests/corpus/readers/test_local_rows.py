"""Columns of local rows become fields of a Document; the rest is metadata."""

import datetime
import json
from typing import Any

import pytest

from pipeline_assets.corpus.document import Document, Meta, derive_doc_id
from pipeline_assets.corpus.normalize.row_converter import RowConverter
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, SourceLabels
from pipeline_assets.spine.rejects import Reject

LABELS = SourceLabels(source="notes", domain="books", license_tag="cc0-1.0")


def convert(row: dict[str, Any], **columns: str | None) -> Document | Reject:
    """Convert a row at position 7 of `a.jsonl`; unset columns are null."""
    named = {"text": "text", "id": None, "created_at": None, "license": None} | columns
    licensed = LicensedColumns(**named)  # type: ignore[arg-type]
    return RowConverter(licensed, LABELS, "a.jsonl").to_document(row, 7)


def to_document(row: dict[str, Any], **columns: str | None) -> Document:
    result = convert(row, **columns)
    assert isinstance(result, Document), result
    return result


def test_columns_become_fields_and_all_others_are_kept_in_meta() -> None:
    row = {"url": "https://a", "text": "Text.", "uid": "a-1", "date": "2019-04-21", "score": 3.5, "tags": ["x", None]}
    row |= {"title": "A", "language": "en"}

    assert convert(row, id="uid", created_at="date") == Document(
        text="Text.",
        source="notes",
        domain="books",
        doc_id="a-1",
        license_tag="cc0-1.0",
        created_at="2019-04-21T00:00:00.000",
        meta=Meta(
            source_file="a.jsonl",
            source_row=7,
            license_evidence="recipe",
            title="A",
            url="https://a",
            language="en",
            extra='{"date":"2019-04-21","score":3.5,"tags":["x",null]}',
        ),
    )


@pytest.mark.parametrize(
    "value", [None, "", 7, ["https://a"], {"href": "https://a"}, "2019-04-21", "2019-04-21 18:54:04Z"]
)
def test_an_invalid_title_url_or_language_is_kept_as_an_extra_column(value: object) -> None:
    row = {"text": "Text.", "title": value, "url": value, "language": value}

    meta = to_document(dict(row)).meta

    assert (meta.title, meta.url, meta.language) == ("", "", "")
    assert json.loads(meta.extra) == {"title": value, "url": value, "language": value}


def test_a_dotted_name_selects_a_nested_column() -> None:
    row = {"data": {"body": {"text": "Text."}, "lang": "en"}, "meta": {"url": "https://a", "date": "2020-02"}}

    result = to_document(row, text="data.body.text", id="meta.url", created_at="meta.date")

    assert (result.text, result.doc_id, result.created_at) == ("Text.", "https://a", "2020-02")
    assert json.loads(result.meta.extra) == {"data": {"body": {}, "lang": "en"}, "meta": {"date": "2020-02"}}
    flat = to_document({"text": "Text.", "meta.url": "flat", "meta": {"url": "nested"}}, id="meta.url")
    assert (flat.doc_id, flat.meta.extra) == ("flat", '{"meta":{"url":"nested"}}')


def test_an_integer_is_an_id_and_two_fields_may_share_a_column() -> None:
    for value in (7, 0, 12345678901234567890123):
        result = to_document({"text": "Text.", "id": value}, id="id", created_at="id")

        assert (result.doc_id, result.created_at) == (str(value), str(value))


def test_the_id_of_a_text_without_one_depends_on_source_and_text_only() -> None:
    expected = derive_doc_id("local", "notes", "", "Text.")

    for row in ({"text": "Text."}, {"text": "Text.", "id": None}, {"text": "Text.", "id": ""}):
        assert to_document(row, id="id").doc_id == expected
    # printf 'local\0notes\0\0Text.' | sha256sum
    assert expected == "d4300ba5de6ce814c1beb77b6674eb9a058fbe8faa8e8551e2224cca6ec6886d"


MOMENT = datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "created_at", "extra"),
    [
        ("2019-04-21T18:54:04Z", "2019-04-21T18:54:04.000", '{"at":"2019-04-21T18:54:04Z"}'),
        (1512465451000, "1512465451000", '{"at":1512465451000}'),
        ("1512041251000", "1512041251000", '{"at":"1512041251000"}'),
        (MOMENT, "2024-02-29T01:02:03.000", '{"at":"2024-02-29T01:02:03Z"}'),
        (MOMENT.date(), "2024-02-29T00:00:00.000", '{"at":"2024-02-29"}'),
        ("", "", '{"at":""}'),
        (None, "", '{"at":null}'),
    ],
)
def test_the_date_has_one_form_and_its_column_is_unchanged(value: object, created_at: str, extra: str) -> None:
    result = to_document({"text": "Text.", "at": value}, created_at="at")

    assert (result.created_at, result.meta.extra) == (created_at, extra)


@pytest.mark.parametrize(
    ("value", "tag", "evidence"),
    [
        ("CC-BY-4.0 ", "cc-by-4.0", "row: info.license"),
        (None, "cc0-1.0", "recipe"),
        ("", "cc0-1.0", "recipe"),
        (["MIT", "Apache-2.0"], "unknown", "row: info.license"),
    ],
)
def test_a_row_has_its_own_licence_or_that_of_the_recipe(value: object, tag: str, evidence: str) -> None:
    result = to_document({"text": "Text.", "info": {"license": value}}, license="info.license")

    assert (result.license_tag, result.meta.license_evidence) == (tag, evidence)
    assert json.loads(result.meta.extra) == {"info": {"license": value}}


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ({"text": None}, "no_text", "null"),
        ({"body": "x", "url": "y"}, "no_text", "no such column; there are body, url"),
        ({}, "no_text", "no such column; there are none"),
        ({"text": 5}, "wrong_type", "text is int"),
        ({"text": ["a"]}, "wrong_type", "text is list"),
        ({"text": b"bytes"}, "wrong_type", "text is bytes"),
        ({"text": ""}, "empty_text", ""),
        ({"text": "a", "id": 1.5}, "wrong_type", "id is float"),
        ({"text": "a", "id": False}, "wrong_type", "id is bool"),
        ({"text": "a", "id": "x", "date": {"y": 1}}, "wrong_type", "created_at is dict"),
    ],
)
def test_a_row_without_a_valid_text_id_or_date_is_rejected(row: dict[str, Any], reason: str, detail: str) -> None:
    assert convert(row, id="id", created_at="date") == Reject("a.jsonl", 7, reason, detail)


@pytest.mark.parametrize("row", [{}, {"data": None}, {"data": "x"}, {"data": {"other": 1}}, {"data": ["text"]}])
def test_a_missing_nested_text_is_no_text(row: dict[str, Any]) -> None:
    assert getattr(convert(row, text="data.text"), "reason", None) == "no_text"


def test_columns_named_like_the_position_are_kept_apart_from_it() -> None:
    row_columns = {"source_file": "theirs", "source_row": "theirs", "license_evidence": "theirs", "extra": "theirs"}

    result = to_document({"text": "Text.", **row_columns})

    assert result.meta == Meta("a.jsonl", 7, "recipe", extra=json.dumps(row_columns, separators=(",", ":")))
    assert result.meta.columns() == {
        "source_file": "a.jsonl",
        "source_row": 7,
        "license_evidence": "recipe",
        "extra": "theirs",
    }


def convert_default(row: dict[str, Any]) -> Document:
    result = RowConverter(LicensedColumns(), LABELS, "a.jsonl").to_document(row, 7)
    assert isinstance(result, Document), result
    return result


def test_default_columns_are_used_if_a_row_has_them() -> None:
    result = convert_default(
        {"text": "Text.", "doc_id": "d-1", "id": 7, "created_at": "2020-02-03T04:05:06Z", "license": "MIT"}
    )

    assert (result.doc_id, result.created_at, result.license_tag) == ("d-1", "2020-02-03T04:05:06.000", "mit")
    assert result.meta.license_evidence == "row: license"
    assert json.loads(result.meta.extra) == {"id": 7, "created_at": "2020-02-03T04:05:06Z", "license": "MIT"}


@pytest.mark.parametrize(
    ("row", "doc_id"),
    [
        ({"doc_id": None, "id": 7}, "7"),
        ({"doc_id": ["a"], "id": "b"}, "b"),
        ({"doc_id": True, "id": "b"}, "b"),
        ({"doc_id": 1.5}, None),
        ({"id": {"a": 1}}, None),
        ({}, None),
    ],
)
def test_the_first_default_column_with_a_valid_value_is_the_id(row: dict[str, Any], doc_id: str | None) -> None:
    result = convert_default({"text": "Text."} | row)

    assert result.doc_id == (doc_id or LABELS.derive_id("Text."))


@pytest.mark.parametrize("created_at", [["2020"], False])
def test_a_default_column_of_another_type_is_ignored(created_at: object) -> None:
    result = convert_default({"text": "Text.", "created_at": created_at, "license": {"name": "MIT"}})

    assert (result.created_at, result.license_tag, result.meta.license_evidence) == ("", "cc0-1.0", "recipe")
    assert json.loads(result.meta.extra) == {"created_at": created_at, "license": {"name": "MIT"}}


def test_a_column_set_to_null_in_the_recipe_is_not_used() -> None:
    result = to_document({"text": "Text.", "doc_id": "d", "id": "i", "license": "MIT"})

    assert (result.doc_id, result.license_tag) == (LABELS.derive_id("Text."), "cc0-1.0")


def test_fields_with_a_value_in_any_row_are_recorded() -> None:
    recorded: set[str] = set()
    columns = LicensedColumns(text="text", id="id", created_at="date", license="terms")
    rows = RowConverter(columns, LABELS, "a.jsonl", fields_with_values=recorded)

    rows.to_document({"text": "a", "id": "", "date": None}, 0)
    assert recorded == {"text"}
    rows.to_document({"text": "b", "id": "x", "date": None, "terms": ""}, 1)

    assert recorded == {"text", "id"}
