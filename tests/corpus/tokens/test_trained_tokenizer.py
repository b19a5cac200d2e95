"""Limits of a trained tokenizer: the shares of its sample, and memory."""

from pathlib import Path

import pytest
from refusals import refusal
from stage2_build import INLINE, write_local_mixture

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.tokens import train_tokenizer
from pipeline_assets.corpus.tokens.trained_tokenizer import shares_are_kept
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import RetryableError
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


def test_a_sample_that_needs_more_memory_than_the_machine_has_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    monkeypatch.setattr(train_tokenizer, "MEMORY_PER_BYTE", 1 << 50)
    targets = write_local_mixture(tmp_path).targets()

    told = refusal(lambda: list(run_targets(targets, Run(tmp_path, INLINE))), RetryableError)

    assert " bytes of memory, this machine has " in told
    assert told.endswith("; lower `tokenizer.sample_bytes`, or use a larger machine")
