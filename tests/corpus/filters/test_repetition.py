"""Gopher's repetition rules, compared with examples and with slow loops."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_filters import PlainText
from plain_filters import measured as plainly_measured

from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.recipe import FilterRecipe, RepetitionRecipe
from pipeline_assets.corpus.filters.verdict import apply_filters, evaluate

Measured = Callable[..., dict[str, object]]

RULES = {key: "0" for key in RepetitionRecipe.model_fields}
EVERYTHING = FilterRecipe.model_validate({"repetition": RULES})


@pytest.fixture
def repetition(measured: Callable[..., dict[str, object]]) -> Measured:
    return lambda text: measured(text, repetition=RULES)


@pytest.mark.parametrize(
    ("text", "lines", "characters"),
    [
        ("", 0.0, 0.0),
        ("one line", 0.0, 0.0),
        ("aa\naa\nbbb", 1 / 3, 2 / 7),  # the first of its kind is not a duplicate
        ("aa\naa\naa\naa", 0.75, 0.75),
        ("a b\r\n\ta  b\n\n a b", 2 / 3, 2 / 3),  # whitespace makes no difference, and blank lines do not count
        ("a b\nab", 0.0, 0.0),
        ("aa\nAA", 0.0, 0.0),
        ("日本\n日本\nab", 1 / 3, 1 / 3),  # characters, not bytes
    ],
)
def test_duplicate_lines_equal_an_earlier_line(
    text: str, lines: float, characters: float, repetition: Measured
) -> None:
    result = repetition(text)

    assert (result["duplicate_lines"], result["duplicate_line_characters"]) == (lines, characters)


@pytest.mark.parametrize(
    ("text", "paragraphs", "characters"),
    [
        ("a\nb\n\na\nb", 0.5, 0.5),
        ("a\nb\n \t\n\n\na b\n\nccc", 1 / 3, 2 / 7),  # any number of blank lines, any line breaks
        ("a\nb\na\nb", 0.0, 0.0),
        ("\n\na\n\n\na\n\n", 0.5, 0.5),
    ],
)
def test_blank_lines_separate_paragraphs(text: str, paragraphs: float, characters: float, repetition: Measured) -> None:
    result = repetition(text)

    assert (result["duplicate_paragraphs"], result["duplicate_paragraph_characters"]) == (paragraphs, characters)


@pytest.mark.parametrize(
    ("text", "n", "value"),
    [
        ("a b c d", 2, 0.0),  # an n-gram that occurs once is not repeated
        ("a b x a b y", 2, 4 / 6),
        ("aa b x aa b y aa b", 2, 9 / 11),
        ("ab c d x e f d x ab c", 2, 6 / 12),  # the first of two equally frequent n-grams counts
        ("a a a a", 2, 6 / 4),  # overlapping occurrences count; the paper excludes them only for longer n-grams
        ("a b c x a b c", 3, 6 / 7),
        ("a b c d x a b c d", 4, 8 / 9),
        ("a b c x a b c", 4, 0.0),
    ],
)
def test_the_top_n_gram_counts_with_every_occurrence(text: str, n: int, value: float, repetition: Measured) -> None:
    assert repetition(text)[f"top_{n}_gram"] == value


@pytest.mark.parametrize(
    ("text", "n", "value"),
    [
        ("a b c d e x a b c d e", 5, 5 / 11),
        ("a b c d e f g x a b c d e f g", 5, 7 / 15),  # overlapping n-grams: each character once
        ("a b c d e f g x a b c d e f g", 7, 7 / 15),
        ("a b c d e f g x a b c d e f g", 8, 0.0),
        ("a a a a a a a", 5, 6 / 7),  # all words but the first are in a copy
        ("a b c d e A B C D E", 5, 0.0),
        (" ".join("0123456789" * 2), 10, 0.5),
    ],
)
def test_duplicate_n_grams_cover_characters_once(text: str, n: int, value: float, repetition: Measured) -> None:
    assert repetition(text)[f"duplicate_{n}_grams"] == value


def test_words_with_equal_first_or_last_bytes_are_distinguished(repetition: Measured) -> None:
    words = [
        "abcdefgh",
        "abcdefghi",
        "abcdefghj",
        "xabcdefgh",
        "abcdefgh" * 3,
        "abcdefgh" * 2 + "abcdefgx",
        "ab",
        "ab\0",
    ]

    assert repetition("\n".join(words))["duplicate_lines"] == 0.0
    assert repetition("\n".join(words * 2))["duplicate_lines"] == 0.5


def test_different_words_with_equal_keys_are_distinguished(repetition: Measured) -> None:
    result = repetition("@!!!!!!!xmrgqmyl\n{'[gBN(kwsnfnsih")  # by the first seed

    assert result["duplicate_lines"] == result["top_2_gram"] == 0.0
    assert repetition("@!!!!!!!xmrgqmyl\n{'[gBN(kwsnfnsih\n@!!!!!!!xmrgqmyl")["duplicate_lines"] == 1 / 3


few_words = st.lists(st.sampled_from(["a", "b", "cc", "日本語", "\n", "\n\n", "lengthy-word"]), max_size=60).map(
    " ".join
)


@given(text=few_words | st.text())
def test_measurements_equal_slow_loops(text: str) -> None:
    result = {measurement.reason: measurement.value for measurement in evaluate(text, {}, EVERYTHING).measurements}

    split = PlainText(text)
    assert result == {reason: plainly_measured(split, reason, EVERYTHING) for reason in result}


@given(text=few_words, limit=st.sampled_from(["0", "0.1", "0.2", "0.3", "0.5", "0.8"]))
def test_document_is_dropped_for_the_first_exceeded_limit(text: str, limit: str) -> None:
    recipe = FilterRecipe.model_validate({"repetition": dict.fromkeys(RULES, limit)})
    candidate = Candidate(text.encode(), {})

    apply_filters([candidate], recipe)

    failed = [measurement for measurement in evaluate(text, {}, recipe).measurements if measurement.is_failed]
    assert candidate.failure == next(iter(failed), None)
