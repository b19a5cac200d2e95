"""SmolLM2's scores equal known values and those of a plain scorer."""

import numpy as np
import pytest
from nemotron_rows import SETTINGS, normalised
from nemotron_samples import row_origin, split_rows
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


def test_scores_equal_known_values(model: LanguageModel) -> None:
    tokenizer = load_model_tokenizer(smollm2())
    texts = [tokenizer.encode([text]).ids for text in KNOWN]

    scores = score_rows(model, [TokenRow(ids, np.arange(len(ids)) > 0) for ids in texts], 4096).rows

    means = [(score.nll_sum or 0) / (len(ids) - 1) for score, ids in zip(scores, texts, strict=True)]
    # The added tokens take a little of the probability: no token gets likelier.
    increase = np.array(means) - np.array(list(KNOWN.values()))
    assert (increase >= 0).all() and (increase < 0.03).all(), increase


@pytest.mark.parametrize("name", ["Nemotron-Science-v1/MCQ", "Nemotron-Agentic-v1/tool_calling"])
def test_real_rows_have_the_scores_of_the_plain_scorer(name: str, model: LanguageModel, real: bool) -> None:
    tokenizer = load_model_tokenizer(smollm2())
    batch = normalised(*split_rows(name, real), settings=SETTINGS, origin=row_origin(name)).batch
    rows = [encode_row(text, "assistant_all", None, tokenizer, 2048) for text in batch["text"].to_pylist()]
    tokens = [row.tokens for row in rows if row.reason is None]

    scored = score_rows(model, tokens, 4096).rows

    assert tokens
    assert [row.nll_sum for row in scored] == pytest.approx(reference_nll(reference_model(smollm2()), tokens), rel=1e-4)
