"""Recipes of decontamination: what they refuse, in words."""

from typing import Any

import pytest
from decontamination_build import recipe

from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe
from pipeline_assets.spine.errors import UsageError


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"min_item_overlap": "0"}, "an overlap of 0: it is above 0, and 1 at most"),
        ({"min_item_overlap": "1.01"}, "an overlap of 1.01: it is above 0, and 1 at most"),
        ({"min_item_overlap": "0.1234567"}, "it has six digits after the point at most"),
        ({"min_item_words": 14}, "`min_item_words` is 14, and `ngram_words` 13"),
        ({"action": "cut"}, "`action` cut goes with a section `cut`, and no other does"),
        ({"cut": {"margin_words": 0, "min_kept_words": 1}}, "`action` cut goes with a section `cut`"),
        ({"max_items_per_ngram": 0}, "`max_items_per_ngram` is 0"),
    ],
)
def test_what_can_not_be_meant_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        DecontaminationRecipe.from_content(recipe().content() | changes)

    assert complaint in error.value.what


def test_a_recipe_is_what_its_content_says() -> None:
    rules = recipe(action="cut", margin_words=3)

    assert DecontaminationRecipe.from_content(rules.content()) == rules
