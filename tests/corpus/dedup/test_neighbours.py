"""faiss as another proposer: the same verification and the same rule, on whatever device it searches."""

import logging
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import faiss
import numpy as np
import pytest
from dedup_build import INLINE, SMALL_SHARES, by_faiss, decisions_of, deduplicate, recipe, sign, write_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_dedup import PlainDocument, decide

from pipeline_assets.corpus.dedup.candidates import searching_device
from pipeline_assets.corpus.dedup.decision import EDGES_FILE
from pipeline_assets.corpus.dedup.recipe import Distance, smallest_distance
from pipeline_assets.corpus.spine.errors import UsageError

WORDS = [f"w{number}" for number in range(12)]
texts_of_a_month = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=12)


def numbered(first: int, count: int) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts_of_a_month,
    texts_of_a_month,
    st.sampled_from(["near", "both"]),
    st.sampled_from(["global", "per-source"]),
    st.sampled_from(["first", "longest"]),
    st.sampled_from(["0.4", "0.8"]),
)
def test_decisions_are_those_of_the_plain_rule_over_all_pairs_seen_before_or_not(
    past: list[str], new: list[str], mode: str, scope: str, selection: str, threshold: str
) -> None:
    rules = by_faiss(mode=mode, scope=scope, selection=selection, threshold=threshold, shingle_words=2)
    plain = {"mode": mode, "scope": scope, "selection": selection, "threshold": Fraction(threshold), "n": 2}
    before, after = (
        sorted((PlainDocument(f"{name}{n}", text, "ab"[n % 2]) for n, text in enumerate(texts)), key=lambda d: d.source)
        for name, texts in (("past", past), ("new", new))
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = deduplicate(folder / "past", write_corpus(folder / "old", before, 5), rules)
        found = decisions_of(first)
        store = sign(folder, first, rules)
        against = decisions_of(deduplicate(folder, write_corpus(folder / "corpus", after, 5), rules, past=store))

    kept = [document for document, one in zip(before, found, strict=True) if one.decision == "kept"]
    assert [(one.doc_id, one.decision, one.duplicate_of) for one in found] == [
        (one.doc_id, one.decision, one.duplicate_of) for one in decide(before, **plain)
    ]
    assert [(one.doc_id, one.decision, one.duplicate_of) for one in against] == [
        (one.doc_id, one.decision, one.duplicate_of) for one in decide(after, seen=kept, **plain)
    ]


def test_workers_and_the_size_of_shards_change_no_decision_and_no_edge(tmp_path: Path, small_shares: None) -> None:
    documents = [PlainDocument(f"d{number}", numbered(number * 3 % 40, 30 + number % 2)) for number in range(120)]
    sketches = {"shingle_words": 5, "bits": 128, "max_distance": 40, "seed": 1}
    rules = recipe(faiss=sketches, max_compared=4)

    plain = deduplicate(tmp_path / "plain", write_corpus(tmp_path / "one", documents, 1000), rules)
    other = deduplicate(tmp_path / "other", write_corpus(tmp_path / "many", documents, 7), rules, SMALL_SHARES)

    places = [[(one.doc_id, one.decision, one.duplicate_of) for one in decisions_of(made)] for made in (plain, other)]
    assert places[0] == places[1]
    assert {decision for _, decision, _ in places[0]} == {"kept", "near_duplicate", "exact_duplicate"}
    assert other.path(EDGES_FILE).read_bytes() == plain.path(EDGES_FILE).read_bytes()
    assert plain.manifest.identity.counts["comparisons"]["capped_documents"] > 0


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.9])
def test_so_many_pairs_are_near_as_the_binomial_distribution_says(similarity: float, tmp_path: Path) -> None:
    """Two texts of `count` shingles of one word that share so many; 300 pairs."""
    distance = Distance(64, 16)
    shared = round(2 * 100 * similarity / (1 + similarity))
    documents = []
    for pair in range(300):
        first = 1000 * pair
        documents.append(PlainDocument(f"{pair}a", numbered(first, 100)))
        documents.append(PlainDocument(f"{pair}b", f"{numbered(first, shared)} {numbered(first + 500, 100 - shared)}"))
    sketches = {"shingle_words": 1, "bits": distance.bits, "max_distance": distance.max_distance, "seed": 1}
    rules = recipe(mode="near", threshold="0.3", faiss=sketches)

    found = decisions_of(deduplicate(tmp_path, write_corpus(tmp_path / "corpus", documents, 1000), rules))

    went = sum(one.decision == "near_duplicate" for one in found) / 300
    expected = distance.proposes(shared / (200 - shared))
    assert abs(went - expected) <= 4 * np.sqrt(max(expected * (1 - expected), 1 / 300) / 300)


def test_the_smallest_distance_that_finds_enough_is_recommended() -> None:
    assert smallest_distance(256, 0.7, 0.95) == Distance(256, 48)
    assert Distance(256, 48).proposes(0.7) >= 0.95 > Distance(256, 47).proposes(0.7)


def test_without_faiss_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)

    with pytest.raises(UsageError) as refused:
        searching_device(None)

    assert str(refused.value) == (
        "dedup.near.faiss: faiss isn't installed; in the project's folder run "
        ".venv/bin/python -m pip install -c constraints.txt -e '.[faiss]', or let minhash propose"
    )


def test_without_a_gpu_the_cpu_searches_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "corpusmill"):
        device = searching_device(1)

    if faiss.get_num_gpus() == 0:
        assert device is None
        assert [record.getMessage() for record in caplog.records] == [
            "faiss searches on the CPU (GPU 1 is asked for, 0 can be used)"
        ]


@pytest.mark.parametrize(
    ("sketches", "message"),
    [
        ({"bits": 100}, "multiple of 8"),
        ({"max_distance": 128}, "half of them differ by chance"),
    ],
)
def test_sketches_that_make_no_sense_are_refused(sketches: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(faiss={"shingle_words": 5, "bits": 256, "max_distance": 50, "seed": 1} | sketches)


def test_a_store_of_bands_is_no_store_of_sketches(tmp_path: Path) -> None:
    sources = write_corpus(tmp_path / "corpus", [PlainDocument("d0", numbered(0, 30))], 10)
    store = sign(tmp_path, deduplicate(tmp_path, sources, recipe()), recipe())

    with pytest.raises(UsageError, match="the store has proposer minhash; this run proposer faiss"):
        deduplicate(tmp_path / "next", sources, by_faiss(), INLINE, past=store)
