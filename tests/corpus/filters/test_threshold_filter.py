"""Thresholds: inclusive limits, order of reasons, and counted words and lines."""

from collections.abc import Callable

import pytest

from pipeline_assets.corpus.filters.verdict import FilterVerdict

Verdicts = Callable[..., FilterVerdict]
Measured = Callable[..., dict[str, object]]


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"length": {"min_words": 4}}, None),
        ({"length": {"min_words": 5}}, "few_words"),
        ({"length": {"max_words": 4}}, None),
        ({"length": {"max_words": 3}}, "many_words"),
        ({"length": {"min_characters": 15}}, None),
        ({"length": {"min_characters": 16}}, "few_characters"),
        ({"length": {"max_characters": 14}}, "many_characters"),
        ({"characters": {"min_ascii_ratio": "0.8"}}, None),
        ({"characters": {"min_ascii_ratio": "0.81"}}, "ascii_ratio"),
        ({"characters": {"max_symbol_ratio": "0.08"}}, "symbol_ratio"),
        ({"gopher_quality": {"min_mean_word_length": "3"}}, None),
        ({"gopher_quality": {"min_mean_word_length": "3.1"}}, "short_words"),
        ({"gopher_quality": {"max_mean_word_length": "3"}}, None),
        ({"gopher_quality": {"max_mean_word_length": "2.9"}}, "long_words"),
        ({"gopher_quality": {"min_alphabetic_words": "0.8"}}, "alphabetic_words"),
        ({"repetition": {"max_duplicate_lines": "0"}}, None),
        ({}, None),
    ],
)
def test_document_at_a_limit_is_kept_and_beyond_it_dropped(
    sections: dict[str, object], reason: str | None, verdict: Verdicts
) -> None:
    text = "äöü abc def 1+1"  # 15 characters, 12 of them ASCII; 4 words of 3

    assert verdict(text, **sections).reason == reason


def test_the_first_threshold_in_order_gives_the_reason_and_all_are_measured(verdict: Verdicts) -> None:
    sections = {
        "repetition": {"max_duplicate_lines": "0.1"},
        "characters": {"min_ascii_ratio": "0.5", "max_symbol_ratio": "0.1"},
        "length": {"min_words": 2},
    }

    result = verdict("日!\n日!\n日!", **sections)

    assert result.reason == "symbol_ratio"
    assert [(measurement.reason, measurement.is_failed) for measurement in result.measurements] == [
        ("few_words", False),
        ("ascii_ratio", False),
        ("symbol_ratio", True),
        ("duplicate_lines", True),
    ]


def test_without_words_or_lines_every_ratio_is_zero(verdict: Verdicts) -> None:
    quality = {"min_mean_word_length": "3", "max_bullet_lines": "0.9", "max_ellipsis_lines": "0.3"}
    quality |= {"max_mean_word_length": "10", "min_alphabetic_words": "0.8"}

    for text in ("", " \n\t\n"):
        assert [str(measurement) for measurement in verdict(text, gopher_quality=quality).measurements] == [
            "short_words 0 < 3",
            "long_words 0 < 10",
            "bullet_lines 0 < 0.9",
            "ellipsis_lines 0 < 0.3",
            "alphabetic_words 0 < 0.8",
        ]


def test_stop_words_count_as_whole_words_in_any_case_up_to_the_minimum(measured: Measured) -> None:
    quality = {"stop_words": ["the", "be", "to", "of", "and", "that", "have", "with"]}

    def stop_words(text: str, enough: int) -> object:
        return measured(text, gopher_quality={**quality, "min_stop_words": enough})["stop_words"]

    assert stop_words("The. (Be) to-day, of\nand", 8) == 5
    assert stop_words("The the THE bee there", 8) == 1
    assert stop_words("to be or not to be that", 2) == 2
    assert stop_words("", 2) == 0


def test_enough_stop_words_are_reported_as_a_lower_bound(verdict: Verdicts) -> None:
    quality = {"stop_words": ["the", "be", "to"], "min_stop_words": 2}

    few, enough = (verdict(text, gopher_quality=quality).measurements for text in ("the", "the one to be"))

    assert [str(measurement) for measurement in (*few, *enough)] == ["stop_words 1 < 2", "stop_words at least 2"]


def test_boilerplate_is_a_fraction_of_the_lines(measured: Measured) -> None:
    boilerplate = {"phrases": ["we use cookies"], "lines": ["home", "log in"], "max_line_fraction": "0.5"}
    text = "Home\n\nWe use cookies. We use cookies.\nGo home to log in.\n  LOG IN\t\n"

    assert measured(text, boilerplate=boilerplate) == {"boilerplate_lines": 0.75}
    assert measured("", boilerplate=boilerplate) == {"boilerplate_lines": 0.0}
