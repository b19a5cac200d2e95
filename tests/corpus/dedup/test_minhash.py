"""Signatures are datasketch's, given the same hashes and permutations; bands are shared by what has equal rows."""

import itertools

import datasketch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.dedup.minhash import band_keys, binary_sketches, minhash_signatures, shingle_sets
from pipeline_assets.corpus.dedup.recipe import MinHashRecipe
from pipeline_assets.corpus.dedup.words import normalize


def recipe_of(**changes: int) -> MinHashRecipe:
    return MinHashRecipe.model_validate(
        {"shingle_words": 3, "permutations": 32, "bands": 8, "rows": 4, "seed": 7} | changes
    )


def by_datasketch(text: str, recipe: MinHashRecipe) -> list[int]:
    """Its own MinHash of the lower halves of the same shingle hashes."""
    batch = normalize([text.encode()])
    shingles, _ = shingle_sets(batch, recipe.shingle_words)
    sketch = datasketch.MinHash(recipe.permutations, seed=recipe.seed, hashfunc=lambda h: h, scheme="affine32")
    sketch.update_batch([int(shingle) & 0xFFFFFFFF for shingle in shingles])
    return sketch.hashvalues.tolist()


def signed(texts: list[str], recipe: MinHashRecipe) -> np.ndarray:
    return minhash_signatures(normalize([text.encode() for text in texts]), recipe)


@given(
    st.lists(st.lists(st.sampled_from("abcdefg"), max_size=30).map(" ".join), min_size=1, max_size=6),
    st.integers(1, 6),
    st.sampled_from([1, 5, 16, 33, 112]),
    st.integers(0, 2**32 - 1),
)
def test_signatures_equal_those_of_datasketch(texts: list[str], n: int, permutations: int, seed: int) -> None:
    recipe = recipe_of(shingle_words=n, permutations=permutations, bands=permutations, rows=1, seed=seed)

    assert signed(texts, recipe).tolist() == [by_datasketch(text, recipe) for text in texts]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=30), max_size=5), st.integers(1, 4))
def test_sets_ascend_and_hold_as_many_hashes_as_there_are_different_shingles(texts: list[list[str]], n: int) -> None:
    batch = normalize([" ".join(words).encode() for words in texts])

    hashes, offsets = shingle_sets(batch, n)

    for words, (start, stop) in zip(texts, itertools.pairwise(offsets.tolist()), strict=True):
        assert stop - start == len({tuple(words[at : at + n]) for at in range(len(words) - n + 1)})
        assert (np.diff(hashes[start:stop].astype(object)) > 0).all()


def test_documents_share_a_key_for_each_band_of_either_cut_whose_rows_are_equal() -> None:
    rows = np.arange(32, dtype=np.uint32)
    other = rows.copy()
    other[[5, 31]] += 1

    keys = band_keys(np.array([rows, other]), 8, np.uint64(0))

    assert np.flatnonzero(keys[0, :8] != keys[1, :8]).tolist() == [1, 7]  # 4 to 7, and 28 to 31
    assert np.flatnonzero(keys[0, 8:] != keys[1, 8:]).tolist() == [5, 7]  # 5, 13, 21, 29 and 7, 15, 23, 31
    assert len(set(keys.ravel().tolist())) == 20


@pytest.mark.parametrize("bands", [1, 32])
def test_two_equal_cuts_are_one(bands: int) -> None:
    assert band_keys(np.zeros((3, 32), np.uint32), bands, np.uint64(0)).shape == (3, bands)


def test_equal_rows_of_two_bands_share_no_key_nor_do_documents_under_other_salts() -> None:
    same = np.zeros((1, 32), np.uint32)

    keys = [*band_keys(same, 8, np.uint64(0))[0].tolist(), *band_keys(same, 8, np.uint64(1))[0].tolist()]

    assert len(set(keys)) == 32


def test_sketches_of_short_texts_too_differ_in_as_many_bits_as_their_similarity_says() -> None:
    words = [f"w{number}" for number in range(12)]
    texts = [" ".join(np.random.default_rng(seed).choice(words, 2 + seed % 7)) for seed in range(120)]
    recipe = recipe_of(shingle_words=1, permutations=1024, bands=1024, rows=1)

    sketches = np.unpackbits(binary_sketches(signed(texts, recipe)), axis=1)

    deviations = []
    for one, other in itertools.combinations(range(len(texts)), 2):
        first, second = set(texts[one].split()), set(texts[other].split())
        differs = (1 - len(first & second) / len(first | second)) / 2
        error = (differs * (1 - differs) * 1024) ** 0.5
        deviations.append(abs(int((sketches[one] != sketches[other]).sum()) - differs * 1024) / max(error, 1))
    assert max(deviations) < 5  # of 7,140
    assert np.mean(deviations) < 0.9  # 0.8 for dice
