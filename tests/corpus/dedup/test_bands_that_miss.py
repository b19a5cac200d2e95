"""Deduplication with few bands and full buckets, compared with plain Python.

The oracle of the other tests compares all pairs; here datasketch's signatures decide which pairs are compared.
"""

import itertools
import random
import tempfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import datasketch
import pyarrow.parquet as pq
import pytest
from dedup_build import INLINE, SMALL_SHARES, deduplicate, list_decisions, recipe, write_corpus
from plain_dedup import PlainDocument, shingles

from pipeline_assets.corpus.dedup.minhash import shingle_sets
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.spine.engine import RunSettings


def build_documents(chance: random.Random) -> list[PlainDocument]:
    """Build copies of three texts, each with a few other words."""
    words = [f"w{number}" for number in range(chance.choice([5, 40]))]
    texts = [chance.choices(words, k=chance.randint(3, 40)) for _ in range(3)]
    documents = []
    for number in range(chance.randint(2, 30)):
        text = [*chance.choice(texts)]
        for _ in range(chance.choice([0, 1, 2, 4])):
            text[chance.randrange(len(text))] = chance.choice(words)
        documents.append(PlainDocument(f"d{number}", " ".join(text)))
    return documents


def signature(text: str, n: int, permutations: int) -> list[int]:
    hashes, _ = shingle_sets(normalize([text.encode()]), n)
    sketch = datasketch.MinHash(permutations, seed=1, hashfunc=lambda value: value, scheme="affine32")
    sketch.update_batch([int(value) & 0xFFFFFFFF for value in hashes])
    return sketch.hashvalues.tolist()


def compared_pairs(
    documents: list[PlainDocument], n: int, bands: int, rows: int, cap: int
) -> tuple[set[tuple[int, int]], int]:
    """Return pairs (later, earlier) that share a band, and count capped buckets."""
    buckets = defaultdict[tuple[int, ...], list[int]](list)
    for number, document in enumerate(documents):
        if shingles(document.text, n):
            numbers = signature(document.text, n, bands * rows)
            adjacent = [numbers[band * rows : (band + 1) * rows] for band in range(bands)]
            apart = [numbers[band::bands] for band in range(bands)] if bands > 1 and rows > 1 else []
            for band, values in enumerate([*adjacent, *apart]):
                buckets[band, *values].append(number)
    pairs = {
        (later, earlier)
        for bucket in buckets.values()
        for place, later in enumerate(bucket)
        for earlier in bucket[: min(place, cap)]
    }
    return pairs, sum(len(bucket) > cap + 1 for bucket in buckets.values())


@pytest.mark.parametrize(
    ("settings", "seed"), [*itertools.product([INLINE], range(12)), (SMALL_SHARES, 12), (RunSettings(2), 13)]
)
def test_decisions_and_edges_are_those_of_the_pairs_that_bands_propose(settings: RunSettings, seed: int) -> None:
    chance = random.Random(seed)
    documents, n, threshold = build_documents(chance), chance.randint(1, 3), chance.choice(["0.3", "0.5", "0.7"])
    (bands, rows), cap = chance.choice([(2, 3), (1, 4), (8, 1), (5, 2), (14, 8)]), chance.choice([1, 2, 3, 100])
    banding = {"shingle_words": n, "permutations": bands * rows, "bands": bands, "rows": rows, "max_compared": cap}

    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder, "corpus"), documents, 7)
        result = deduplicate(Path(folder), corpus, recipe(mode="near", threshold=threshold, **banding), settings)
        decisions = {fate.doc_id: (fate.duplicate_of, fate.similarity) for fate in list_decisions(result)}
        edges = pq.read_table(result.path("edges.parquet"))

    pairs, capped = compared_pairs(documents, n, bands, rows, cap)
    sets = [shingles(document.text, n) for document in documents]
    similar = {pair: Fraction(len(sets[pair[0]] & sets[pair[1]]), len(sets[pair[0]] | sets[pair[1]])) for pair in pairs}
    similar = {pair: value for pair, value in similar.items() if value >= Fraction(threshold)}
    kept, expected = list[int](), dict[str, tuple[str | None, float | None]]()
    for number, document in enumerate(documents):
        near = [(similar[number, other], -other) for other in kept if (number, other) in similar]
        expected[document.doc_id] = (documents[-max(near)[1]].doc_id, float(max(near)[0])) if near else (None, None)
        kept += [] if near else [number]
    assert decisions == expected
    names = zip(edges["doc_id"].to_pylist(), edges["other_doc_id"].to_pylist(), strict=True)
    assert sorted(names) == sorted((documents[later].doc_id, documents[earlier].doc_id) for later, earlier in similar)
    assert result.manifest.identity.counts["comparisons"]["capped_buckets"] == capped
