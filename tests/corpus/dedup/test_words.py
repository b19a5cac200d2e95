"""Normalised text: the words of a regular expression, in lower case, straight from UTF-8."""

from hypothesis import given
from hypothesis import strategies as st
from plain_dedup import normalized

from pipeline_assets.corpus.dedup.words import normalize


def normalized_here(*texts: str) -> list[str]:
    batch = normalize([text.encode() for text in texts])
    spans = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
    return [batch.text[start:stop].tobytes().decode() for start, stop in spans]


def test_every_script_has_words_and_marks_that_combine_part_them() -> None:
    assert normalized_here("Ωμέγα ΣΑΣ", "İstanbul", "日本語 テキスト", "e\u0301t", "𝔘nicode") == [
        "ωμέγα σασ",
        "istanbul",
        "日本語 テキスト",
        "e t",
        "𝔘nicode",
    ]


def test_a_character_may_grow_or_shrink_as_it_is_lowered() -> None:
    assert normalized_here("Ⱥ" * 1000, "K" * 1000) == ["ⱥ" * 1000, "k" * 1000]


def test_there_is_room_for_a_word_in_each_of_many_documents_of_one_letter() -> None:
    assert normalized_here(*["A"] * 20_000) == ["a"] * 20_000


@given(st.lists(st.text(), max_size=5))
def test_it_is_what_plain_python_makes_of_any_texts(texts: list[str]) -> None:
    assert normalized_here(*texts) == [normalized(text) for text in texts]


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_equal_words_have_equal_hashes_and_others_have_others(text: str) -> None:
    words = normalized(text).split()

    batch = normalize([text.encode()])

    assert len(batch.word_hashes) == len(words)
    assert len(set(batch.word_hashes.tolist())) == len(set(words))


def test_the_hash_of_a_word_does_not_depend_on_what_stands_beside_it() -> None:
    alone, among = normalize([b"deduplication"]), normalize([b"exact deduplication, near deduplication"])

    assert among.word_hashes[1] == among.word_hashes[3] == alone.word_hashes[0]
