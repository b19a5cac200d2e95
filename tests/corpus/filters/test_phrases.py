"""Many phrases in one pass: each is found where a search for it alone finds it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_filters import has_phrase, has_words

from pipeline_assets.corpus.filters.phrases import PhraseHits, PhraseScope, build_automaton, find_phrases
from pipeline_assets.corpus.filters.text_batch import join_texts


def find(
    texts: list[str], phrases: list[tuple[str, PhraseScope]], limit: int | list[int] = 9, per_line: bool = False
) -> PhraseHits:
    batch = join_texts([text.encode() for text in texts])
    each = np.broadcast_to(limit, len(texts)).astype(np.int64)
    return find_phrases(batch, build_automaton(phrases), each, per_line)


def search(texts: list[str], phrases: list[tuple[str, PhraseScope]]) -> list[int]:
    """Return the number of the first phrase found in each text, or -1."""
    return find(texts, phrases, 1).first_phrases.tolist()


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        *(("home", True), ("a\n \u3000Home\t\r\nb", True), ("go home", False), ("home »", False), ("home\n", True)),
        *((f"a\n{' ' * 200}home\nb", True), (f"a\n{' ' * 200}. home\nb", False)),
    ],
)
def test_whole_line_has_only_blanks_around_the_phrase(text: str, is_found: bool) -> None:
    assert search([text], [("home", PhraseScope.LINE)]) == [0 if is_found else -1]


def test_many_similar_phrases_are_distinguished() -> None:
    phrases = [f"{number} phrases" for number in range(200)]

    assert search(phrases, [(f" {phrase}", PhraseScope.ANYWHERE) for phrase in phrases]) == [-1] * 200
    assert search(
        [f"of {phrase}" for phrase in phrases], [(f"f {phrase}", PhraseScope.ANYWHERE) for phrase in phrases]
    ) == [*range(200)]


def test_letters_beyond_ascii_match_in_either_case_if_both_are_one_letter() -> None:
    phrases = [
        ("política", PhraseScope.ANYWHERE),
        ("ⱥb", PhraseScope.ANYWHERE),
        ("groß", PhraseScope.ANYWHERE),
        ("利用規約", PhraseScope.ANYWHERE),
    ]

    assert search(["POLÍTICA", "ȺB", "GROß", "GROSS", "の利用規約。"], phrases) == [0, 1, 2, -1, 3]


def test_phrase_that_ends_first_is_named_and_matches_end_with_the_document() -> None:
    phrases = [("ab cd", PhraseScope.ANYWHERE), ("b c", PhraseScope.ANYWHERE), ("c", PhraseScope.ANYWHERE)]

    assert search(["ab cd", "ab", " cd", "", "ab "], phrases) == [1, -1, 2, -1, -1]
    assert search(["ab cd"], phrases[:1]) == [0]
    assert search(["anything"], []) == [-1]


def test_different_phrases_are_counted_up_to_a_limit() -> None:
    texts = ["to be, or not to be", "be", "the to and of", ""]
    words = [(word, PhraseScope.WORDS) for word in ("the", "be", "to", "of", "and")]

    assert find(texts, words).counts.tolist() == [2, 1, 4, 0]
    assert find(texts, words, 2).counts.tolist() == [2, 1, 2, 0]


def test_line_with_several_phrases_is_counted_once() -> None:
    texts = ["use cookies, use cookies\nno\nwe use cookies", "use cookies", "use cookie", "use cookies"]
    phrases = [("use cookies", PhraseScope.ANYWHERE), ("we use", PhraseScope.ANYWHERE)]

    hits = find(texts, phrases, [9, 9, 9, 0], per_line=True)

    assert hits.counts.tolist() == [2, 1, 0, 0]
    assert ["".join(texts).count("\n", 0, place) for place in hits.line_positions.tolist()] == [0, 2, 2]


@pytest.mark.parametrize("scope", PhraseScope)
def test_a_phrase_is_found_between_blanks_of_any_kind(scope: PhraseScope) -> None:
    for phrase in ("b", "be", "next", "Élan vital", "日本", "use cookies"):
        phrases = [(phrase, scope), ("not to be found", PhraseScope.ANYWHERE)]
        text = f"a\n\u3000 {phrase.upper()}\u2028\n"

        assert [find([text], phrases, per_line=per_line).counts.tolist() for per_line in (False, True)] == [[1], [1]]


letters = st.text(alphabet="abAé É_1。\n日", max_size=8)


@given(text=st.lists(letters, max_size=12).map("".join), phrases=st.lists(letters, min_size=1, max_size=6))
def test_phrases_are_found_as_in_a_search_for_each_alone(text: str, phrases: list[str]) -> None:
    phrases = [phrase for phrase in {part.strip().replace("\n", " ") for part in phrases} if phrase]

    def count(scope: PhraseScope) -> int:
        return int(find([text], [(phrase, scope) for phrase in phrases], len(phrases)).counts[0])

    assert count(PhraseScope.ANYWHERE) == sum(has_phrase(text, phrase) for phrase in phrases)
    assert count(PhraseScope.WORDS) == sum(has_words(text, phrase) for phrase in phrases)
