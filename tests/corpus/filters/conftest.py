"""What tests of the filters share: recipes from a few keys, and what the filters see in a text."""

from collections.abc import Callable

import pytest

from pipeline_assets.corpus.filters.filter import MeasuredValue
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import FilterVerdict, evaluate

Verdicts = Callable[..., FilterVerdict]
Measured = Callable[..., dict[str, MeasuredValue]]


@pytest.fixture
def verdict() -> Verdicts:
    """What becomes of a text under sections given as keyword arguments, as YAML would give them."""
    return lambda text, **sections: evaluate(text, {}, FilterRecipe.model_validate(sections))


@pytest.fixture
def measured(verdict: Verdicts) -> Measured:
    """What is measured in a text, by reason."""
    return lambda text, **sections: {seen.reason: seen.value for seen in verdict(text, **sections).measurements}
