"""Measurements as text."""

import pytest

from pipeline_assets.corpus.filters.filter import MeasuredValue, Measurement


@pytest.mark.parametrize(
    ("reason", "value", "limit", "text"),
    [
        ("ascii_ratio", 0.4321, 0.8, "ascii_ratio 0.432 < 0.8"),
        ("ascii_ratio", 0.79999, 0.8, "ascii_ratio 0.79999 < 0.8"),  # never rounded to the limit
        ("ascii_ratio", 0.8, 0.8, "ascii_ratio 0.8 = 0.8"),
        ("top_2_gram", 1.5, 0.2, "top_2_gram 1.5 > 0.2"),
        ("few_words", 12, 50, "few_words 12 < 50"),
        ("many_words", 1234567, 100000.0, "many_words 1234567 > 100000"),
        ("score >= 3", None, 3, "score >= 3: None"),
        ('language == "en"', "de", "en", "language == \"en\": 'de'"),
        ("document_phrase", "lorem ipsum", None, "document_phrase lorem ipsum"),
        ("bad_word", None, None, "bad_word none"),
        ("repeated_windows", 2 / 3, 0.5, "repeated_windows 0.667 > 0.5"),
        ("other_language", "de 0.998", "en, fr from 0.96", "other_language de 0.998; kept: en, fr from 0.96"),
    ],
)
def test_measurement_is_written_as_value_and_limit(
    reason: str, value: MeasuredValue, limit: MeasuredValue, text: str
) -> None:
    assert str(Measurement(reason, value, limit, is_failed=False)) == text
