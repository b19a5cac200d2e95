"""Invalid recipes of packed sets and their error messages."""

from typing import Any

import pytest
from pack_build import recipe
from refusals import refusal

from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.spine.errors import UsageError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": {"a": "0.5", "b": "0.55"}}, "weights must sum to 1, got 1.05"),
        ({"weights": {"a": "0.3333", "b": "0.3333", "c": "0.3333"}}, "weights must sum to 1, got 0.9999"),
        (
            {"weights": {"a": "0." + "3" * 31, "b": "0." + "6" * 31}},
            f"weights must sum to 1, got 0.{'9' * 31}",
        ),
        ({"weights": {"a": "1", "b": "0"}}, "weight of b must be a number above 0, such as 0.25, got '0'"),
        ({"weights": {"a": "1.5", "b": "-0.5"}}, "weight of b must be a number above 0, such as 0.25, got '-0.5'"),
        ({"weights": {"a": "half"}}, "weight of a must be a number above 0, such as 0.25, got 'half'"),
        ({"weights": {"a": ""}}, "weight of a must be a number above 0, such as 0.25, got ''"),
        ({"weights": {"a": "1."}}, "weight of a must be a number above 0, such as 0.25, got '1.'"),
        ({"weights": {}}, "weights must sum to 1, got 0"),
        ({"seq_len": 1}, "must be at least 2 (a row needs a next token to predict)"),
        ({"seq_len": 2**20 + 1}, "must be at most 1,048,576"),
        ({"num_seqs": 0}, "Input should be greater than or equal to 1"),
        ({"max_epochs": "0"}, "a cap on epochs must be above 0"),
        ({"caps": {"b": "0.0"}}, "a cap on epochs must be above 0"),
        ({"caps": {"c": "2"}}, "max_epochs names c, which has no weight"),
        ({"strategy": "bestfit"}, "Input should be 'sequential' or 'best_fit'"),
    ],
)
def test_an_invalid_recipe_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        recipe(None, **change)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (
            {"family": "gpt2"},
            "`tokenizer.family` must be one of o200k_harmony, hf_tokenizer, sentencepiece, got 'gpt2'; "
            "correct the value",
        ),
        ({"sha256": "0" * 64}, "the key `tokenizer.family` is missing; add it"),
        (
            {"family": "hf_tokenizer", "sha256": "0" * 64, "end_of_document": "</s>", "sha": 1},
            "unknown key `tokenizer.sha`; did you mean `sha256`?",
        ),
    ],
)
def test_a_wrong_tokenizer_section_is_refused_in_one_line(tokenizer: dict[str, object], message: str) -> None:
    content = recipe(None).content() | {"tokenizer": tokenizer}

    assert refusal(lambda: PackRecipe.from_mapping(content, "recipe.yaml"), UsageError) == f"recipe.yaml: {message}"


def test_the_content_of_a_recipe_is_parsed_back() -> None:
    third = "0." + "3" * 60
    parsed = recipe(None, caps={"a": "2.5"}, weights={"a": third, "b": third, "c": "0." + "3" * 59 + "4"})

    assert PackRecipe.from_content(parsed.content()) == parsed
    assert parsed.weights is not None and parsed.weights["a"] == third
