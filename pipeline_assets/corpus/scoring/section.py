"""The section `scoring` of a recipe."""

from typing import Any

from pipeline_assets.corpus.scoring.model_pin import ModelSection
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe


class ScoringSection(ScoringRecipe):
    """The same, and which model scores: an artifact of its own."""

    model: ModelSection

    def content_of(self, split: str) -> dict[str, Any]:
        """What the scores of a split depend on, beside the model and the rows."""
        return {"split": split, "scoring": {name: value for name, value in self.content().items() if name != "model"}}
