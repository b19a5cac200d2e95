"""MinHash signatures equal those of datasketch, and equal rows share a band key."""

import itertools

import datasketch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.dedup.minhash import band_keys, binary_sketches, minhash_signatures, shingle_sets
from pipeline_assets.corpus.dedup.recipe import MinHashRecipe
from pipeline_assets.corpus.dedup.words import normalize


def build_recipe(**changes: int) -> MinHashRecipe:
    return MinHashRecipe.model_validate(
        {"shingle_words": 3, "permutations": 32, "bands": 8, "rows": 4, "seed": 7} | changes
    )


def datasketch_signature(text: str, recipe: MinHashRecipe) -> list[int]:
    """Compute datasketch's MinHash of the lower halves of the shingle hashes."""
    batch = normalize([text.encode()])
    shingles, _ = shingle_sets(batch, recipe.shingle_words)
    sketch = datasketch.MinHash(recipe.permutations, seed=recipe.seed, hashfunc=lambda h: h, scheme="affine32")
    sketch.update_batch([int(shingle) & 0xFFFFFFFF for shingle in shingles])
    return sketch.hashvalues.tolist()


def signatures(texts: list[str], recipe: MinHashRecipe) -> np.ndarray:
    return minhash_signatures(normalize([text.encode() for text in texts]), recipe)


@given(
    st.lists(st.lists(st.sampled_from("abcdefg"), max_size=30).map(" ".join), min_size=1, max_size=6),
    st.integers(1, 6),
    st.sampled_from([1, 5, 16, 33, 112]),
    st.integers(0, 2**32 - 1),
)
def test_signatures_equal_those_of_datasketch(texts: list[str], n: int, permutations: int, seed: int) -> None:
    recipe = build_recipe(shingle_words=n, permutations=permutations, bands=permutations, rows=1, seed=seed)

    assert signatures(texts, recipe).tolist() == [datasketch_signature(text, recipe) for text in texts]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=30), max_size=5), st.integers(1, 4))
def test_shingle_sets_ascend_with_one_hash_per_distinct_shingle(texts: list[list[str]], n: int) -> None:
    batch = normalize([" ".join(words).encode() for words in texts])

    hashes, offsets = shingle_sets(batch, n)

    for words, (start, stop) in zip(texts, itertools.pairwise(offsets.tolist()), strict=True):
        assert stop - start == len({tuple(words[at : at + n]) for at in range(len(words) - n + 1)})
        assert (np.diff(hashes[start:stop].astype(object)) > 0).all()


def test_documents_share_the_keys_of_equal_bands_of_either_cut() -> None:
    rows = np.arange(32, dtype=np.uint32)
    other = rows.copy()
    other[[5, 31]] += 1

    keys = band_keys(np.array([rows, other]), 8, np.uint64(0))

    assert np.flatnonzero(keys[0, :8] != keys[1, :8]).tolist() == [1, 7]  # 4 to 7, and 28 to 31
    assert np.flatnonzero(keys[0, 8:] != keys[1, 8:]).tolist() == [5, 7]  # 5, 13, 21, 29 and 7, 15, 23, 31
    assert len(set(keys.ravel().tolist())) == 20


@pytest.mark.parametrize("bands", [1, 32])
def test_equal_cuts_have_one_set_of_keys(bands: int) -> None:
    assert band_keys(np.zeros((3, 32), np.uint32), bands, np.uint64(0)).shape == (3, bands)


def test_keys_of_equal_rows_differ_between_bands_and_salts() -> None:
    same = np.zeros((1, 32), np.uint32)

    keys = [*band_keys(same, 8, np.uint64(0))[0].tolist(), *band_keys(same, 8, np.uint64(1))[0].tolist()]

    assert len(set(keys)) == 32


def test_differing_bits_of_sketches_match_the_similarity_of_short_texts() -> None:
    words = [f"w{number}" for number in range(12)]
    texts = [" ".join(np.random.default_rng(seed).choice(words, 2 + seed % 7)) for seed in range(120)]
    recipe = build_recipe(shingle_words=1, permutations=1024, bands=1024, rows=1)

    sketches = np.unpackbits(binary_sketches(signatures(texts, recipe)), axis=1)

    deviations = []
    for i, j in itertools.combinations(range(len(texts)), 2):
        first, second = set(texts[i].split()), set(texts[j].split())
        differs = (1 - len(first & second) / len(first | second)) / 2
        error = (differs * (1 - differs) * 1024) ** 0.5
        deviations.append(abs(int((sketches[i] != sketches[j]).sum()) - differs * 1024) / max(error, 1))
    assert max(deviations) < 5  # of 7,140
    assert np.mean(deviations) < 0.9  # 0.8 for dice
