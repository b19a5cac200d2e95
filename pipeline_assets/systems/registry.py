"""The systems that there are: a page each; their recipes, and their kinds of artifacts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.spine import checks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.checks import Verdict
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.lineage import AREAS
from pipeline_assets.corpus.spine.recipe import Recipe, read_yaml
from pipeline_assets.systems import healing, nemotron, stage_a

PROJECT_RECIPES = Path(__file__).parents[2] / "manifests" / "recipes"
RECIPES: dict[str, type[Recipe]] = {}
KINDS: dict[str, Kind] = {}


class System(Protocol):
    """What a system's page ends with."""

    @property
    def RECIPE(self) -> type[Recipe]: ...  # noqa: N802, a constant of the page, as is the next

    @property
    def KINDS(self) -> Sequence[Kind]: ...  # noqa: N802


def add_system(name: str, page: System) -> None:
    """Makes a system known, before any of its recipes is read: to commands, to Dagster, and to what looks at artifacts.

    Args:
        name: `system` of its recipes, and the folder of its artifacts.
    """
    RECIPES[name] = page.RECIPE
    KINDS.update({kind.name: kind for kind in page.KINDS})
    AREAS.extend({name} - {*AREAS, "healing"})  # healing has older folders


add_system("healing", healing)
add_system("stage_a", stage_a)
add_system("nemotron", nemotron)


def labels_of(kind: str) -> tuple[str, ...]:
    """Names of the labels that artifacts of a kind have; none of a kind that this program doesn't know."""
    return KINDS[kind].labels if kind in KINDS else ()


def files_match_manifest(artifact: Artifact) -> Verdict:
    """Every file is there, byte for byte as it was sealed, and there are no others."""
    return checks.files_match_manifest(artifact, labels_of)


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file, of the class that its `system` names.

    Raises:
        UsageError: no such file or system, or a recipe that its class refuses.
    """
    return recipe_of(read_yaml(path), path)


def recipe_of(values: Mapping[str, object], path: Path) -> Recipe:
    """What a recipe file says, of the class that its `system` names.

    Raises:
        UsageError: no such system, or a recipe that its class refuses.
    """
    system = values.get("system")
    if not isinstance(system, str) or system not in RECIPES:
        raise UsageError(f"`system` is {system!r}", path, f"write one of {', '.join(RECIPES)}")
    return RECIPES[system].in_file(values, path)


def recipe_paths(root: Path) -> dict[str, Path]:
    """Every recipe that can be run by its name in a data root, sorted: its own before the project's."""
    folders = (PROJECT_RECIPES, root / "recipes")
    return dict(sorted({path.stem: path for folder in folders for path in folder.glob("*.yaml")}.items()))


def recipes_of(root: Path) -> tuple[list[Recipe], list[InputError]]:
    """Every recipe that can be run by its name in a data root, by name, and what is wrong with the others."""
    recipes: list[Recipe] = []
    wrong: list[InputError] = []
    for path in recipe_paths(root).values():
        try:
            recipes.append(read_recipe(path))
        except InputError as error:
            wrong.append(error)
    return recipes, wrong


def recipe_of_folders(recipes: Sequence[Recipe], root: Path) -> dict[str, str]:
    """Names of recipes by the folders of the artifacts that they ask for, as recipes write them and absolute."""
    names: dict[str, str] = {}
    for recipe in recipes:
        for target in recipe.targets():
            if not target.is_given:
                names |= {str(target.folder): recipe.name, str(root / target.folder): recipe.name}
    return names


def recipe_path(name: str, root: Path) -> Path:
    """The file of a recipe given by path, or by name: one of the data root, else of the project."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    candidates = [folder / f"{name}.yaml" for folder in (root / "recipes", PROJECT_RECIPES)]
    return next((path for path in candidates if path.exists()), candidates[-1])
