"""faiss as another proposer: how many pairs it finds, and on which device it searches."""

import logging
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from dedup_build import decisions_of, deduplicate, recipe, write_corpus
from document_corpus import numbered
from plain_dedup import PlainDocument
from refusals import refusal

from pipeline_assets.corpus.dedup.neighbours import select_faiss_device
from pipeline_assets.corpus.dedup.proposal import DistanceLimit
from pipeline_assets.spine.errors import UsageError


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.9])
def test_so_many_pairs_are_near_as_the_binomial_distribution_says(similarity: float, tmp_path: Path) -> None:
    """Two texts of `count` shingles of one word that share so many; 300 pairs."""
    distance = DistanceLimit(64, 16)
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
    expected = distance.recall(shared / (200 - shared))
    assert abs(went - expected) <= 4 * np.sqrt(max(expected * (1 - expected), 1 / 300) / 300)


def test_without_faiss_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)

    assert refusal(lambda: select_faiss_device(None), UsageError) == (
        "dedup.near.faiss: faiss is not installed; in the project's folder run "
        ".venv/bin/python -m pip install -c constraints.txt -e '.[faiss]', or use minhash"
    )


def test_without_a_gpu_the_cpu_searches_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "corpusmill"):
        device = select_faiss_device(1)

    if faiss.get_num_gpus() == 0:
        assert device is None
        assert [record.getMessage() for record in caplog.records] == [
            "faiss searches on the CPU (GPU 1 requested, 0 available)"
        ]
