"""The table that people read: shares as they are, and nothing from a dataset that breaks out of its cell."""

from typing import Any

from pipeline_assets.corpus.nemotron.inventory import coverage_markdown
from pipeline_assets.corpus.nemotron.row_census import COVERAGE


def told(rows: int, counted: dict[str, int], **changes: Any) -> dict[str, Any]:
    coverage = {name: {"rows": counted.get(name, 0), "share": "0.3333"} for name in COVERAGE}
    return {
        "dataset": "maker/chats",
        "split": "low",
        "format": "jsonl",
        "scan": {"kind": "full", "max_rows": None, "rows_read": rows},
        "files": [{"path": "low.jsonl", "bytes": 9}],
        "bytes": 9,
        "rows": rows,
        "rows_counted": rows,
        "rejected": {},
        "left_out": [],
        "optional_columns": [],
        "tags": {},
        "coverage": coverage,
        **changes,
    }


def test_what_later_steps_ask_for_has_a_column_even_where_no_row_has_it() -> None:
    page = coverage_markdown(told(3, {"text": 1}))

    head = "| split | rows read | uuid | text | correctness | solved | tools | label | reasoning text | licence |"
    assert head in page.splitlines()
    assert "| chats low | 3 | 33.33 % |" in page


def test_what_is_not_read_is_named() -> None:
    page = coverage_markdown(told(3, {}, left_out=["data/low.parquet"], rejected={"cut_off": 1}))

    assert "- chats low: `data/low.parquet` lie beside its jsonl files, which are read." in page
    assert "- chats low: 1 cut_off; see its rejects." in page


def test_a_text_of_the_dataset_stays_in_its_cell() -> None:
    tags = {"license": {"a|b\n<b>`x`": 2, **{f"tag{number}": 1 for number in range(9)}}}

    page = coverage_markdown(told(3, {}, tags=tags))

    [line] = [line for line in page.splitlines() if line.startswith("| chats low | license |")]
    assert line.startswith("| chats low | license | `a\\|b &lt;b>'x'` 2, `tag0` 1")
    assert line.endswith("`tag6` 1, and 2 more |")
