"""The systems that there are: a page each; their recipes, and their kinds of artifacts."""

import difflib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline_assets.build.kind import Kind
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import AREAS
from pipeline_assets.spine.recipe_yaml import locate_key, read_yaml
from pipeline_assets.spine.shipped import shipped_path

PROJECT_RECIPES = shipped_path("manifests/recipes")
SYSTEMS: dict[str, str] = {}  # modules of their pages, by name


def add_system(name: str, page: str) -> None:
    """Makes a system known, before any of its recipes is read: to commands, to Dagster, and to what looks at artifacts.
    Its name is `system` of its recipes, and the folder of its artifacts; its page is a module, loaded when something of
    it is asked for.
    """
    SYSTEMS[name] = page
    AREAS.extend({name} - {*AREAS, "healing"})  # healing has older folders


add_system("healing", "pipeline_assets.systems.healing")
add_system("stage_a", "pipeline_assets.systems.stage_a")
add_system("nemotron", "pipeline_assets.systems.nemotron")
add_system("stage2", "pipeline_assets.systems.stage2_mixture")
add_system("parallel_text", "pipeline_assets.systems.parallel_text")


def _system_kinds(system: str) -> Sequence[Kind]:
    kinds: Sequence[Kind] = importlib.import_module(SYSTEMS[system]).KINDS
    return kinds


class _Kinds(Mapping[str, Kind]):
    """Kinds of all systems by name, which begins with that of their system: no other page is loaded for one of them."""

    def __getitem__(self, name: str) -> Kind:
        system = name.partition("/")[0]
        found = next((kind for kind in _system_kinds(system) if kind.name == name), None) if system in SYSTEMS else None
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (kind.name for system in SYSTEMS for kind in _system_kinds(system))

    def __len__(self) -> int:
        return sum(1 for _ in self)


KINDS: Mapping[str, Kind] = _Kinds()


def label_names(kind: str) -> tuple[str, ...]:
    """Names of the labels that artifacts of a kind have; none of a kind that this program doesn't know."""
    return KINDS[kind].labels if kind in KINDS else ()


def recipe_class(system: str) -> type[Recipe]:
    """What recipes of a system say."""
    recipe: type[Recipe] = importlib.import_module(SYSTEMS[system]).RECIPE
    return recipe


def read_recipe(path: Path, root: Path | None = None) -> Recipe:
    """The recipe in a file, of the class that its `system` names; folders of the data root that it is going to be built
    in are looked for. Raises UsageError: no such file or system, or a recipe that its class refuses.
    """
    return parse_recipe(read_yaml(path), path, root)


def parse_recipe(values: Mapping[str, object], path: Path, root: Path | None = None) -> Recipe:
    """What a recipe file says, of the class that its `system` names. Arguments and errors as of `read_recipe`."""
    system = values.get("system")
    if not isinstance(system, str) or system not in SYSTEMS:
        raise UsageError(f"`system` is {system!r}", path, f"write one of {', '.join(SYSTEMS)}")
    return recipe_class(system).from_file_values(values, path, root)


def recipe_paths(root: Path) -> dict[str, Path]:
    """Every recipe that can be run by its name in a data root, sorted: its own before the project's."""
    folders = (PROJECT_RECIPES, root / "recipes")
    return dict(sorted({path.stem: path for folder in folders for path in folder.glob("*.yaml")}.items()))


def load_recipes(root: Path) -> tuple[list[Recipe], list[InputError]]:
    """Every recipe that can be run by its name in a data root, by name, and what is wrong with the others."""
    recipes: list[Recipe] = []
    wrong: list[InputError] = []
    for path in recipe_paths(root).values():
        try:
            recipes.append(parse_recipe(check_file_name(path), path))
        except InputError as error:
            wrong.append(error)
    return recipes, wrong


def check_file_name(path: Path) -> dict[str, object]:
    """Return what a recipe says that commands find by the name of its file, which has to be its `name`.

    Raises:
        UsageError: It has another one; or as `read_yaml`.
    """
    values = read_yaml(path)
    name = values.get("name")
    if isinstance(name, str) and name.lower() != path.stem:
        fix = f"rename the file to {name.lower()}.yaml, or run it by its path: artifacts are named after `name`"
        raise UsageError(f"the file is {path.stem}, its `name` is {name}", locate_key(path, ["name"]), fix)
    return values


def is_of_interest(recipe: Recipe, root: Path) -> bool:
    """Whether a recipe is of the data root, or something of it is there: not one of the project's that nobody runs."""
    own = root / "recipes" / f"{recipe.name}.yaml"
    return own.exists() or any((root / target.folder).exists() for target in recipe.targets())


def recipe_of_folders(recipes: Sequence[Recipe], root: Path) -> dict[str, str]:
    """Names of recipes by the folders of the artifacts that they ask for, as recipes write them and absolute."""
    names: dict[str, str] = {}
    for recipe in recipes:
        for target in recipe.targets():
            if not target.is_external:
                names |= {str(target.folder): recipe.name, str(root / target.folder): recipe.name}
    return names


def recipe_path(name: str, root: Path) -> Path:
    """The file of a recipe given by path, or by name: one of the data root, else of the project. Raises UsageError:
    there is none of that name (with the nearest).
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    known = recipe_paths(root)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        fix = f"did you mean {nearest[0]}? With" if nearest else f"there are {', '.join(known)}; with"
        raise UsageError("there is no such recipe", name, f"{fix} --data those of another data root are found")
    check_file_name(known[name])
    return known[name]
