"""Repeated windows of documents, compared with slow and simple code.

Shards, workers, memory and the position in a document change no result.
"""

import functools
import itertools
import random
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_windows import plain_hash, plain_repeats, plain_windows

from pipeline_assets.corpus.dedup import repeated_windows
from pipeline_assets.corpus.dedup.repeated_windows import ShardRepeats, find_repeating_documents, load_kernels
from pipeline_assets.corpus.dedup.window_hashes import select_windows
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.filters.recipe import WindowRecipe
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.spine.engine import RunSettings, stage_runner
from pipeline_assets.spine.staging import StagingView
from pipeline_assets.spine.task import run_task

INLINE = RunSettings(workers=0)
TIGHT = RunSettings(workers=0, worker_bytes=0)
PASSAGES = [b"the quick brown fox ", b"jumps over a lazy dog", b" and runs to the river", b"ab" * 12, b"!"]
texts_of_passages = st.lists(st.sampled_from(PASSAGES), max_size=6).map(b"".join)


def write_shards(
    folder: Path, texts: Sequence[bytes], cuts: Sequence[int], licences: Sequence[str]
) -> list[DocumentShard]:
    """Write texts in order, in shards that begin at the first text and at `cuts`."""
    shards, edges = [], [0, *cuts, len(texts)]
    for name, (start, stop) in enumerate(itertools.pairwise(edges)):
        path = folder / f"{name:05d}.jsonl.zst"
        with JsonlZstWriter(path, 3) as writer:
            for number in range(start, stop):
                meta = Meta.from_mapping("a", number, {})
                document = Document(texts[number].decode(), "pages", "web", f"p-{number}", licences[number], "", meta)
                writer.write_lines(msgspec.json.encode(document) + b"\n", 1)
        shards.append(DocumentShard(f"{name:05d}", f"shards/{path.name}", path, stop - start))
    return shards


def find_repeats(
    texts: Sequence[bytes],
    recipe: WindowRecipe,
    cuts: Sequence[int] = (),
    engine: RunSettings = INLINE,
    licences: Sequence[str] | None = None,
    refused: frozenset[str] = frozenset(),
) -> dict[int, float]:
    """Return the repeated share of each dropped document, by its number."""
    with tempfile.TemporaryDirectory() as temporary:
        shards = write_shards(Path(temporary), texts, cuts, licences or ["cc0"] * len(texts))
        run = stage_runner(run_task, engine, load_kernels)
        repeats = find_repeating_documents(run, StagingView(Path(temporary)), shards, recipe, refused, engine)
        return {
            shard.dropped_range.low + row: share for shard in repeats for row, share in shard.shares_by_row().items()
        }


def window_recipe(window_bytes: int = 8, every: int = 2, max_share: str = "0.5") -> WindowRecipe:
    return WindowRecipe(window_bytes=window_bytes, every=every, max_share=max_share)


@settings(max_examples=150)
@given(
    texts=st.lists(texts_of_passages, max_size=12),
    recipe=st.builds(
        window_recipe, st.integers(1, 24), st.integers(1, 8), st.sampled_from(["0", "0.25", "0.5", "0.333333333", "1"])
    ),
    data=st.data(),
)
def test_repeats_in_any_shards_equal_slow_and_simple_code(
    texts: list[bytes], recipe: WindowRecipe, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(texts)), max_size=3).map(sorted))

    repeats = find_repeats(texts, recipe, cuts)

    assert repeats == plain_repeats(texts, recipe.window_bytes, recipe.every, Fraction(recipe.max_share))


@pytest.mark.parametrize(
    "engine", [RunSettings(1), RunSettings(2), TIGHT], ids=["1 worker", "2 workers", "little memory"]
)
@pytest.mark.usefixtures("small_shares")
def test_workers_and_memory_do_not_change_repeats(engine: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_windows, "_RUN_ROWS", 40)
    monkeypatch.setattr(repeated_windows, "read_documents", functools.partial(read_documents, block_bytes=1))
    texts = [PASSAGES[number % 4] + b"%d" % (number // 2) + PASSAGES[number % 3] for number in range(80)]

    repeats = find_repeats(texts, window_recipe(), [10, 10, 47], engine)

    assert repeats == plain_repeats(texts, 8, 2, Fraction(1, 2))
    assert 0 < len(repeats) < 80


def test_document_is_dropped_only_above_the_share() -> None:
    texts = [b"abcd", b"ef", b"abef"]

    windows = {share: find_repeats(texts, window_recipe(2, 1, share)) for share in ("0.66", "0.67", "0.666666666")}

    assert windows == {"0.66": {2: 2 / 3}, "0.67": {}, "0.666666666": {2: 2 / 3}}


def test_documents_under_a_refused_licence_are_ignored() -> None:
    texts = [b"some text that is not short"] * 3

    repeats = find_repeats(texts, window_recipe(), licences=["secret", "cc0", "cc0"], refused=frozenset({"secret"}))

    assert repeats == {2: 1.0}


def test_shard_reports_its_own_rows(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [b"a", b"b", b"a", b"a"], [1, 3], ["cc0"] * 4)

    run = stage_runner(run_task, INLINE, load_kernels)
    repeats: list[ShardRepeats] = find_repeating_documents(
        run, StagingView(tmp_path), shards, window_recipe(), frozenset(), INLINE
    )

    assert [shard.shares_by_row() for shard in repeats] == [{}, {1: 1.0}, {0: 1.0}]
    assert [shard.poison_rows for shard in repeats] == [frozenset()] * 3


def select_hashes(texts: list[bytes], window_bytes: int = 256, every: int = 64) -> list[list[int]]:
    """Return the selected hashes of each text."""
    hashes, window_counts = select_windows(texts, window_bytes, every)
    return [part.tolist() for part in np.split(hashes, np.cumsum(window_counts)[:-1])]


def random_text(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@given(
    texts=st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), min_size=1, max_size=6),
    window_bytes=st.integers(1, 12),
    every=st.integers(1, 9),
)
def test_selected_windows_of_any_texts_equal_simple_code(texts: list[bytes], window_bytes: int, every: int) -> None:
    assert select_hashes(texts, window_bytes, every) == [plain_windows(text, window_bytes, every) for text in texts]


def test_hash_of_a_window_does_not_change() -> None:
    assert select_hashes([b"", b"a", bytes(1), bytes(2)], every=1) == [
        [0],
        [plain_hash(b"a")],
        [6238072747940578789],
        [plain_hash(bytes(2))],
    ]


@pytest.mark.parametrize("shift", [1, 7, 63, 64, 65, 255, 256, 1000])
def test_moved_passage_keeps_its_windows(shift: int) -> None:
    passage = random_text(5000, seed=1)
    [original] = select_hashes([passage])

    [moved] = select_hashes([random_text(shift, seed=2) + passage + random_text(100, seed=3)])

    assert len(original) > 50
    assert set(original) <= set(moved)


def test_no_texts_have_no_windows() -> None:
    assert [part.tolist() for part in select_windows([], 256, 64)] == [[], []]
