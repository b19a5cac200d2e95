"""Sources whose share is off their weight by more than a tenth are reported."""

from pathlib import Path

from pack_build import Doc, pack_documents, sized_documents

from pipeline_assets.corpus.packing.summary import shares_reached
from pipeline_assets.spine.artifact import Verdict


def check_shares(folder: Path, documents: list[Doc], weights: dict[str, str]) -> Verdict:
    """Run the check on a set of 100 rows of 10 tokens."""
    return shares_reached(pack_documents(folder, documents, 50, weights=weights, seq_len=10, num_seqs=100))


def test_sources_of_short_documents_reach_their_shares(tmp_path: Path) -> None:
    documents = [*sized_documents("a", [10] * 100), *sized_documents("b", [5] * 100)]

    verdict = check_shares(tmp_path, documents, {"a": "0.9", "b": "0.1"})

    assert verdict == Verdict(True, "each source is within a tenth of its weight", {"a": "0.900000", "b": "0.100000"})


def test_sources_of_long_documents_are_reported_with_the_cause(tmp_path: Path) -> None:
    documents = [*sized_documents("a", [400] * 2), *sized_documents("b", [300] * 2)]

    verdict = check_shares(tmp_path, documents, {"a": "0.5", "b": "0.5"})

    assert not verdict.passed
    assert verdict.because == (
        "a: requested 50.00%, reached 40.00% "
        "(its share is 500 tokens, and its next document is longer than the rest; its documents have 400 on average); "
        "b: requested 50.00%, reached 60.00% "
        "(its share is 500 tokens, and its last document exceeds it; its documents have 300 on average)"
    )
