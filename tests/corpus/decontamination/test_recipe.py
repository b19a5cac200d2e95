"""Validation of decontamination recipes."""

from typing import Any

import pydantic
import pytest
from decontamination_build import recipe

from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe, EvaluationColumns
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.recipe_errors import format_validation_errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_item_overlap": "0"}, "must be in (0, 1], got 0"),
        ({"min_item_overlap": "1.01"}, "must be in (0, 1], got 1.01"),
        ({"min_item_overlap": "0.1234567"}, "must have at most six decimal places"),
        ({"min_item_words": 14}, "`min_item_words` must be at most `ngram_words` 13, got 14"),
        ({"action": "cut"}, "`action` cut requires a section `cut`, and other actions do not allow it"),
        ({"cut": {"margin_words": 0, "min_kept_words": 1}}, "`action` cut requires a section `cut`"),
        ({"max_items_per_ngram": 0}, "`max_items_per_ngram` must be >= 1, got 0"),
    ],
)
def test_invalid_recipe_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        DecontaminationRecipe.from_content(recipe().content() | changes)

    assert message in error.value.what


def test_repeated_column_of_an_evaluation_set_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        EvaluationColumns.from_mapping({"text": ["question", "answer", "question"]}, "quiz.yaml")

    assert str(error.value).endswith(
        "names a column twice, question; no document has the words of an item twice; name it once"
    )


def test_recipe_round_trips_through_its_content() -> None:
    rules = recipe(action="cut", margin_words=3)

    assert DecontaminationRecipe.from_content(rules.content()) == rules


def test_default_that_depends_on_an_invalid_key_is_no_second_error() -> None:
    with pytest.raises(pydantic.ValidationError) as refused:
        DecontaminationRecipe.model_validate({"ngram_words": 0})

    errors = format_validation_errors(refused.value, DecontaminationRecipe, lambda keys: "quiz.yaml")
    assert [str(error) for error in errors] == ["quiz.yaml: `ngram_words` must be >= 1, got 0; correct the value"]
