"""Counts of words, lines, paragraphs and characters."""

from collections.abc import Callable

import pytest

Measured = Callable[..., dict[str, object]]

EVERY_COUNT = {
    "length": {"min_characters": 0, "min_words": 0},
    "characters": {"min_ascii_ratio": "0", "max_symbol_ratio": "1"},
    "gopher_quality": {
        "min_mean_word_length": "0",
        "max_hash_ratio": "9",
        "max_ellipsis_ratio": "9",
        "max_bullet_lines": "1",
        "max_ellipsis_lines": "1",
        "min_alphabetic_words": "0",
    },
}


@pytest.mark.parametrize(
    ("text", "characters", "words"),
    [
        ("", 0, 0),
        (" ", 1, 0),
        ("a", 1, 1),
        ("two words", 9, 2),
        ("  two\t\nwords \r\n", 15, 2),
        ("no line feed\rin between", 23, 5),
        ("a\u00a0b\u3000c\u2028d\x85e\x1ff", 11, 6),  # whitespace beyond ASCII separates words
        ("zero\u200bwidth", 10, 1),  # a zero-width space is not whitespace in Unicode
        ("日本語のテキスト。", 9, 1),
        ("🐻", 1, 1),
        ("e\u0301te\u0301", 5, 1),  # combining marks are characters of their own
        ("\U0010ffff \ud7ff", 3, 2),
    ],
)
def test_characters_are_code_points_and_whitespace_separates_words(
    text: str, characters: int, words: int, measured: Measured
) -> None:
    result = measured(text, **EVERY_COUNT)

    assert (result["few_characters"], result["few_words"]) == (characters, words)


@pytest.mark.parametrize(
    ("text", "reason", "value"),
    [
        ("abcd", "ascii_ratio", 1.0),
        ("naïve", "ascii_ratio", 0.8),
        ("日本", "ascii_ratio", 0.0),
        ("a+b = c!", "symbol_ratio", 0.5),  # of characters that aren't whitespace
        ("„ab“ 🐻€", "symbol_ratio", 4 / 6),
        ("ab cdef", "short_words", 3.0),
        ("äb çdéf", "short_words", 3.0),
        ("#a b #c ##", "hash_ratio", 1.0),
        ("a... b…. .... c..d......", "ellipsis_ratio", 5 / 4),  # "...." is one, "......" two, ".." none
        (". . . a", "ellipsis_ratio", 0.0),
        ("a1 1 ½ Ⅷ 本 - ª", "alphabetic_words", 3 / 7),
        ("- a\n• b\n  * c\n–d\n1. e", "bullet_lines", 0.8),
        ("a...\nb… \n\nc.\n...", "ellipsis_lines", 0.75),
        ("a..\n..b", "ellipsis_lines", 0.0),
        ("\n\n", "bullet_lines", 0.0),  # no line, no fraction
    ],
)
def test_ratios_are_of_words_lines_or_characters(text: str, reason: str, value: float, measured: Measured) -> None:
    assert measured(text, **EVERY_COUNT)[reason] == pytest.approx(value, abs=0)
