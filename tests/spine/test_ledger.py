"""Rejects: each names file, row and reason, and too many of them stop the build."""

from dataclasses import replace

import pytest
from refusals import refusal

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Reject, check_rejects, summarize_reasons

REJECTS = [Reject("a.parquet", row, "empty_text") for row in range(7)]


def test_a_reject_reads_as_file_row_reason_and_detail_and_is_kept_with_every_field() -> None:
    plain, detailed = Reject("a.parquet", 3, "no_text"), Reject("a.parquet", 3, "invalid_utf8", "0xff at byte 12")

    assert (str(plain), str(detailed)) == (
        "a.parquet row 3: no_text",
        "a.parquet row 3: invalid_utf8 (0xff at byte 12)",
    )
    assert plain.to_json() == {"file": "a.parquet", "row": 3, "reason": "no_text", "detail": ""}


@pytest.mark.parametrize(
    ("rejects", "rows", "limit"),
    [
        *((0, 0, "0"), (0, 10, "0"), (1, 1000, "0.001"), (10, 100, "0.1"), (3, 10, "0.3"), (5, 5, "1")),
        (10**17, 10**18, "0.1"),  # which no binary fraction meets
    ],
)
def test_as_many_rejects_as_the_limit_are_accepted(rejects: int, rows: int, limit: str) -> None:
    check_rejects(rejects, rows, limit, REJECTS, "the snapshot")


@pytest.mark.parametrize(
    ("rejects", "rows", "limit"),
    [(1, 0, "1"), (1, 10, "0"), (2, 1999, "0.001"), (4, 10, "0.3"), (10**17 + 1, 10**18, "0.1")],
)
def test_one_reject_above_the_limit_stops_the_build(rejects: int, rows: int, limit: str) -> None:
    with pytest.raises(InputError):
        check_rejects(rejects, rows, limit, REJECTS, "the snapshot")


def test_the_error_counts_them_shows_the_first_five_and_says_what_to_do() -> None:
    assert refusal(lambda: check_rejects(1234, 10_000, "0.05", iter(REJECTS), "snapshot of fineweb")) == (
        "snapshot of fineweb: 1,234 of 10,000 rows are rejected (7 empty_text), above `max_reject_fraction` 0.05 "
        "(the first: a.parquet row 0: empty_text; "
        "a.parquet row 1: empty_text; a.parquet row 2: empty_text; a.parquet row 3: empty_text; "
        "a.parquet row 4: empty_text); "
        "check those rows, or set `max_reject_fraction` in the recipe to 0.5 to accept these rejects"
    )


def test_a_long_detail_is_shown_once() -> None:
    sentence = "my_filter.py:3: PermissionError: a step must not open a network connection"
    rejects = [Reject("rows.jsonl", row, "step_failed", sentence) for row in range(3)]

    reasons, shown = summarize_reasons(rejects)

    assert reasons == "3 step_failed"
    for letters, times in ((20, 3), (21, 1)):
        detail = "a" * letters
        assert summarize_reasons([replace(reject, detail=detail) for reject in rejects])[1].count(detail) == times
    assert shown == f"{rejects[0]}; rows.jsonl row 1: step_failed; rows.jsonl row 2: step_failed"
