"""Which planner belongs to which system."""

from collections.abc import Callable, Sequence

from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.healing import HealingRecipe
from pipeline_assets.corpus.recipes.healing_plan import plan_healing
from pipeline_assets.corpus.spine.inventory import Holding

Planner = Callable[[HealingRecipe, Sequence[Holding], HubFiles, PlanSettings], RecipePlan]
PLANNERS: dict[str, Planner] = {"healing": plan_healing}
"""Each tells, from a recipe and the state of its artifacts, what building them will take."""
