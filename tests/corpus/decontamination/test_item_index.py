"""Items of evaluation sets, and errors of sets with missing items."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from decontamination_build import evaluation_set, items_set, listed, recipe, rows_set

from pipeline_assets.corpus.decontamination.evaluation_items import EvaluationItem, read_items
from pipeline_assets.corpus.decontamination.item_index import write_index
from pipeline_assets.corpus.decontamination.recipe import EvaluationRecipe, EvaluationSet
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.staging import StagingView

ROWS = [{"id": 7, "question": "Why?", "answer": None}, {"question": "How?", "answer": "So.", "id": ""}]


def lines() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{**row, "id": str(row["id"])} for row in ROWS]), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("quiz.jsonl", lines()),
        ("quiz.jsonl.gz", gzip.compress(lines(), mtime=0)),
        ("quiz.jsonl.zst", zstandard.ZstdCompressor().compress(lines())),
        ("quiz.parquet", parquet()),
    ],
)
def test_columns_of_a_row_are_one_item_named_by_id_or_by_file_and_row(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)

    items = list(read_items(evaluation_set(tmp_path, "quiz", "*", text=["question", "answer"])))

    assert items == [EvaluationItem("7", "Why?"), EvaluationItem(f"{name}:1", "How?\nSo.")]


def test_each_column_may_be_an_item(tmp_path: Path) -> None:
    items = read_items(rows_set(tmp_path, "quiz", ROWS, text=["question", "answer"], item="column", id=None))

    assert list(items) == [
        EvaluationItem("quiz.jsonl:0:question", "Why?"),
        EvaluationItem("quiz.jsonl:1:question", "How?"),
        EvaluationItem("quiz.jsonl:1:answer", "So."),
    ]


def test_columns_may_be_nested_and_contain_lists_of_texts(tmp_path: Path) -> None:
    rows = [{"id": "a", "ask": {"stem": "Which?"}, "choices": {"text": ["this", None, "that"]}}]

    items = list(read_items(rows_set(tmp_path, "quiz", rows, text=["ask.stem", "choices.text"])))

    assert items == [EvaluationItem("a", "Which?\nthis\nthat")]


@pytest.mark.parametrize(
    ("unit", "items"),
    [
        ("file", [EvaluationItem("quiz.txt:0", "One.\n\nTwo,\nand so on.\n")]),
        ("paragraph", [EvaluationItem("quiz.txt:0", "One."), EvaluationItem("quiz.txt:1", "Two,\nand so on.")]),
    ],
)
def test_text_files_are_items_whole_or_by_paragraph(unit: str, items: list[EvaluationItem], tmp_path: Path) -> None:
    (tmp_path / "quiz.txt").write_text("One.\n\nTwo,\nand so on.\n")
    section = {"name": "quiz", "files": ["quiz.txt"], "columns": None, "text_unit": unit}

    assert list(read_items(listed(section, tmp_path))) == items


def refusal(evaluation: EvaluationSet, **changes: Any) -> str:
    with pytest.raises(InputError) as error:
        write_index([evaluation], recipe(**changes), StagingView(Path()))
    assert "\n" not in str(error.value)
    return f"{type(error.value).__name__}: {error.value}"


def test_files_that_changed_after_the_listing_are_refused(tmp_path: Path) -> None:
    evaluation = rows_set(tmp_path, "quiz", ROWS)
    (tmp_path / "quiz.jsonl").write_bytes(lines())

    assert refusal(evaluation) == (
        f"InputError: {tmp_path}: changed since the files were hashed: 1 of the files in {tmp_path} changed; "
        "the first is quiz.jsonl; restore the files, or stop writing to the folder and run the recipe again"
    )


def test_missing_column_is_refused_with_the_existing_columns(tmp_path: Path) -> None:
    existing_columns = "its first row has id, question, answer"

    assert refusal(rows_set(tmp_path, "quiz", ROWS, text=["question", "options"])) == (
        f"UsageError: {tmp_path}/quiz.jsonl: set quiz has no column `options`; {existing_columns}; "
        "set `columns.text` in the recipe to the column that holds the text"
    )
    assert refusal(rows_set(tmp_path, "exam", ROWS, text=["question"], id="key")) == (
        f"UsageError: {tmp_path}/exam.jsonl: set exam has no column `key`; {existing_columns}; "
        "set `columns.id` in the recipe to an existing column, or leave it out"
    )


def test_missing_parquet_column_is_refused_with_the_existing_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["Why?"]}), tmp_path / "quiz.parquet")

    assert refusal(evaluation_set(tmp_path, "quiz", "quiz.parquet", text=["text"], id=None)) == (
        f"UsageError: {tmp_path}/quiz.parquet: column `text` not found; the columns are question; "
        "set `columns.text` in the recipe to the column that holds the text"
    )


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (
            '{"id":"a","text":"x"}\n{"id":"b","text":7}\n',
            "UsageError: {folder}/quiz.jsonl: `text` of line 2 (byte 22) holds int, not text; "
            "set `columns.text` in the recipe to columns of text",
        ),
        (
            '{"id": "a", "text": "x"}\n[1]\n',
            "InputError: {folder}/quiz.jsonl: line 2 (byte 25) cannot be read (wrong_type: the line is list); "
            "correct the row, because no item may be missing",
        ),
        ("", "InputError: evaluation set quiz: no items found; correct its files or columns"),
        (
            '{"text": "two words"}\n{"text": "…"}\n{"text": "and three words"}\n',
            "InputError: evaluation set quiz: every item has fewer words than `min_item_words` 5 "
            "(items: 3, words of the longest: 3); lower `min_item_words`, or omit the set",
        ),
    ],
)
def test_set_with_missing_items_is_refused(data: str, refused: str, tmp_path: Path) -> None:
    (tmp_path / "quiz.jsonl").write_text(data)

    evaluation = evaluation_set(tmp_path, "quiz", "quiz.jsonl", id=None)

    assert refusal(evaluation) == refused.format(folder=tmp_path)


def test_row_without_text_is_an_item_that_is_too_short(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": None}, {"id": "b", "text": ""}, {"id": "c"}]

    assert [item.text for item in read_items(rows_set(tmp_path, "quiz", rows))] == ["", "", ""]
    assert refusal(rows_set(tmp_path, "quiz", rows)).startswith(
        "InputError: evaluation set quiz: every item has fewer words than `min_item_words` 5"
    )


def test_sets_with_only_common_ngrams_are_refused(tmp_path: Path) -> None:
    items = items_set(tmp_path, "quiz", {"a": "row row boat row row boat", "b": "row boat row row boat row row"})

    assert refusal(items, ngram_words=3, min_item_words=3, max_items_per_ngram=1) == (
        "InputError: evaluation sets quiz: every n-gram is in more than `max_items_per_ngram` 1 items; "
        "raise `max_items_per_ngram`, or lower `ngram_words`"
    )


def test_evaluation_set_requires_columns_or_a_text_unit() -> None:
    with pytest.raises(UsageError) as error:
        EvaluationRecipe.from_content({"name": "quiz", "files": ["a.txt"], "columns": None, "text_unit": None})

    assert error.value.what == "the items are undefined"
