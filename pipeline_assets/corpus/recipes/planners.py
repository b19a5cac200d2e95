"""Plans a recipe by the planner of its system."""

from collections.abc import Sequence

from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.healing import HealingRecipe
from pipeline_assets.corpus.recipes.healing_plan import plan_healing
from pipeline_assets.corpus.recipes.nemotron import NemotronRecipe
from pipeline_assets.corpus.recipes.nemotron_plan import plan_nemotron
from pipeline_assets.corpus.recipes.stage_a_plan import plan_stage_a
from pipeline_assets.corpus.recipes.systems import AnyRecipe
from pipeline_assets.corpus.spine.inventory import Holding


def plan_recipe(recipe: AnyRecipe, held: Sequence[Holding], hub: HubFiles, settings: PlanSettings) -> RecipePlan:
    """From a recipe and the state of its artifacts, what building them will take; raises what the planner raises."""
    if isinstance(recipe, HealingRecipe):
        return plan_healing(recipe, held, hub, settings)
    if isinstance(recipe, NemotronRecipe):
        return plan_nemotron(recipe, held, hub, settings)
    return plan_stage_a(recipe, held, hub, settings)
