"""Plans a recipe by the planner of its system."""

from collections.abc import Sequence

from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.healing_plan import plan_healing
from pipeline_assets.corpus.recipes.nemotron_plan import plan_nemotron
from pipeline_assets.corpus.recipes.stage_a_plan import plan_stage_a
from pipeline_assets.corpus.spine.inventory import Holding
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.stage_a import StageARecipe


def plan_recipe(recipe: Recipe, held: Sequence[Holding], hub: HubFiles, settings: PlanSettings) -> RecipePlan:
    """From a recipe and the state of its artifacts, what building them will take; raises what the planner raises."""
    if isinstance(recipe, HealingRecipe):
        return plan_healing(recipe, held, hub, settings)
    if isinstance(recipe, NemotronRecipe):
        return plan_nemotron(recipe, held, hub, settings)
    assert isinstance(recipe, StageARecipe)
    return plan_stage_a(recipe, held, hub, settings)
