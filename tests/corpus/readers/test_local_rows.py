"""Columns → fields of a Document: nested names, ids, dates, licences, and what is left in `meta`."""

import datetime
from functools import partial
from typing import Any

import pytest

from pipeline_assets.corpus.document import Document, derived_doc_id
from pipeline_assets.corpus.normalize.converted import RowMap, local_doc_id
from pipeline_assets.corpus.readers.columns import LicensedColumns, SourceLabels
from pipeline_assets.corpus.spine.ledger import Reject

LABELS = SourceLabels(source="notes", domain="books", license_tag="cc0-1.0")


def read(row: dict[str, Any], **columns: str | None) -> Document | Reject:
    """The row, at place 7 of `a.jsonl`; columns that aren't given are none, the text is in `text`."""
    named = {"text": "text", "id": None, "created_at": None, "license": None} | columns
    return RowMap(LicensedColumns(**named), LABELS, "a.jsonl", partial(local_doc_id, LABELS.source)).document(row, 7)  # type: ignore[arg-type]


def document(row: dict[str, Any], **columns: str | None) -> Document:
    result = read(row, **columns)
    assert isinstance(result, Document), result
    return result


def test_columns_become_fields_and_all_others_stay_in_meta() -> None:
    row = {"url": "https://a", "text": "Text.", "uid": "a-1", "date": "2019-04-21", "score": 3.5, "tags": ["x", None]}

    assert read(row, id="uid", created_at="date") == Document(
        text="Text.",
        source="notes",
        domain="books",
        doc_id="a-1",
        license_tag="cc0-1.0",
        created_at="2019-04-21",
        meta={
            "url": "https://a",
            "score": 3.5,
            "tags": ["x", None],
            "license_evidence": "recipe",
            "source_file": "a.jsonl",
            "source_row": 7,
        },
    )


def test_a_dotted_name_leads_into_nested_columns() -> None:
    row = {"data": {"body": {"text": "Text."}, "lang": "en"}, "meta": {"url": "https://a", "date": "2020"}}

    made = document(row, text="data.body.text", id="meta.url", created_at="meta.date")

    assert (made.text, made.doc_id, made.created_at) == ("Text.", "https://a", "2020")
    assert made.meta["data"] == {"body": {}, "lang": "en"}
    assert made.meta["meta"] == {}


def test_a_column_whose_name_has_a_dot_comes_before_a_nested_one() -> None:
    row = {"text": "Text.", "meta.url": "flat", "meta": {"url": "nested"}}

    made = document(row, id="meta.url")

    assert made.doc_id == "flat"
    assert made.meta["meta"] == {"url": "nested"}


def test_two_fields_may_come_from_one_column() -> None:
    made = document({"text": "Text.", "date": "2020"}, id="date", created_at="date")

    assert (made.doc_id, made.created_at) == ("2020", "2020")


def test_a_text_without_an_id_gets_one_of_source_and_text_alone() -> None:
    expected = derived_doc_id("local", "notes", "", "Text.")

    for row in ({"text": "Text."}, {"text": "Text.", "id": None}, {"text": "Text.", "id": ""}):
        assert document(row, id="id").doc_id == expected
    # printf 'local\0notes\0\0Text.' | sha256sum
    assert expected == "d4300ba5de6ce814c1beb77b6674eb9a058fbe8faa8e8551e2224cca6ec6886d"


@pytest.mark.parametrize(
    ("value", "doc_id"), [(7, "7"), (0, "0"), (12345678901234567890123, "12345678901234567890123")]
)
def test_a_whole_number_is_an_id(value: int, doc_id: str) -> None:
    assert document({"text": "Text.", "id": value}, id="id").doc_id == doc_id


@pytest.mark.parametrize(
    ("value", "created_at"),
    [
        ("2019-04-21T18:54:04Z", "2019-04-21T18:54:04Z"),
        (1512465451000, "1512465451000"),
        (datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC), "2024-02-29 01:02:03+00:00"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (None, None),
    ],
)
def test_the_date_is_kept_as_text_as_it_came(value: object, created_at: str | None) -> None:
    assert document({"text": "Text.", "at": value}, created_at="at").created_at == created_at


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

    assert (made.license_tag, made.meta["license_evidence"]) == (tag, evidence)
    assert made.meta["info"] == {"license": value}


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


@pytest.mark.parametrize("holder", [{}, {"data": None}, {"data": "x"}, {"data": {"other": 1}}, {"data": ["text"]}])
def test_a_nested_text_that_is_not_there_is_no_text(holder: dict[str, Any]) -> None:
    rejected = read(dict(holder), text="data.text")

    assert isinstance(rejected, Reject)
    assert rejected.reason == "no_text"


def test_columns_with_the_names_of_the_place_are_replaced() -> None:
    made = document({"text": "Text.", "source_file": "theirs", "source_row": "theirs", "license_evidence": "theirs"})

    assert made.meta == {"source_file": "a.jsonl", "source_row": 7, "license_evidence": "recipe"}
