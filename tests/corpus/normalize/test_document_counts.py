"""Counts of shards as a ledger: in = out + merged + dropped + rejected."""

import pytest
from refusals import refusal

from pipeline_assets.corpus.normalize.converted import check_document_counts, manifest_counts
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger


def test_the_ledger_counts_dropped_and_rejected_rows_by_reason() -> None:
    counts = {"rows": 9, "documents": 4, "dropped/score >= 3": 2, "dropped/language": 1, "rejected/no_text": 2}
    reasons = {"dropped": {"score >= 3": 2, "language": 1}, "rejected": {"no_text": 2}}

    assert Ledger.from_counts(counts).to_json() == {"in": 9, "out": 4, **reasons}


@pytest.mark.parametrize(("merged", "expected"), [({}, {}), ({"merged": 0}, {}), ({"merged": 3}, {"merged": 3})])
def test_rows_that_became_part_of_another_document_are_merged(merged: dict[str, int], expected: dict[str, int]) -> None:
    ledger = Ledger.from_counts({"rows": 4, "documents": 1, **merged})

    assert ledger.to_json() == {"in": 4, "out": 1, **expected, "dropped": {}, "rejected": {}}


def test_a_ledger_adds_up_if_every_row_is_accounted_for() -> None:
    whole = Ledger(9, 4, {"score >= 3": 2}, {"no_text": 1}, merged=2)
    short = Ledger(9, 4, {"score >= 3": 2}, {"no_text": 1})

    assert whole.adds_up
    assert str(whole) == "9 in = 4 out + 2 merged + 2 dropped + 1 rejected"
    assert list(whole.other_outcomes()) == [("merged", "", 2), ("dropped", "score >= 3", 2), ("rejected", "no_text", 1)]
    assert not short.adds_up


def test_missing_counts_are_zero() -> None:
    assert manifest_counts({"rows": 1, "documents": 1, "bytes": 5}) == {
        "ledger": {"in": 1, "out": 1, "dropped": {}, "rejected": {}},
        "documents": 1,
        "text_bytes": 5,
        "nul_documents": 0,
        "nul_characters_removed": 0,
    }


def test_at_most_one_document_in_a_hundred_may_contain_nul() -> None:
    check_document_counts({"documents": 100, "nul_documents": 1}, "here", "look")

    with pytest.raises(InputError, match="2 of 199 documents contain NUL characters, more than 1 %"):
        check_document_counts({"documents": 199, "nul_documents": 2}, "here", "look")


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "the files contain no rows; choose files with rows, or remove the source"),
        (
            {"rows": 3, "dropped/few_answers": 2, "rejected/no_text": 1},
            "none of the 3 rows became a document (2 few_answers, 1 no_text); correct it",
        ),
    ],
)
def test_the_error_without_documents_has_the_reasons_and_the_next_step_of_the_caller(
    counts: dict[str, int], message: str
) -> None:
    assert refusal(lambda: check_document_counts(counts, "the source", "correct it")) == f"the source: {message}"
