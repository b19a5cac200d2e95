"""Search for the first control token of a text."""

from hypothesis import example, given
from hypothesis import strategies as st

from pipeline_assets.corpus.harmony.message import SPECIAL_PATTERN, find_special

PIECES = st.sampled_from(["|", "<", "<|", "|>", "a ", "é", "<|end|>", "<|reserved_200100|>", "|" * 20])
TEXTS = st.lists(PIECES, max_size=30).map("".join)


@given(TEXTS, st.integers(0, 40), st.integers(0, 90))
@example("|" * 16 + "<|end|>", 0, 23)
@example("|" * 15 + "<|end|>", 0, 22)
@example("<|end|>", 1, 7)
@example("<|end|>", 0, 6)
def test_first_control_token_equals_that_of_the_pattern(text: str, start: int, stop: int) -> None:
    expected = SPECIAL_PATTERN.search(text, start, stop)

    found = find_special(text, start, stop)

    assert (found and found.span()) == (expected and expected.span())
