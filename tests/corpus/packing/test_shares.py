"""A source whose share is off its weight by more than a tenth of it is named, with what was asked and reached."""

from pathlib import Path

from pack_build import Made, documents_of, pack_documents

from pipeline_assets.corpus.packing.summary import shares_reached
from pipeline_assets.spine.artifact import Verdict


def judged(folder: Path, documents: list[Made], weights: dict[str, str]) -> Verdict:
    """What the check says of a set of 100 rows of 10 tokens."""
    return shares_reached(pack_documents(folder, documents, 50, weights=weights, seq_len=10, num_seqs=100))


def test_sources_of_short_documents_reach_their_shares(tmp_path: Path) -> None:
    documents = [*documents_of("a", [10] * 100), *documents_of("b", [5] * 100)]

    verdict = judged(tmp_path, documents, {"a": "0.9", "b": "0.1"})

    assert verdict == Verdict(True, "each source is within a tenth of its weight", {"a": "0.900000", "b": "0.100000"})


def test_sources_whose_documents_are_long_for_their_shares_are_named_with_what_keeps_them_off(tmp_path: Path) -> None:
    documents = [*documents_of("a", [400] * 2), *documents_of("b", [300] * 2)]

    verdict = judged(tmp_path, documents, {"a": "0.5", "b": "0.5"})

    assert not verdict.passed
    assert verdict.because == (
        "a: requested 50.00%, reached 40.00% "
        "(its share is 500 tokens, and its next document is longer than the rest; its documents have 400 on average); "
        "b: requested 50.00%, reached 60.00% "
        "(its share is 500 tokens, and its last document exceeds it; its documents have 300 on average)"
    )
