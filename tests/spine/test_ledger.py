"""Rejects name file, row and reason, and stop a build above the limit."""

from dataclasses import replace

import pytest
from refusals import refusal

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import check_rejects
from pipeline_assets.spine.rejects import Reject, summarize_reasons

REJECTS = [Reject("a.parquet", row, "empty_text") for row in range(7)]


def test_reject_text_is_file_row_reason_and_detail_and_json_has_every_field() -> None:
    plain, detailed = Reject("a.parquet", 3, "no_text"), Reject("a.parquet", 3, "invalid_utf8", "0xff at byte 12")

    assert str(plain) == "a.parquet row 3: no_text"
    assert str(detailed) == "a.parquet row 3: invalid_utf8 (0xff at byte 12)"
    assert plain.to_json() == {"file": "a.parquet", "row": 3, "reason": "no_text", "detail": ""}


@pytest.mark.parametrize(("letters", "times"), [(20, 3), (21, 1)])
def test_long_detail_is_shown_once(letters: int, times: int) -> None:
    rejects = [replace(reject, detail="a" * letters) for reject in REJECTS[:3]]

    reasons, examples = summarize_reasons(rejects)

    assert reasons == "3 empty_text"
    assert examples.count("a" * letters) == times
    later = f" ({'a' * 20})" if letters == 20 else ""
    assert examples == f"{rejects[0]}; a.parquet row 1: empty_text{later}; a.parquet row 2: empty_text{later}"


@pytest.mark.parametrize(
    ("rejects", "rows", "limit"),
    [
        *((0, 0, "0"), (0, 10, "0"), (1, 1000, "0.001"), (10, 100, "0.1"), (3, 10, "0.3"), (5, 5, "1")),
        (10**17, 10**18, "0.1"),  # no binary fraction equals 0.1
    ],
)
def test_rejects_up_to_the_limit_are_accepted(rejects: int, rows: int, limit: str) -> None:
    check_rejects(rejects, rows, limit, REJECTS, "the snapshot")


@pytest.mark.parametrize(
    ("rejects", "rows", "limit"),
    [(1, 0, "1"), (1, 10, "0"), (2, 1999, "0.001"), (4, 10, "0.3"), (10**17 + 1, 10**18, "0.1")],
)
def test_one_reject_above_the_limit_stops_the_build(rejects: int, rows: int, limit: str) -> None:
    with pytest.raises(InputError):
        check_rejects(rejects, rows, limit, REJECTS, "the snapshot")


def test_error_about_one_reject_has_a_singular_verb() -> None:
    message = refusal(lambda: check_rejects(1, 10, "0", iter(REJECTS[:1]), "snapshot of fineweb"))
    assert "1 of 10 rows is rejected (1 empty_text)" in message


def test_error_counts_rejects_shows_the_first_five_and_names_a_fix() -> None:
    assert refusal(lambda: check_rejects(1234, 10_000, "0.05", iter(REJECTS), "snapshot of fineweb")) == (
        "snapshot of fineweb: 1,234 of 10,000 rows are rejected (7 empty_text), above `max_reject_fraction` 0.05 "
        "(the first: a.parquet row 0: empty_text; "
        "a.parquet row 1: empty_text; a.parquet row 2: empty_text; a.parquet row 3: empty_text; "
        "a.parquet row 4: empty_text); "
        "check those rows, or set `max_reject_fraction` in the recipe to 0.5 to accept these rejects"
    )
