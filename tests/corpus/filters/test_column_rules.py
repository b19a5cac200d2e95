"""Rules over source columns: passing rows, failed rules and invalid rules."""

import re
from decimal import Decimal

import pyarrow as pa
import pytest
from refusals import refusal

from pipeline_assets.corpus.filters.column_rules import ColumnRule, first_failed_rules
from pipeline_assets.spine.errors import UsageError

BATCH = pa.record_batch(
    {
        "int_score": pa.array([2, 3, 4, None], pa.int64()),
        "score": pa.array([2.5, 3.0, float("nan"), None], pa.float64()),
        "language": pa.array(["en", "de", "", None], pa.string()),
        "is_cleaned": pa.array([True, False, True, None], pa.bool_()),
    }
)


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("int_score >= 3", [False, True, True, False]),
        ("int_score <= 3", [True, True, False, False]),
        ("int_score == 3", [False, True, False, False]),
        ("int_score != 3", [True, False, True, False]),
        ("int_score > 3", [False, False, True, False]),
        ("int_score < 3", [True, False, False, False]),
        ("int_score >= 2.5", [False, True, True, False]),
        ("int_score > -1", [True, True, True, False]),
        ("score >= 3", [False, True, False, False]),
        ('language == "en"', [True, False, False, False]),
        ("language != 'en'", [False, True, True, False]),
        ('language == ""', [False, False, True, False]),
    ],
)
def test_rule_keeps_matching_rows_and_null_and_nan_fail(rule: str, kept: list[bool]) -> None:
    verdict = ColumnRule.parse(rule).passing_mask(BATCH)

    assert verdict.tolist() == kept


def test_blanks_around_and_inside_a_rule_do_not_change_its_reason_code() -> None:
    rule = ColumnRule.parse("  int_score>=3 ")

    assert rule == ColumnRule(text="int_score >= 3", column="int_score", operator=">=", constant=3)


def test_a_row_is_counted_for_the_first_rule_that_it_fails() -> None:
    rules = [ColumnRule.parse("int_score >= 3"), ColumnRule.parse('language == "en"')]

    assert first_failed_rules(rules, BATCH).tolist() == [0, 1, 1, 0]
    assert first_failed_rules([], BATCH).tolist() == [-1, -1, -1, -1]
    assert first_failed_rules(rules, BATCH.slice(0, 0)).tolist() == []


TINY = pa.array([2.5, 3.0, float("nan"), None], pa.float16())
TEXTS = pa.array(["en", "de", "", None], pa.string_view())
DECIMALS = pa.array([Decimal("0.10"), Decimal("0.05"), None])


@pytest.mark.parametrize(
    ("values", "rule", "kept"),
    [
        (TINY, "c >= 3", [False, True, False, False]),
        (TINY, "c != 3.0", [True, False, True, False]),
        (pa.array([2, 3, 2**64 - 1, None], pa.uint64()), "c >= 3", [False, True, True, False]),
        (pa.array([2, 3, 2**53 + 1, None], pa.int64()), "c >= 2.5", [False, True, True, False]),
        (TEXTS, 'c == "en"', [True, False, False, False]),
        (TEXTS, 'c < "e"', [False, True, True, False]),
        (pa.array([b"en", b"\xff", b"", None], pa.binary_view()), 'c > "e"', [True, True, False, False]),
        (pa.array([b"en", b"\xff"], pa.binary()), 'c == "en"', [True, False]),
        (pa.array(["en", "de", None]).dictionary_encode(), 'c == "en"', [True, False, False]),
        (DECIMALS, "c >= 0.1", [True, False, False]),
        (DECIMALS.dictionary_encode(), "c >= 0.1", [True, False, False]),
        (pa.nulls(2), "c >= 3", [False, False]),
    ],
)
def test_a_column_of_any_type_is_compared_by_its_values(values: pa.Array, rule: str, kept: list[bool]) -> None:
    assert ColumnRule.parse(rule).passing_mask(pa.record_batch({"c": values})).tolist() == kept


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        ("language >= 3", ("string", "str")),
        ('score == "three"', ("double", "float")),
        ("is_cleaned == 1", ("bool", "bool")),
        ("quality >= 3", None),
    ],
)
def test_column_that_cannot_be_compared_is_refused(rule: str, kinds: tuple[str, str] | None) -> None:
    parsed, meta = ColumnRule.parse(rule), {"int_score": 2, "score": 2.5, "language": "en", "is_cleaned": True}

    refused = [
        refusal(lambda: parsed.passing_mask(BATCH), UsageError),
        refusal(lambda: parsed.measure(meta), UsageError),
    ]

    missing = f"column `{parsed.column}` not found; the columns are {', '.join(meta)}; correct the rule"
    fix = "compare it with a value of that type"
    if rule == "language >= 3":
        fix = 'write its values as numbers, or compare them in an own step; as texts, "10" is below "9"'
    if rule == "is_cleaned == 1":
        fix = "remove the rule, because rules compare numbers and texts only"
    whats = [f"column `{parsed.column}` is {kind}; {fix}" for kind in kinds] if kinds else [missing] * 2
    assert refused == [f"rule `{rule}`: {what}" for what in whats]


def test_row_that_a_rule_cannot_measure_is_named() -> None:
    place = {"source_file": "a.jsonl", "source_row": 204}
    scored, cleaned = ColumnRule.parse("score >= 3"), ColumnRule.parse("is_cleaned == 1")

    missing = refusal(lambda: scored.measure({"int_score": 3, **place}), UsageError)
    wrong = refusal(lambda: cleaned.measure({"is_cleaned": True, **place}), UsageError)

    assert missing == (
        "rule `score >= 3`: column `score` not found; the columns are int_score, source_file, source_row; "
        "correct the rule, or add the column; its row is a.jsonl#204"
    )
    assert wrong == (
        "rule `is_cleaned == 1`: column `is_cleaned` is bool; "
        "remove the rule, because rules compare numbers and texts only; its row is a.jsonl#204"
    )


NO_RULES = ["", "int_score", ">= 3", "int_score = 3", "1 >= int_score"]
NO_CONSTANTS = ["nan", "en", "=", '"en', "3 and score > 2", "'", '"en" and domain == "web"']


@pytest.mark.parametrize(
    ("text", "what"),
    [
        *((text, f'{text!r} is not a rule; write `column >= 3` or `column == "en"`') for text in NO_RULES),
        *((f"language == {raw}", f"{raw!r} is not a constant; write a number or quoted text") for raw in NO_CONSTANTS),
    ],
)
def test_rule_that_is_not_a_comparison_with_a_constant_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(what)}$"):
        ColumnRule.parse(text)


@pytest.mark.parametrize(
    ("rule", "value", "is_failed"),
    [
        ("score >= 3", 3, False),
        ("score >= 3", 2.99, True),
        ("score < 3", 2.99, False),
        ("score != 3", 3, True),
        ("score >= 3", None, True),
        ("score != 3", None, True),  # null fails every rule
        ("score >= 3", float("nan"), True),
        ('score == "high"', "high", False),
        ('score != "high"', "low", False),
    ],
)
def test_rule_reads_document_metadata_like_a_column(rule: str, value: object, is_failed: bool) -> None:
    result = ColumnRule.parse(rule).measure({"score": value, "url": "https://example.org"})

    assert (result.reason, result.limit, result.is_failed) == (rule, ColumnRule.parse(rule).constant, is_failed)
    assert (
        value != value or bool(ColumnRule.parse(rule).passing_mask(pa.record_batch({"score": [value]}))[0]) != is_failed
    )
