"""A small real model: its scores are those that are known of it, and the plain ones; sense is told from nonsense."""

import numpy as np
import pytest
from nemotron_rows import SETTINGS, normalised
from nemotron_samples import origin_of, split_rows
from plain_scorer import reference_model, reference_nll
from smollm2 import smollm2

from pipeline_assets.corpus.scoring.load_model import load_model
from pipeline_assets.corpus.scoring.nll import LanguageModel, score_rows
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.token_rows import TokenRow, encode_row
from pipeline_assets.corpus.tokens.hf_tokenizer import load_model_tokenizer

pytestmark = pytest.mark.slow
# Mean NLL of all tokens but the first, by the model itself.
KNOWN = {
    "The capital of France is Paris, and the capital of Germany is Berlin.": 1.7154,
    "The capital of France is banana, and the capital of Germany is tractor.": 4.3553,
    "Berlin Germany capital of is the, Paris and is France capital of the.": 5.7645,
}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load_model(smollm2(), ScoringRecipe(threads=2))


def test_scores_are_those_that_are_known(model: LanguageModel) -> None:
    tokenizer = load_model_tokenizer(smollm2())
    texts = [tokenizer.encode([text]).ids for text in KNOWN]

    found = score_rows(model, [TokenRow(ids, np.arange(len(ids)) > 0) for ids in texts], 4096).rows

    means = [(one.nll_sum or 0) / (len(ids) - 1) for one, ids in zip(found, texts, strict=True)]
    # The words that were added take a little of the probability: nothing gets likelier.
    more = np.array(means) - np.array(list(KNOWN.values()))
    assert (more >= 0).all() and (more < 0.03).all(), more


@pytest.mark.parametrize("name", ["Nemotron-Science-v1/MCQ", "Nemotron-Agentic-v1/tool_calling"])
def test_real_rows_have_the_scores_of_the_plain_scorer(name: str, model: LanguageModel, real: bool) -> None:
    tokenizer = load_model_tokenizer(smollm2())
    batch = normalised(*split_rows(name, real), settings=SETTINGS, origin=origin_of(name)).batch
    rows = [encode_row(text, "assistant_all", None, tokenizer, 2048) for text in batch["text"].to_pylist()]
    tokens = [row.tokens for row in rows if row.reason is None]

    found = score_rows(model, tokens, 4096).rows

    assert tokens
    assert [one.nll_sum for one in found] == pytest.approx(reference_nll(reference_model(smollm2()), tokens), rel=1e-4)
