"""FineWeb's rules on lines, compared with examples and with datatrove."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline_assets.corpus.filters.filter import MeasuredValue
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import FilterVerdict, evaluate

RULES: dict[str, Any] = {
    "terminal_punctuation": ".!?\"'",
    "min_terminal_lines": "0.12",
    "max_short_lines": "0.67",
    "max_copied_characters": "0.1",
}
LONG = "This line has more than thirty characters."


def test_shares_are_measured_over_lines_with_text(measured: Callable[..., dict[str, MeasuredValue]]) -> None:
    text = f"{LONG}\n\n  \nShort one\n{LONG}\nanother line without an end, which is long\r\n"

    assert measured(text, fineweb_quality=RULES) == {
        "terminal_lines": 2 / 4,
        "short_lines": 1 / 4,
        "copied_characters": len(LONG) / len(text.replace("\r\n", "").replace("\n", "")),
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LONG, None),
        ("", "terminal_lines"),
        (" \n\n", "terminal_lines"),
        ("no end\n" * 8 + LONG, "terminal_lines"),
        ("An end.\n" * 2 + LONG, "copied_characters"),
        (f"One.\nTwo.\n{LONG}", None),
        (f"One.\nTwo.\nThree.\n{LONG}", "short_lines"),
        ("x" * 29 + ".", "short_lines"),
        ("x" * 30 + ".", None),
        (f"{LONG}\r\nnothing\r\n", None),
    ],
)
def test_first_failed_rule_is_the_reason(text: str, reason: str | None, verdict: Callable[..., FilterVerdict]) -> None:
    assert verdict(text, fineweb_quality=RULES).reason == reason


def test_each_rule_is_optional(measured: Callable[..., dict[str, MeasuredValue]]) -> None:
    assert measured("one\ntwo", fineweb_quality={"max_short_lines": "1", "short_line_characters": 2}) == {
        "short_lines": 0
    }


lines = st.sampled_from(
    ["", " ", "End.", "End. ", "no end", LONG, LONG[:-1], "日本語の文。", "“Said!”", "\t", "\u2028", "'"]
)
texts = st.lists(lines | st.text(st.characters(exclude_characters="\r"), max_size=40), max_size=12).map("\n".join)
DATATROVE_REASONS = {
    "empty": "terminal_lines",
    "line_punct_ratio": "terminal_lines",
    "short_line_ratio": "short_lines",
    "char_dup_ratio": "copied_characters",
}


@given(text=texts)
def test_verdicts_equal_datatrove(text: str) -> None:
    quality = pytest.importorskip(
        "datatrove.pipeline.filters.fineweb_quality_filter", reason="datatrove is of the extra `peers`"
    )
    from datatrove.data import Document

    assume(text.encode("utf-8", "ignore").decode() == text)
    theirs = quality.FineWebQualityFilter(
        stop_chars=tuple(RULES["terminal_punctuation"]), char_duplicates_ratio=0.1, new_line_ratio=float("inf")
    ).filter(Document(text=text, id="0"))

    reason = None if theirs is True else DATATROVE_REASONS[theirs[1]]

    assert evaluate(text, {}, FilterRecipe.model_validate({"fineweb_quality": RULES})).reason == reason
