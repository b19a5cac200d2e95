"""Classes of characters agree with Python's own, code point by code point."""

import re
import sys

from pipeline_assets.corpus.filters.characters import LETTER, SPACE, SYMBOL, TERMINAL, WORD, character_classes

CLASSED = 0x40000


def characters_with(bit: int, terminal: str = "") -> set[str]:
    bits = character_classes(terminal)
    return {chr(code_point) for code_point in range(CLASSED) if bits[code_point] & bit}


def test_spaces_letters_and_words_equal_str_and_regular_expressions() -> None:
    everything = [chr(code_point) for code_point in range(sys.maxunicode + 1)]

    assert characters_with(SPACE) == {character for character in everything if not character.split()}
    assert characters_with(LETTER) == {character for character in everything if character.isalpha()}
    assert characters_with(WORD) == set(re.findall(r"\w", "".join(everything)))


def test_symbols_are_punctuation_currency_and_emoji_and_not_marks_or_digits() -> None:
    symbols = characters_with(SYMBOL)

    assert set("!-€+∑🐻。»_") <= symbols
    assert not set("a1 \u0301本Ⅷ\u200b\n") & symbols


def test_characters_that_end_a_line_are_set_by_the_recipe() -> None:
    assert characters_with(TERMINAL, ".。") == {".", "。"}
    assert characters_with(TERMINAL) == set()
