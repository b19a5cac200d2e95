"""Conversion of rows to documents: contents, dropped rows and rejects."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numbered_pages import plain_pages as pages
from refusals import refusal
from stage_a_build import ledger

from pipeline_assets.spine.artifact import Artifact

Ingest = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]


def test_a_row_becomes_a_document_with_its_other_columns_and_its_origin(ingest: Ingest, read_docs: Read) -> None:
    table = pages(1, score=[3.5], language=["en"], tags=[["a", None]], crawled=pa.array([None], pa.int64()))

    snapshot = ingest({"data/a.parquet": table})

    assert read_docs(snapshot) == [
        {
            "text": "Text of page 0.",
            "source": "pages",
            "domain": "web",
            "doc_id": "page-0",
            "license_tag": "cc0",
            "created_at": "",
            "meta": {
                "source_file": "data/a.parquet",
                "source_row": 0,
                "license_evidence": "recipe",
                "title": "",
                "url": "",
                "language": "en",
                "extra": '{"score":3.5,"tags":["a",null],"crawled":null}',
            },
        }
    ]


def test_views_are_read_like_other_columns_also_where_a_rule_drops_rows(ingest: Ingest, read_docs: Read) -> None:
    plain = pages(4, language=["en", "de", "en", "de"], tags=[["a"], [], ["b", None], None], score=[3, 4, 2, 5])
    view = pa.string_view()
    kinds = {"text": view, "id": view, "language": view, "tags": pa.list_(view), "score": pa.float16()}
    table = pa.table({name: pa.array(column, kinds.get(name)) for name, column in plain.to_pydict().items()})
    rules = ['language == "en"', "score >= 3"]

    snapshot = ingest({"data/a.parquet": table}, rules=rules)

    [document] = read_docs(snapshot)
    assert (document["text"], document["doc_id"]) == ("Text of page 0.", "page-0")
    assert isinstance(document["meta"], dict) and document["meta"]["extra"] == '{"tags":["a"],"score":3.0}'
    assert snapshot.manifest.identity.ledger.dropped == {rules[0]: 2, rules[1]: 1}


def test_rows_without_usable_text_are_rejected(ingest: Ingest, read_docs: Read, read_rejects: Read) -> None:
    bad = [None, b"", b"caf\xe9", b"ok\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\0\0", "Übung".encode()]
    good = [f"Text of page {number}.".encode() for number in range(200)]
    table = pa.table(
        {"text": pa.array(bad + good, pa.binary()).view(pa.string()), "id": [f"page-{number}" for number in range(207)]}
    )

    snapshot = ingest({"a.parquet": table}, max_reject_fraction="0.03")

    assert [tuple(reject.values()) for reject in read_rejects(snapshot)] == [
        ("a.parquet", 0, "no_text", "null"),
        ("a.parquet", 1, "empty_text", ""),
        ("a.parquet", 2, "invalid_utf8", "unexpected end of data at byte 3"),
        ("a.parquet", 3, "lone_surrogate", "at byte 2"),
        ("a.parquet", 4, "lone_surrogate", "at byte 0"),
        ("a.parquet", 5, "empty_text", "nothing but NUL"),
    ]
    assert [document["text"] for document in read_docs(snapshot)][:2] == ["Übung", "Text of page 0."]
    rejected = {"empty_text": 2, "invalid_utf8": 1, "lone_surrogate": 2, "no_text": 1}
    assert ledger(snapshot) == {"in": 207, "out": 201, "dropped": {}, "rejected": rejected}


RAW = pa.array([b"https://a", b"https://\xff", None], pa.binary())
CODES = pa.array([0, 1, None], pa.int32())


@pytest.mark.parametrize(
    ("url", "position"),
    [
        (RAW.view(pa.string()), 8),
        (RAW.cast(pa.large_binary()).view(pa.large_string()), 8),
        (pa.DictionaryArray.from_arrays(CODES, RAW[:2].view(pa.string())), 8),
        (pa.ListArray.from_arrays([0, 0, 1, 1], pa.array([b"\xff"], pa.binary()).view(pa.string())), 0),
    ],
    ids=["text", "large text", "dictionary", "list"],
)
def test_invalid_utf8_in_any_column_rejects_only_its_row(
    ingest: Ingest, read_docs: Read, read_rejects: Read, url: pa.Array, position: int
) -> None:
    snapshot = ingest({"a.parquet": pages(3, url=url)}, max_reject_fraction="0.5")

    assert [document["doc_id"] for document in read_docs(snapshot)] == ["page-0", "page-2"]
    assert read_rejects(snapshot) == [
        {"file": "a.parquet", "row": 1, "reason": "invalid_utf8", "detail": f"invalid start byte at byte {position}"}
    ]


def test_rules_compare_invalid_utf8_before_its_row_is_rejected(
    ingest: Ingest, read_docs: Read, read_rejects: Read
) -> None:
    snapshot = ingest(
        {"a.parquet": pages(3, url=RAW.view(pa.string()))}, max_reject_fraction="0.5", rules=['url != "x"']
    )

    assert [document["doc_id"] for document in read_docs(snapshot)] == ["page-0"]  # the third has no url
    assert [reject["reason"] for reject in read_rejects(snapshot)] == ["invalid_utf8"]


@pytest.mark.parametrize("column", ["text", "id"])
def test_texts_or_ids_of_other_types_are_rejects(
    ingest: Ingest, read_docs: Read, read_rejects: Read, column: str
) -> None:
    numbers = pa.table({"text": ["One", "Two"], "id": ["one", "two"], column: [1, 2]})

    snapshot = ingest({"a.parquet": pages(2), "b.parquet": numbers}, max_reject_fraction="0.5")

    assert [document["doc_id"] for document in read_docs(snapshot)] == ["page-0", "page-1"]
    assert read_rejects(snapshot) == [
        {"file": "b.parquet", "row": row, "reason": "wrong_type", "detail": f"{column} is int"} for row in (0, 1)
    ]


def test_a_rule_drops_even_invalid_rows_and_counts_them_by_its_text(ingest: Ingest, read_docs: Read) -> None:
    table = pages(4, int_score=pa.array([2, 3, 5, None], pa.int64())).set_column(0, "text", [[None, "b", "c", "d"]])

    snapshot = ingest({"a.parquet": table}, rules=["int_score >= 3"])

    assert [document["doc_id"] for document in read_docs(snapshot)] == ["page-1", "page-2"]
    assert ledger(snapshot) == {"in": 4, "out": 2, "dropped": {"int_score >= 3": 2}, "rejected": {}}


@pytest.mark.parametrize(
    ("language", "files", "dropped"),
    [
        ("en", {"a.parquet": pages(3, language=["en", "de", None])}, {"language": 2}),
        ("en", {"a.parquet": pages(1, language=["en"]), "b.parquet": pages(3).slice(1)}, {}),
        (None, {"a.parquet": pages(3, language=["en", "de", None])}, {}),
    ],
    ids=["requested and present", "in one file of two", "no language requested"],
)
def test_rows_are_filtered_by_language_only_if_a_column_has_it(
    ingest: Ingest, read_docs: Read, language: str | None, files: dict[str, pa.Table], dropped: dict[str, int]
) -> None:
    snapshot = ingest(files, language=language)

    assert [doc["doc_id"] for doc in read_docs(snapshot)] == ["page-0", "page-1", "page-2"][: 1 if dropped else 3]
    assert snapshot.manifest.identity.decisions["english_filter_applied"] is bool(dropped)
    assert ledger(snapshot)["dropped"] == dropped


def test_each_document_has_the_file_and_row_that_it_came_from(ingest: Ingest, read_docs: Read) -> None:
    first = pages(130, int_score=[number % 5 for number in range(130)])
    numbers = range(70)
    second = pa.table(
        {"text": [f"Other {n}." for n in numbers], "id": [f"other-{n}" for n in numbers], "int_score": [4] * 70}
    )
    tables = {"data/x/a.parquet": first, "data/y/b.parquet": second}

    documents = read_docs(ingest(tables, rows_per_group=20, rules=["int_score >= 3"], amount={"documents": 150}))

    assert len(documents) > 80
    for document in documents:
        meta = document["meta"]
        [row] = tables[meta["source_file"]].slice(meta["source_row"], 1).to_pylist()  # type: ignore[index]
        assert (row["text"], row["id"]) == (document["text"], document["doc_id"])


def test_a_row_group_longer_than_a_batch_keeps_its_row_numbers(ingest: Ingest, read_docs: Read) -> None:
    snapshot = ingest({"a.parquet": pages(3000)}, rows_per_group=3000, amount={"documents": 2500})

    assert [document["meta"]["source_row"] for document in read_docs(snapshot)] == list(range(2500))  # type: ignore[index]


def test_a_text_of_50_MB_is_a_document(ingest: Ingest, read_docs: Read) -> None:  # noqa: N802
    text = "word " * 10_000_000

    snapshot = ingest({"a.parquet": pa.table({"text": [text, "short"], "id": ["long", "short"]})})

    assert [len(str(document["text"])) for document in read_docs(snapshot)] == [50_000_000, 5]
    assert snapshot.manifest.identity.counts["text_bytes"] == 50_000_005


def test_a_row_group_that_is_damaged_on_the_hub_is_an_error(ingest: Ingest) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pages(1000), sink, compression="zstd", use_dictionary=False)
    content = bytearray(sink.getvalue().to_pybytes())
    content[40:400] = bytes(360)

    line = refusal(lambda: ingest({"damaged.parquet": bytes(content)}))

    assert ":damaged.parquet: row group 0 cannot be read (" in line
    assert line.endswith("; the file is damaged: pin another commit, or exclude it from `files`")
