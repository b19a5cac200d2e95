"""Pairs that faiss proposes, and the device on which it searches."""

import logging
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from dedup_build import deduplicate, list_decisions, recipe, write_corpus
from document_corpus import numbered
from plain_dedup import PlainDocument
from refusals import refusal

from pipeline_assets.corpus.dedup.neighbours import select_faiss_device
from pipeline_assets.corpus.dedup.proposal import DistanceLimit
from pipeline_assets.spine.errors import UsageError


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.9])
def test_share_of_near_pairs_follows_the_binomial_distribution(similarity: float, tmp_path: Path) -> None:
    """The texts of each pair have 100 shingles of one word, and share some."""
    distance = DistanceLimit(64, 16)
    shared = round(2 * 100 * similarity / (1 + similarity))
    documents = []
    for pair in range(300):
        first = 1000 * pair
        documents.append(PlainDocument(f"{pair}a", numbered(first, 100)))
        documents.append(PlainDocument(f"{pair}b", f"{numbered(first, shared)} {numbered(first + 500, 100 - shared)}"))
    sketches = {"shingle_words": 1, "bits": distance.bits, "max_distance": distance.max_distance, "seed": 1}
    rules = recipe(mode="near", threshold="0.3", faiss=sketches)

    decisions = list_decisions(deduplicate(tmp_path, write_corpus(tmp_path / "corpus", documents, 1000), rules))

    dropped_share = sum(decision.decision == "near_duplicate" for decision in decisions) / 300
    expected = distance.recall(shared / (200 - shared))
    assert abs(dropped_share - expected) <= 4 * np.sqrt(max(expected * (1 - expected), 1 / 300) / 300)


def test_missing_faiss_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)

    assert refusal(lambda: select_faiss_device(None), UsageError) == (
        "dedup.near.faiss: faiss is not installed; in the project's folder run "
        ".venv/bin/python -m pip install -c constraints.txt -e '.[faiss]', or use minhash"
    )


def test_cpu_searches_without_a_gpu_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "corpusmill"):
        device = select_faiss_device(1)

    if faiss.get_num_gpus() == 0:
        assert device is None
        assert [record.getMessage() for record in caplog.records] == [
            "faiss searches on the CPU (GPU 1 requested, 0 available)"
        ]
