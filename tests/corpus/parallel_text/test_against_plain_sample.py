"""Samples equal those of plain Python: pairs, drop reasons and splits."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_sample import Row, draw_classic, draw_weighted, splits
from sentence_pairs import lines_file

from pipeline_assets.corpus.parallel_text.draw import draw_pairs
from pipeline_assets.corpus.parallel_text.sample import SampleRecipe, assign_splits

WORDS = ["mer", "ﬁn", "été", "e\u0301té", "日本", "ⅷ"]


def random_rows(rng: random.Random) -> list[Row]:
    """Return rows of few words, so that texts repeat, also in other Unicode forms."""

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.choice([1, 1, 2, 3]))) + rng.choice(["", " ", "\n", "."])

    return [(text(), text(), rng.choice([0.5, 1, 3, 100.0])) for _ in range(rng.randint(1, 60))]


@pytest.mark.parametrize("algorithm", ["classic", "es_weighted"])
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 2**32).map(lambda seed: random_rows(random.Random(seed))),
    k=st.integers(1, 30),
    seed=st.integers(0, 999),
    duplicates=st.sampled_from(["within", "keep"]),
    shares=st.tuples(st.integers(1, 9), st.integers(0, 4), st.integers(0, 4)),
)
def test_draw_ledger_and_splits_equal_plain_python(
    algorithm: str, rows: list[Row], k: int, seed: int, duplicates: str, shares: tuple[int, int, int]
) -> None:
    weight = "column:w" if algorithm == "es_weighted" else None
    recipe = SampleRecipe.model_validate(
        {"k": k, "seed": seed, "algorithm": algorithm, "weight": weight, "filters": None, "duplicates": duplicates}
        | {"splits": dict(zip(("train", "val", "test"), shares, strict=True))}
    )
    with tempfile.TemporaryDirectory() as folder:
        lines = [{"translation": {"fr": src, "en": tgt}, "w": w} for src, tgt, w in rows]
        drawn = draw_pairs([lines_file(Path(folder, "pairs.jsonl"), lines)], recipe)

    draw = draw_classic if algorithm == "classic" else draw_weighted
    expected, dropped = draw(rows, k, seed, keep=duplicates == "keep")
    assert [(pair.src_text, pair.tgt_text) for pair in drawn.pairs] == [row[:2] for row in expected]
    assert (drawn.ledger.rows_in, drawn.ledger.out, drawn.ledger.dropped) == (len(rows), len(expected), dropped)
    uids = [pair.uid for pair in drawn.pairs]
    assert assign_splits(drawn.pairs, recipe.splits, seed) == splits(uids, expected, shares, seed)
