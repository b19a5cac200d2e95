"""Normalized text: lower-case words of a regular expression, read from UTF-8."""

from hypothesis import example, given
from hypothesis import strategies as st
from plain_dedup import normalized

from pipeline_assets.corpus.dedup.words import normalize


def normalize_texts(*texts: str) -> list[str]:
    batch = normalize([text.encode() for text in texts])
    spans = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
    return [batch.text[start:stop].tobytes().decode() for start, stop in spans]


def test_one_letter_documents_of_a_large_batch_are_all_normalised() -> None:
    assert normalize_texts(*["A"] * 20_000) == ["a"] * 20_000


@given(st.lists(st.text(), max_size=5))
@example(["Ωμέγα ΣΑΣ", "İstanbul", "日本語 テキスト", "e\u0301t", "𝔘nicode"])
@example(["Ⱥ" * 1000, "K" * 1000])  # in lower case, letters of more or fewer bytes
def test_normalised_text_equals_plain_python(texts: list[str]) -> None:
    assert normalize_texts(*texts) == [normalized(text) for text in texts]


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_hashes_are_equal_only_for_equal_words(text: str) -> None:
    words = normalized(text).split()

    batch = normalize([text.encode()])

    assert len(batch.word_hashes) == len(words)
    assert len(set(batch.word_hashes.tolist())) == len(set(words))


def test_hash_of_a_word_does_not_depend_on_its_neighbours() -> None:
    alone, among = normalize([b"deduplication"]), normalize([b"exact deduplication, near deduplication"])

    assert among.word_hashes[1] == among.word_hashes[3] == alone.word_hashes[0]
