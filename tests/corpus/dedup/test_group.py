"""Texts side by side, word by word."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.dedup.group import word_diff


def test_what_is_alike_is_shortened_and_what_differs_is_marked() -> None:
    old = " ".join(f"w{number}" for number in range(40))
    new = old.replace("w20 ", "").replace("w30", "other")

    assert "".join(word_diff(old, new, context=2)) == (
        "w0 w1 … 16 words alike … w18 w19 [-w20 -]w21 w22 … 5 words alike … w28 w29 [-w30-]{+other+} "
        "w31 w32 … 5 words alike … w38 w39"
    )


TEXTS = st.text("abé _.,\n", max_size=40)


@given(TEXTS, TEXTS)
def test_without_its_marks_it_is_either_text(old: str, new: str) -> None:
    pieces = list(word_diff(old, new, context=10**6))

    assert "".join(piece[2:-2] if piece.startswith("[-") else piece for piece in _but("{+", pieces)) == old
    assert "".join(piece[2:-2] if piece.startswith("{+") else piece for piece in _but("[-", pieces)) == new


def _but(mark: str, pieces: list[str]) -> list[str]:
    return [piece for piece in pieces if not piece.startswith(mark)]
