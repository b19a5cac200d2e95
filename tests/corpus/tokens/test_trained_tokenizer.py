"""Checks of a trained tokenizer: each corpus has its share of the sample."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.tokens.trained_tokenizer import shares_are_kept
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion


@pytest.mark.parametrize(
    ("drawn", "because"),
    [
        ({"web": 7_000, "code": 2_400}, "every corpus has its share of the sample"),
        ({"web": 7_000, "code": 2_399}, "code has 2,399 of 3,000 bytes"),
        ({"web": 0, "code": 0}, "web has 0 of 7,000 bytes; code has 0 of 3,000 bytes"),
    ],
)
def test_a_corpus_with_less_than_four_fifths_of_its_share_is_named(drawn: dict[str, int], because: str) -> None:
    recipe = {"tokenizer": {"sources": {"web": "0.7", "code": "0.3"}, "sample_bytes": 10_000}}
    identity = Identity(StageVersion("tokenizer", 1), recipe, [], None, {}, {"drawn_bytes": drawn}, [])

    verdict = shares_are_kept(Artifact(Path("nowhere"), Manifest("stage2/tokenizer", "made", identity, [], {})))

    assert (verdict.passed, verdict.because) == (because.startswith("every"), because)
