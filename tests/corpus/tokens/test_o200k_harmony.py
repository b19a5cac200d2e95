"""o200k Harmony: the ids are tiktoken's on every input, whatever drives."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gigatoken
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wrong_tokenizer import without_cached_tokenizers

from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS
from pipeline_assets.corpus.tokens import o200k_harmony
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256, HarmonyEncoder, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT, NUM_RANKS, SPECIAL_TOKENS
from pipeline_assets.corpus.tokens.token_runs import TokenRuns

PROJECT = Path(__file__).parents[3]
UNICODE = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def encoder() -> HarmonyEncoder:
    return load_encoder(VOCABULARY_SHA256)


def split(runs: TokenRuns) -> list[list[int]]:
    return [run.tolist() for run in np.split(runs.ids, np.cumsum(runs.lengths)[:-1])] if len(runs.lengths) else []


def test_a_known_sentence_has_known_ids(encoder: HarmonyEncoder) -> None:
    runs = encoder.encode(["Hello, world!", "", "Übermäßig 🙂"])

    assert split(runs) == [[13225, 11, 2375, 0], [], [70249, 64618, 26192]]
    assert (runs.ids.dtype, runs.lengths.dtype) == (np.int32, np.int32)
    assert runs.text_bytes == 13 + 0 + 17


@given(texts=st.lists(ANY_TEXT, max_size=5))
@settings(max_examples=300)
def test_any_unicode_text_has_the_ids_of_tiktoken_and_decodes_to_itself(
    encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]], texts: list[str]
) -> None:
    runs = split(encoder.encode(texts))

    assert runs == [tiktoken_ids(text) for text in texts]
    assert [encoder.decode(np.array(run, np.int32)) for run in runs] == texts


BLANKS = [" ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\x85", "\x1c", "\0", "\ufeff", "\u200d"]
WORDS = ["a", "A", "ǅ", "ʰ", "漢", "\u0301", "\u1ad0", "ſ", "K", "'t", "'LL", "’s", "1", "٣", "²", "/", "!", "🙂"]
AWKWARD = st.lists(st.sampled_from([*BLANKS, *WORDS, "<|endoftext|>"])).map("".join)


@given(text=AWKWARD)
@settings(max_examples=500)
def test_blanks_marks_contractions_and_digits_in_any_order_have_the_ids_of_tiktoken(
    encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]], text: str
) -> None:
    assert encoder.encode([text]).ids.tolist() == tiktoken_ids(text)


def test_the_name_of_a_special_token_in_a_text_is_encoded_as_characters(
    encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]]
) -> None:
    names = [*SPECIAL_TOKENS, "<|endofprompt|>"]

    runs = split(encoder.encode(names))

    assert runs == [tiktoken_ids(name) for name in names]
    assert max(map(max, runs)) < NUM_RANKS
    assert runs[names.index("<|endoftext|>")] == [27, 91, 419, 1440, 919, 91, 29]


CONTROLLED = st.lists(
    st.sampled_from([*CONTROL_TOKENS, *CONTROL_TOKENS[0], *BLANKS, *WORDS, "<|endoftext|>", "<|end", "\u088f"])
)


@given(texts=st.lists(CONTROLLED.map("".join), max_size=3))
@settings(max_examples=300)
def test_text_around_control_tokens_is_encoded_separately(encoder: HarmonyEncoder, texts: list[str]) -> None:
    raw = [text.encode() for text in texts]

    encoded = encoder.encode_controlled(raw, CONTROL_TOKENS)

    expected = HarmonyEncoder(VOCABULARY_PATH, VOCABULARY_SHA256, "tiktoken").encode_controlled(raw, CONTROL_TOKENS)
    assert [row.ids.tolist() for row in encoded] == [row.ids.tolist() for row in expected]
    assert [row.control_positions.tolist() for row in encoded] == [row.control_positions.tolist() for row in expected]
    assert {row.ids.dtype for row in (*encoded, *expected)} <= {np.dtype(np.int32)}


@pytest.mark.parametrize(
    "text",
    [
        "a" * 10**6,
        "漢" * 10**6,
        "\n" * 1_200_000,
        "from" + " " * 999_998 + "to",
        "from" + "\u3000" * 999_998 + "to",
        *(pytest.param(character * 10**6, marks=pytest.mark.slow) for character in "A\u0301!7\0"),
    ],
    ids=["a", "漢", "newlines", "blanks", "wide blanks", "A", "accent", "!", "7", "NUL"],
)
def test_a_million_of_one_character_has_the_ids_of_tiktoken(
    encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]], text: str
) -> None:
    assert encoder.can_encode(text)
    assert encoder.encode([text]).ids.tolist() == tiktoken_ids(text)


def test_the_longest_encodable_runs_of_blanks_are_scanned_once(encoder: HarmonyEncoder) -> None:
    """A scan from each of the blanks would need half a million million steps."""
    assert encoder.can_encode((" " * 999_998 + "x") * 2)


@pytest.mark.parametrize("text", [" " * 999_999, "from" + " " * 1_200_000 + "to", " \t" * 500_000, "\u3000" * 999_999])
def test_a_million_blanks_in_a_row_are_recognized_as_unencodable(
    encoder: HarmonyEncoder, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not encoder.can_encode(text)
    os.write(2, b"after it\n")

    assert capfd.readouterr().err == "after it\n"


@pytest.mark.parametrize(
    ("name", "texts"),
    [("fineweb_edu_texts.jsonl", 150), ("fineweb_v1_300_partial.jsonl", 300), ("fineweb2_jpn_100.jsonl", 100)],
)
def test_web_texts_have_the_ids_of_tiktoken(
    encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]], shared_data: Path, name: str, texts: int
) -> None:
    lines = (shared_data / "fineweb" / name).read_text(encoding="utf-8").splitlines()
    pages = [json.loads(line)["text"] for line in lines]

    runs = split(encoder.encode(pages))

    assert len(pages) == texts
    assert runs == [tiktoken_ids(page) for page in pages]


@pytest.fixture(scope="module")
def contractions_by_tiktoken(tiktoken_ids: Callable[[str], list[int]]) -> list[list[int]]:
    """Encode each code point before 't; the split shows if it is a letter or a mark."""
    return [tiktoken_ids(f"{character}'t") for character in UNICODE]


def test_some_code_points_have_tiktokens_ids(encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]]) -> None:
    texts = [f"{character}'t" for character in random.Random(200).sample(UNICODE, 20_000)]

    assert split(encoder.encode(texts)) == [tiktoken_ids(text) for text in texts]


@pytest.mark.slow
def test_all_code_points_have_tiktokens_ids(encoder: HarmonyEncoder, contractions_by_tiktoken: list[list[int]]) -> None:
    runs = encoder.encode([f"{character}'t" for character in UNICODE])

    assert len(UNICODE) == 1_112_064
    assert runs.lengths.tolist() == [len(ids) for ids in contractions_by_tiktoken]
    assert runs.ids.tolist() == [token for ids in contractions_by_tiktoken for token in ids]


@pytest.mark.slow
def test_exactly_the_code_points_that_gigatoken_misclassifies_are_encoded_by_tiktoken(
    contractions_by_tiktoken: list[list[int]],
) -> None:
    fast = gigatoken.Tokenizer.from_tiktoken(VOCABULARY_PATH, pretokenizer="o200k", special_tokens={})
    layout = fast.encode_batch([f"{character}'t".encode() for character in UNICODE], parallel=False).layout
    ids, ends = np.asarray(layout.content.data).tolist(), np.asarray(layout.offsets.data).tolist()

    different = {
        character
        for number, character in enumerate(UNICODE)
        if ids[ends[number] : ends[number + 1]] != contractions_by_tiktoken[number]
    }

    by_tiktoken = {character for character in UNICODE if o200k_harmony._may_split_differently(character.encode())}
    assert different == by_tiktoken
    assert len(different) == 4_699


def test_texts_encoded_by_tiktoken_keep_their_position_in_the_batch(
    encoder: HarmonyEncoder, tiktoken_ids: Callable[[str], list[int]]
) -> None:
    texts = ["\U0002cea2's", "plain", "", "\u088f and \ua7ce", "🙂", "\U000323b0"]

    runs = split(encoder.encode(texts))

    assert runs == [tiktoken_ids(text) for text in texts]
    assert split(encoder.encode(texts[:1])) == [tiktoken_ids(texts[0])]


def test_without_gigatoken_tiktoken_encodes_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tiktoken_ids: Callable[[str], list[int]]
) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    texts = ["Hello, world!", "", "\U0002cea2's", "<|endoftext|>"]

    with without_cached_tokenizers():
        encoder = load_encoder(VOCABULARY_SHA256)

    assert encoder.driver == "tiktoken"
    assert "tiktoken encodes to the same ids, more slowly" in caplog.text
    assert split(encoder.encode(texts)) == [tiktoken_ids(text) for text in texts]
    assert encoder.encode([]).ids.tolist() == []


@given(runs=st.lists(st.lists(st.integers(0, 200_000), max_size=4), max_size=6))
def test_added_ends_equal_those_of_a_loop(runs: list[list[int]]) -> None:
    ids = np.array([token for run in runs for token in run], np.int32)

    closed = TokenRuns(ids, np.array([len(run) for run in runs], np.int32), 12).with_ends(END_OF_TEXT)

    assert split(closed) == [[*run, END_OF_TEXT] for run in runs]
    assert (closed.ids.dtype, closed.text_bytes) == (np.int32, 12)


@given(texts=st.lists(ANY_TEXT, max_size=4), characters=st.integers(0, 3_000))
@settings(max_examples=30, deadline=None)
def test_ids_of_a_text_do_not_depend_on_other_texts_in_the_batch(
    encoder: HarmonyEncoder, texts: list[str], characters: int
) -> None:
    extras = ["a café of many words \U00011dd2 " * (characters // 20), ""]

    batch, single = encoder.encode([*texts, *extras]), [encoder.encode([text]) for text in [*texts, *extras]]

    assert split(batch) == [ids for runs in single for ids in split(runs)]
    assert batch.text_bytes == sum(runs.text_bytes for runs in single)


RANDOM_WORDS = """
import random
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from tests.harness.peak_memory import own_peak_mib

def words(seed):  # 4 MB that no cache has seen
    letters = random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=4_000_000)
    letters[8::9] = [" "] * len(letters[8::9])
    return ["".join(letters[start : start + 2000]) for start in range(0, len(letters), 2000)]

encoder = load_encoder(VOCABULARY_SHA256)
encoder.encode(words(0))
encoder.oracle
before = own_peak_mib()
for seed in range(1, 16):
    texts = words(seed)
    runs = encoder.encode(texts)
    first, last = runs.ids[: runs.lengths[0]].tolist(), runs.ids[-runs.lengths[-1] :].tolist()
    assert [first, last] == [encoder.oracle.encode_ordinary(text) for text in (texts[0], texts[-1])]
print(round(own_peak_mib() - before))
"""


@pytest.mark.slow
def test_memory_is_bounded_for_60_MB_of_new_words() -> None:  # noqa: N802
    command = [sys.executable, "-c", RANDOM_WORDS]

    growth_mib = int(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout)

    assert growth_mib < 400


SHORT_TEXTS = """
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from tests.harness.peak_memory import own_peak_mib
encoder = load_encoder(VOCABULARY_SHA256)
encoder.encode(["a"])
before = own_peak_mib()
encoder.encode(["ab't"] * 200_000)
print(round(own_peak_mib() - before))
"""


def test_the_ids_of_200_000_short_texts_take_less_than_a_kibibyte_each() -> None:
    command = [sys.executable, "-c", SHORT_TEXTS]

    growth_mib = int(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout)

    assert growth_mib < 195


def test_ids_are_correct_if_the_fast_tokenizer_restarts_with_every_batch(
    monkeypatch: pytest.MonkeyPatch, tiktoken_ids: Callable[[str], list[int]]
) -> None:
    monkeypatch.setattr(o200k_harmony, "resident_bytes", lambda: 0)
    monkeypatch.setattr(o200k_harmony, "_MAX_CACHE_BYTES", 0)
    encoder = load_encoder(VOCABULARY_SHA256)
    texts = ["".join(random.Random(seed).choices("ab c", k=50)) for seed in range(3)]

    runs = [encoder.encode([text]).ids.tolist() for text in texts]

    assert runs == [tiktoken_ids(text) for text in texts]


def test_the_fast_tokenizer_is_kept_if_other_objects_use_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(VOCABULARY_SHA256)
    encoder.encode(["a"])
    created: list[object] = []
    monkeypatch.setattr(gigatoken, "Tokenizer", created.append)
    monkeypatch.setattr(o200k_harmony, "_MAX_CACHE_BYTES", 16 << 20)

    other_memory = np.ones(32 << 20, np.uint8)
    encoder.encode(["b"])

    assert other_memory.all()
    assert not created
