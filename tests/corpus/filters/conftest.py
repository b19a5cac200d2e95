"""Fixtures for tests of the filters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_steps import Stepped, build_step, write_step

from pipeline_assets.corpus.filters.filter import MeasuredValue
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import FilterVerdict, evaluate
from pipeline_assets.spine.artifact import Artifact

Verdicts = Callable[..., FilterVerdict]
Measured = Callable[..., dict[str, MeasuredValue]]


@pytest.fixture
def verdict() -> Verdicts:
    """Return a function that filters a text under sections as YAML states them."""
    return lambda text, **sections: evaluate(text, {}, FilterRecipe.model_validate(sections))


@pytest.fixture
def measured(verdict: Verdicts) -> Measured:
    """Return a function that measures a text; values are by reason."""
    return lambda text, **sections: {seen.reason: seen.value for seen in verdict(text, **sections).measurements}


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    """Return a function that applies an own step, written as code, to texts."""

    def run(code: str, *texts: str, **python: Any) -> Artifact:
        python.setdefault("max_reject_fraction", "0.9")
        return build_step(write_step(tmp_path, code, texts, **python), tmp_path / "data")

    return run
