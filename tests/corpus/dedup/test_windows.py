"""Windows of text: the same ones as slow and simple code selects, wherever in a document they stand."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_windows import plain_hash, plain_windows

from pipeline_assets.corpus.dedup.repeated_windows import select_windows


def selected(texts: list[bytes], window_bytes: int = 256, every: int = 64) -> list[list[int]]:
    """The hashes that are selected of each text."""
    found = select_windows(texts, window_bytes, every)
    return [part.tolist() for part in np.split(found.hashes, np.cumsum(found.windows)[:-1])]


def random_text(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@given(
    texts=st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), min_size=1, max_size=6),
    window_bytes=st.integers(1, 12),
    every=st.integers(1, 9),
)
def test_any_texts_have_the_windows_that_slow_and_simple_code_selects(
    texts: list[bytes], window_bytes: int, every: int
) -> None:
    assert selected(texts, window_bytes, every) == [plain_windows(text, window_bytes, every) for text in texts]


def test_real_texts_do_too(shared_data: Path) -> None:
    lines = (shared_data / "fineweb" / "fineweb_v1_300_partial.jsonl").read_text(encoding="utf-8").splitlines()[:30]
    texts = [json.loads(line)["text"].encode()[:3000] for line in lines]

    assert selected(texts) == [plain_windows(text, 256, 64) for text in texts]


def test_the_hash_of_a_window_is_what_it_was() -> None:
    assert selected([b"", b"a", bytes(1), bytes(2)], every=1) == [
        [0],
        [plain_hash(b"a")],
        [6238072747940578789],
        [plain_hash(bytes(2))],
    ]


@pytest.mark.parametrize("shift", [1, 7, 63, 64, 65, 255, 256, 1000])
def test_a_passage_has_its_windows_wherever_it_is_moved(shift: int) -> None:
    passage = random_text(5000, seed=1)
    [own] = selected([passage])

    [moved] = selected([random_text(shift, seed=2) + passage + random_text(100, seed=3)])

    assert len(own) > 50
    assert set(own) <= set(moved)


@pytest.mark.parametrize("every", [1, 16, 64])
def test_about_one_window_in_so_many_is_selected(every: int) -> None:
    [found] = selected([random_text(200_000, seed=4)], every=every)

    assert len(found) == pytest.approx((200_000 - 255) / every, rel=0.1)


def test_a_text_as_long_as_a_window_or_shorter_is_one_window() -> None:
    texts = [random_text(size, seed=5) for size in (1, 255, 256)]

    assert selected(texts, every=1) == [[plain_hash(text)] for text in texts]


def test_of_windows_of_which_none_would_be_selected_the_one_with_the_smallest_hash_is() -> None:
    text = random_text(300, seed=6)

    assert selected([text], every=1 << 32) == [[min(plain_hash(text[start : start + 256]) for start in range(45))]]


def test_no_texts_have_no_windows() -> None:
    assert [part.tolist() for part in select_windows([], 256, 64)] == [[], []]
