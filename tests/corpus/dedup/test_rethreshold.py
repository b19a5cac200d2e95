"""A higher threshold from the edges: what a deduplication at that threshold makes, to the digest."""

import tempfile
from pathlib import Path

import pytest
from dedup_build import INLINE, deduplicate, result_target, thorough, write_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_dedup import PlainDocument

from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, EDGES_FILE
from pipeline_assets.corpus.dedup.rethreshold import raised, rethreshold
from pipeline_assets.corpus.spine.errors import InputError, UsageError

WORDS = [f"w{number}" for number in range(12)]


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=16),
    st.sampled_from(["0.5", "0.6", "0.9", "1"]),
    st.sampled_from(["near", "both"]),
    st.sampled_from(["first", "longest"]),
)
@pytest.mark.slow
def test_it_is_a_deduplication_at_that_threshold(texts: list[str], threshold: str, mode: str, selection: str) -> None:
    documents = [PlainDocument(f"d{number}", text, "ab"[number % 2]) for number, text in enumerate(texts)]
    rules = thorough(mode=mode, selection=selection, threshold="0.3", shingle_words=2)
    with tempfile.TemporaryDirectory() as folder:
        sources = write_corpus(Path(folder) / "corpus", documents, 5)
        low = deduplicate(Path(folder) / "low", sources, rules)
        higher = raised(rules, threshold, low.folder)
        afresh = deduplicate(Path(folder) / "afresh", sources, higher)

        from_edges = result_target(higher, sources).build(
            Path(folder) / "edges", lambda building: rethreshold(building, low, sources, higher, INLINE, {}), False, {}
        )

        assert from_edges.manifest.digest == afresh.manifest.digest
        assert from_edges.manifest.storage == afresh.manifest.storage


def test_a_lower_threshold_is_refused_since_its_edges_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"its edges are those of 0.7 and above, 0.65 is below"):
        raised(thorough(), "0.65", "here")


def test_exact_copies_have_no_threshold() -> None:
    with pytest.raises(UsageError, match="it found exact copies only, at no threshold"):
        raised(thorough(mode="exact"), "0.9", "here")


@pytest.mark.parametrize("name", [EDGES_FILE, DECISIONS_FILE])
def test_edited_edges_or_decisions_are_named(tmp_path: Path, name: str) -> None:
    rules = thorough(threshold="0.3", shingle_words=2)
    documents = [PlainDocument(f"d{number}", f"a b c d e f {number}") for number in range(4)]
    sources = write_corpus(tmp_path / "corpus", documents, 5)
    low = deduplicate(tmp_path / "low", sources, rules)
    data = bytearray(low.path(name).read_bytes())
    data[len(data) // 2] ^= 1
    low.path(name).chmod(0o644)
    low.path(name).write_bytes(data)

    with pytest.raises(
        InputError, match=r"sha256 .* build it again: corpusmill rebuild .*low/result --put-back"
    ) as refused:
        result_target(rules, sources).build(
            tmp_path / "edges", lambda building: rethreshold(building, low, sources, rules, INLINE, {}), False, {}
        )

    assert str(refused.value.where).endswith(name)
