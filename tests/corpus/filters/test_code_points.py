"""Classes of characters agree with Python's own, code point by code point."""

import re
import sys

import numpy as np
import pytest

from pipeline_assets.corpus.filters.words import (
    CLOSER,
    LETTER,
    SPACE,
    SYMBOL,
    TERMINAL,
    WORD,
    byte_ranges,
    classes_of_characters,
)

CLASSED = 0x40000


def with_bit(bit: int, terminal: str = "") -> set[str]:
    bits = classes_of_characters(terminal)
    return {chr(code_point) for code_point in range(CLASSED) if bits[code_point] & bit}


def test_spaces_letters_and_words_are_those_of_str_and_of_regular_expressions() -> None:
    everything = [chr(code_point) for code_point in range(sys.maxunicode + 1)]

    assert with_bit(SPACE) == {character for character in everything if not character.split()}
    assert with_bit(LETTER) == {character for character in everything if character.isalpha()}
    assert with_bit(WORD) == set(re.findall(r"\w", "".join(everything)))


def test_symbols_are_punctuation_currency_and_emoji_and_not_marks_or_digits() -> None:
    symbols = with_bit(SYMBOL)

    assert set("!-€+∑🐻。»_") <= symbols
    assert not set("a1 \u0301本Ⅷ\u200b\n") & symbols


def test_the_characters_that_may_end_a_line_are_those_of_the_recipe() -> None:
    assert with_bit(TERMINAL, ".。") == {".", "。"}
    assert with_bit(TERMINAL) == set()


@pytest.mark.parametrize("bit", [SPACE, LETTER, SYMBOL, WORD, TERMINAL, CLOSER])
def test_a_byte_is_in_a_range_of_a_class_if_its_character_is_in_the_class(bit: int) -> None:
    is_in_class = classes_of_characters(".?~\x7f")[:128] & bit != 0

    ranges = byte_ranges(is_in_class)

    found = [byte for first, beyond in ranges.tolist() for byte in range(first, first + beyond + 1)]
    assert found == np.flatnonzero(is_in_class).tolist()
    assert len(byte_ranges([False] * 128)) == 0
