"""Difference of two texts, word by word."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st
from plain_dedup import normalized

from pipeline_assets.corpus.dedup.decision import word_diff


def words(count: int) -> str:
    return " ".join(f"w{number}" for number in range(count))


def test_differences_are_marked_and_equal_words_counted() -> None:
    old = words(400)
    new = old.replace("w20 ", "").replace("w250", "other")

    assert list(word_diff(old, new, context_words=2)) == [
        "… 18 equal words …",
        "w18 w19",
        "[-w20-]",
        "w21 w22",
        "… 225 equal words …",
        "w248 w249",
        "[-w250-]{+other+}",
        "w251 w252",
        "… 147 equal words …",
    ]


def test_case_and_punctuation_are_ignored_and_shown_as_in_the_new_text() -> None:
    assert list(word_diff("the end of it", "The END (of, it) all.")) == ["The END (of, it)", "{+all.+}"]
    assert list(word_diff(words(40), words(40).title())) == ["… 40 equal words …"]


TEXTS = st.text("abAÉé _.,\n", max_size=40)


@given(TEXTS, TEXTS)
def test_difference_without_its_marks_has_the_words_of_either_text(old: str, new: str) -> None:
    assume(normalized(old) != normalized(new))

    difference = " ".join(word_diff(old, new, context_words=10**6))

    assert normalized(re.sub(r"\{\+.*?\+\}", " ", difference, flags=re.DOTALL)) == normalized(old)
    assert normalized(re.sub(r"\[-.*?-\]", " ", difference, flags=re.DOTALL)) == normalized(new)
