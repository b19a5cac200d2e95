"""Control tokens are found, and get their special ids; content never does."""

import numpy as np
from harmony_oracle import encoder, library_tokens
from harmony_strategies import CONVERSATIONS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.harmony.encode import encode_harmony, render_harmony
from pipeline_assets.corpus.harmony.message import SPECIAL_PATTERN, AnalysisMode, Ending, Message, find_special
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.tokens.o200k_vocabulary import SPECIAL_TOKENS


@settings(max_examples=25)
@given(st.lists(CONVERSATIONS, max_size=3))
def test_batch_of_texts_is_encoded_like_single_texts(conversations: list[list[Message]]) -> None:
    texts = [render_harmony(turns, analysis=AnalysisMode.KEEP, ending=Ending.TRAINING).text for turns in conversations]

    tokens = encode_harmony([parse_harmony(text) for text in texts], encoder())

    assert [row.ids.tolist() for row in tokens] == [library_tokens(messages) for messages in conversations]
    assert all(row.ids.dtype == np.int32 for row in tokens)
    alone = [encode_harmony([parse_harmony(text)], encoder())[0] for text in texts]
    assert [row.bodies.tolist() for row in tokens] == [row.bodies.tolist() for row in alone]


def test_a_body_ends_before_its_terminator() -> None:
    text = "<|start|>user<|message|>2 + 2<|end|><|start|>assistant<|message|><|end|>"

    [tokens] = encode_harmony([parse_harmony(text)], encoder())

    assert tokens.ids.tolist() == [200006, 1428, 200008, 17, 659, 220, 17, 200007, 200006, 173781, 200008, 200007]
    assert tokens.bodies.tolist() == [[3, 7], [11, 11]]


def test_every_special_token_of_the_vocabulary_is_refused_in_content() -> None:
    assert [token for token in SPECIAL_TOKENS if SPECIAL_PATTERN.fullmatch(token) is None] == []


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
