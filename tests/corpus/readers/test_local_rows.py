"""Columns → fields of a Document: nested names, ids, dates, licences, and what is left in `meta`."""

import datetime
import json
from functools import partial
from typing import Any

import pytest

from pipeline_assets.corpus.document import Document, Meta, derive_doc_id
from pipeline_assets.corpus.normalize.derived_ids import local_doc_id
from pipeline_assets.corpus.normalize.row_converter import RowConverter
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, SourceLabels
from pipeline_assets.spine.rejects import Reject

LABELS = SourceLabels(source="notes", domain="books", license_tag="cc0-1.0")


def read(row: dict[str, Any], **columns: str | None) -> Document | Reject:
    """The row, at place 7 of `a.jsonl`; columns that aren't given are none, the text is in `text`."""
    named = {"text": "text", "id": None, "created_at": None, "license": None} | columns
    licensed = LicensedColumns(**named)  # type: ignore[arg-type]
    return RowConverter(licensed, LABELS, "a.jsonl", partial(local_doc_id, LABELS.source)).to_document(row, 7)


def document(row: dict[str, Any], **columns: str | None) -> Document:
    result = read(row, **columns)
    assert isinstance(result, Document), result
    return result


def test_columns_become_fields_and_all_others_stay_in_meta() -> None:
    row = {"url": "https://a", "text": "Text.", "uid": "a-1", "date": "2019-04-21", "score": 3.5, "tags": ["x", None]}
    row |= {"title": "A", "language": "en"}

    assert read(row, id="uid", created_at="date") == Document(
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
def test_a_title_url_or_language_that_is_no_text_or_a_date_stays_among_the_other_columns(value: object) -> None:
    row = {"text": "Text.", "title": value, "url": value, "language": value}

    meta = document(dict(row)).meta

    assert (meta.title, meta.url, meta.language) == ("", "", "")
    assert json.loads(meta.extra) == {"title": value, "url": value, "language": value}


def test_a_dotted_name_leads_into_nested_columns() -> None:
    row = {"data": {"body": {"text": "Text."}, "lang": "en"}, "meta": {"url": "https://a", "date": "2020-02"}}

    made = document(row, text="data.body.text", id="meta.url", created_at="meta.date")

    assert (made.text, made.doc_id, made.created_at) == ("Text.", "https://a", "2020-02")
    assert json.loads(made.meta.extra) == {"data": {"body": {}, "lang": "en"}, "meta": {"date": "2020-02"}}
    flat_comes_first = document({"text": "Text.", "meta.url": "flat", "meta": {"url": "nested"}}, id="meta.url")
    assert (flat_comes_first.doc_id, flat_comes_first.meta.extra) == ("flat", '{"meta":{"url":"nested"}}')


@pytest.mark.parametrize("value", [7, 0, 12345678901234567890123])
def test_a_whole_number_is_an_id_and_two_fields_may_come_from_one_column(value: int) -> None:
    made = document({"text": "Text.", "id": value}, id="id", created_at="id")

    assert (made.doc_id, made.created_at) == (str(value), str(value))


def test_a_text_without_an_id_gets_one_of_source_and_text_alone() -> None:
    expected = derive_doc_id("local", "notes", "", "Text.")

    for row in ({"text": "Text."}, {"text": "Text.", "id": None}, {"text": "Text.", "id": ""}):
        assert document(row, id="id").doc_id == expected
    # printf 'local\0notes\0\0Text.' | sha256sum
    assert expected == "d4300ba5de6ce814c1beb77b6674eb9a058fbe8faa8e8551e2224cca6ec6886d"


@pytest.mark.parametrize(
    ("value", "created_at", "extra"),
    [
        ("2019-04-21T18:54:04Z", "2019-04-21T18:54:04.000", '{"at":"2019-04-21T18:54:04Z"}'),
        (1512465451000, "1512465451000", '{"at":1512465451000}'),
        ("1512041251000", "1512041251000", '{"at":"1512041251000"}'),
        (
            datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC),
            "2024-02-29T01:02:03.000",
            '{"at":"2024-02-29T01:02:03Z"}',
        ),
        (datetime.date(2024, 2, 29), "2024-02-29T00:00:00.000", '{"at":"2024-02-29"}'),
        ("", "", '{"at":""}'),
        (None, "", '{"at":null}'),
    ],
)
def test_the_date_is_in_one_form_and_its_column_stays_as_it_came(value: object, created_at: str, extra: str) -> None:
    made = document({"text": "Text.", "at": value}, created_at="at")

    assert (made.created_at, made.meta.extra) == (created_at, extra)


@pytest.mark.parametrize(
    ("value", "tag", "evidence"),
    [
        ("CC-BY-4.0 ", "cc-by-4.0", "row: info.license"),
        (None, "cc0-1.0", "recipe"),
        ("", "cc0-1.0", "recipe"),
        (["MIT", "Apache-2.0"], "unknown", "row: info.license"),
    ],
)
def test_a_row_says_its_licence_or_has_the_recipes(value: object, tag: str, evidence: str) -> None:
    made = document({"text": "Text.", "info": {"license": value}}, license="info.license")

    assert (made.license_tag, made.meta.license_evidence) == (tag, evidence)
    assert json.loads(made.meta.extra) == {"info": {"license": value}}


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
def test_a_row_that_cannot_be_a_document_is_rejected(row: dict[str, Any], reason: str, detail: str) -> None:
    assert read(row, id="id", created_at="date") == Reject("a.jsonl", 7, reason, detail)


def test_a_column_of_truth_values_is_no_alternative_for_an_id_or_a_date() -> None:
    row = {"text": "Text.", "doc_id": True, "id": "a-1", "created_at": False}
    columns = LicensedColumns()

    made = RowConverter(columns, LABELS, "a.jsonl", partial(local_doc_id, LABELS.source)).to_document(row, 7)

    assert isinstance(made, Document)
    assert (made.doc_id, made.created_at, made.meta.extra) == ("a-1", "", '{"doc_id":true,"created_at":false}')


@pytest.mark.parametrize("holder", [{}, {"data": None}, {"data": "x"}, {"data": {"other": 1}}, {"data": ["text"]}])
def test_a_nested_text_that_is_not_there_is_no_text(holder: dict[str, Any]) -> None:
    rejected = read(dict(holder), text="data.text")

    assert isinstance(rejected, Reject)
    assert rejected.reason == "no_text"


def test_columns_with_the_names_of_the_place_are_kept_apart_from_it() -> None:
    theirs = {"source_file": "theirs", "source_row": "theirs", "license_evidence": "theirs", "extra": "theirs"}

    made = document({"text": "Text.", **theirs})

    assert made.meta == Meta("a.jsonl", 7, "recipe", extra=json.dumps(theirs, separators=(",", ":")))
    assert made.meta.columns() == {
        "source_file": "a.jsonl",
        "source_row": 7,
        "license_evidence": "recipe",
        "extra": "theirs",
    }


UNSAID = LicensedColumns()


def of_usual_columns(row: dict[str, Any]) -> Document:
    made = RowConverter(UNSAID, LABELS, "a.jsonl", partial(local_doc_id, LABELS.source)).to_document(row, 7)
    assert isinstance(made, Document), made
    return made


def test_columns_of_usual_names_are_taken_where_a_row_has_them() -> None:
    made = of_usual_columns(
        {"text": "Text.", "doc_id": "d-1", "id": 7, "created_at": "2020-02-03T04:05:06Z", "license": "MIT"}
    )

    assert (made.doc_id, made.created_at, made.license_tag) == ("d-1", "2020-02-03T04:05:06.000", "mit")
    assert made.meta.license_evidence == "row: license"
    assert json.loads(made.meta.extra) == {"id": 7, "created_at": "2020-02-03T04:05:06Z", "license": "MIT"}


@pytest.mark.parametrize(
    ("row", "doc_id"),
    [
        ({"doc_id": None, "id": 7}, "7"),
        ({"doc_id": ["a"], "id": "b"}, "b"),
        ({"doc_id": 1.5}, None),
        ({"id": {"a": 1}}, None),
        ({}, None),
    ],
)
def test_of_several_columns_the_first_with_a_fitting_value_is_taken_and_none_need_be_there(
    row: dict[str, Any], doc_id: str | None
) -> None:
    made = of_usual_columns({"text": "Text."} | row)

    assert made.doc_id == (doc_id or local_doc_id("notes", "Text."))


def test_a_usual_column_of_another_kind_is_no_fault_of_its_row() -> None:
    made = of_usual_columns({"text": "Text.", "created_at": ["2020"], "license": {"name": "MIT"}})

    assert (made.created_at, made.license_tag, made.meta.license_evidence) == ("", "cc0-1.0", "recipe")


def test_no_column_is_taken_that_the_recipe_sets_to_null() -> None:
    made = document({"text": "Text.", "doc_id": "d", "id": "i", "license": "MIT"})

    assert (made.doc_id, made.license_tag) == (local_doc_id("notes", "Text."), "cc0-1.0")


def test_fields_with_a_value_in_any_row_are_noted() -> None:
    noted: set[str] = set()
    columns = LicensedColumns(text="text", id="id", created_at="date", license="terms")
    rows = RowConverter(columns, LABELS, "a.jsonl", partial(local_doc_id, LABELS.source), fields_with_values=noted)

    rows.to_document({"text": "a", "id": "", "date": None}, 0)
    assert noted == {"text"}
    rows.to_document({"text": "b", "id": "x", "date": None, "terms": ""}, 1)

    assert noted == {"text", "id"}
