"""Recipes of subsets: what they refuse, and how the order of rules is stored."""

import json
from typing import Any

import pytest
from refusals import refusal

from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule, SubsetsRecipe
from pipeline_assets.spine.errors import UsageError


def test_default_rules_have_a_fixed_order() -> None:
    recipe = SubsetsRecipe.from_mapping({}, "mine.yaml")

    unverified = ("anchor_unverified", "challenge_unverified", "learning_unverified")
    assert recipe.order == ("anchor", "restoration", "challenge", "learning", *unverified)
    bands = [(0, 25), (40, 60), (90, 100), (75, 100), (0, 25), (90, 100), (75, 100)]
    assert [rule.percentile_range for rule in recipe.ordered_rules] == bands


def test_the_order_of_rules_is_read_back_from_sorted_keys() -> None:
    recipe = SubsetsRecipe.from_mapping({"rules": {"b": {}, "a": {"percentile": [5, "7.5"]}}}, "mine.yaml")

    restored = SubsetsRecipe.from_content(json.loads(json.dumps(recipe.content(), sort_keys=True)))

    assert [*restored.rules] == ["a", "b"] and restored.order == recipe.order == ("b", "a")
    assert restored.ordered_rules == recipe.ordered_rules == [SubsetRule(), SubsetRule(percentile=("5", "7.5"))]
    assert restored.content() == recipe.content()


BAND = "`rules.mine.percentile` must be the lower percentile, then the higher one, at most 100"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        *(({"percentile": band}, f"{BAND}, got {band}") for band in ([0, 101], [30, 25])),
        ({"percentile": [-1, 5]}, "`rules.mine.percentile.0` must be a decimal number, such as 0.3, got -1"),
        ({"percentile": [0, "2.5 %"]}, "`rules.mine.percentile.1` must be a decimal number, such as 0.3, got '2.5 %'"),
        ({"where": ["nll_mean > 1"]}, "unknown column nll_mean"),
        ({"balance": "meta_domain"}, "`rules.mine.balance` must be true or false, or a list, got 'meta_domain'"),
        ({"balance": ["meta_domain", 3]}, "`rules.mine.balance.1` must be text, got 3; put it in quotes"),
        ({"max_rows": 0}, "`rules.mine.max_rows` must be >= 1, got 0"),
        ({"percentiles": [0, 1]}, "did you mean `percentile`?"),
    ],
)
def test_an_invalid_rule_is_refused_before_any_input_is_read(rule: dict[str, Any], message: str) -> None:
    assert message in refusal(lambda: SubsetsRecipe.from_mapping({"rules": {"mine": rule}}, "mine.yaml"), UsageError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(({"rules": {name: {}}}, "must be lower-case words") for name in ("Anchor", "a-b", "a/b", "", "a_")),
        ({"rules": {"a": {}, "b": {}}, "order": ["a", "a"]}, "`order` must list each of a, b once, got a, a"),
        ({"rules": {}}, "`rules` must have at least 1 item, got {}"),
    ],
)
def test_rule_names_are_folder_names_and_each_is_ordered_once(content: dict[str, Any], message: str) -> None:
    assert message in refusal(lambda: SubsetsRecipe.from_mapping(content, "mine.yaml"), UsageError)
