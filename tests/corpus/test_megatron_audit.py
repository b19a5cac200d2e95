"""A split that misses more than 1 % of its token budget fails, and says what ended it: a document, or the corpus."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from pipeline_assets.corpus.megatron_audit import token_budget_met
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.systems.healing import HealingRecipe


@pytest.fixture
def split(
    take: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: object,
) -> Callable[..., Artifact]:
    """The train split of documents of so many tokens each; every 10 are a shard, and all are in train."""

    def build(lengths: list[int], token_budget: int) -> Artifact:
        texts = ["a" + " a" * (tokens - 2) for tokens in lengths]
        table = pa.table({"text": texts, "id": [f"page-{number}" for number in range(len(lengths))]})
        corpus = take({"a.parquet": table}, rows_per_group=10, root="data", shard_text_bytes=1)
        revision = corpus.manifest.identity.recipe["revision"]
        recipe = healing_recipe(
            revision, {"shard_text_bytes": 1}, {"token_budget": token_budget, "valid_fraction": "0"}
        )
        return build_megatron(recipe, tmp_path / "data", "train")

    return build


def test_one_long_document_that_ends_a_split_early_is_named_and_holds_it_back(split: Callable[..., Artifact]) -> None:
    train = split([10] * 13 + [900] + [10] * 100, token_budget=1000)

    verdict = token_budget_met(train)

    assert (verdict.holds, verdict.is_slight) == (False, False)
    assert verdict.because == (
        "130 of 1,000 tokens, 87.0% are missing: a document that doesn't fit ended it, page-13 of 900 tokens "
        "(shards/00001.jsonl.zst row 3); leave such documents out by a rule, or change `token_budget`"
    )


def test_a_budget_that_is_small_for_its_documents_is_a_warning(split: Callable[..., Artifact]) -> None:
    verdict = token_budget_met(split([10] * 30, token_budget=109))

    assert (verdict.holds, verdict.is_slight) == (False, True)
    assert verdict.because.startswith(
        "100 of 109 tokens, 8.3% are missing: a document that doesn't fit ended it, page-10 of 10 tokens"
    )


@pytest.mark.parametrize(("budget", "holds"), [(300, True), (303, True), (304, False)])
def test_one_per_cent_may_be_missing_and_a_corpus_that_ends_before_is_told_as_that(
    split: Callable[..., Artifact], budget: int, holds: bool
) -> None:
    verdict = token_budget_met(split([10] * 30, token_budget=budget))

    assert (verdict.holds, verdict.is_slight) == (holds, False)
    assert ("the corpus ends before the budget; take a larger snapshot" in verdict.because) == (not holds)
    assert "page-" not in verdict.because
