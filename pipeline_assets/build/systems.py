"""Registry of systems by name; the module that defines a system is its page."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import read_named_recipe, recipe_paths
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Kinds, Target
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.recipe_yaml import locate_key, read_yaml

EXPORT_PREFIX = "export/"  # beginning of the names of kinds that are exports


def unknown_kind(name: str, stage: StageVersion) -> Kind:
    """Return a placeholder for an unknown kind; its build raises LookupError."""

    def build(target: Target, run: Run) -> Artifact:
        raise LookupError(f"this program has no kind {name}")

    return Kind(name, stage, build, "An artifact of a kind that this program does not know.", (FILES_CHECK,))


class Systems:
    """Systems by name, each with a page: a module that is imported on first use.

    A system's name is the value of `system` in recipes, and the first part of kinds' names and asset keys. A page
    defines `RECIPE`, the class of the system's recipes, and `KINDS`, its kinds of artifacts. `pages` has module names
    by system; `kinds` has the kinds of all systems by name.
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages: dict[str, str] = {}
        self.kinds: Kinds = _KindsByName(self)
        for name, page in pages.items():
            self.add(name, page)

    def add(self, name: str, page: str) -> None:
        """Add a system; call this before any of its recipes or artifacts is read.

        `name` is also its folder in a data root; `page` is the import path of the module that defines its kinds.
        """
        self.pages[name] = page
        AREAS.extend({name} - {*AREAS, "healing"})  # healing has older folders

    def page(self, system: str) -> ModuleType:
        """Return the module of a system, imported on first use."""
        return importlib.import_module(self.pages[system])

    def label_names(self, kind: str) -> tuple[str, ...]:
        """Return the names of files that no digest covers: labels, or an export's card."""
        return self.kinds[kind].labels if kind in self.kinds else (CARD_FILE,) if kind.startswith(EXPORT_PREFIX) else ()

    def recipe_class(self, system: str) -> type[Recipe]:
        recipe: type[Recipe] = self.page(system).RECIPE
        return recipe

    def read_recipe(self, path: Path, root: Path | None = None) -> Recipe:
        """Read a recipe file; for `root` and errors, see `Recipe.from_file_values`."""
        return self.parse_recipe(read_yaml(path), path, root)

    def parse_recipe(self, values: Mapping[str, object], path: Path, root: Path | None = None) -> Recipe:
        """Parse values from the recipe file `path`; see `Recipe.from_file_values`."""
        system = values.get("system")
        if not isinstance(system, str) or system not in self.pages:
            known = ", ".join(self.pages)
            place = locate_key(path, ["system"])
            raise UsageError(f"`system` must be one of {known}, got {system!r}", place, "correct it")
        return self.recipe_class(system).from_file_values(values, path, root)

    def load_recipes(self, root: Path) -> tuple[list[Recipe], dict[str, InputError]]:
        """Return the valid recipes of `recipe_paths`; for invalid ones, errors by name."""
        recipes: list[Recipe] = []
        errors: dict[str, InputError] = {}
        for name, path in recipe_paths(root).items():
            try:
                recipes.append(self.parse_recipe(read_named_recipe(path), path))
            except InputError as error:
                errors[name] = error
        return recipes, errors


class _KindsByName(Mapping[str, Kind]):
    """Kinds by name; a lookup imports only the page of the kind's system."""

    def __init__(self, systems: Systems) -> None:
        self._systems = systems

    def __getitem__(self, name: str) -> Kind:
        system = name.partition("/")[0]
        if system in self._systems.pages:
            for kind in self._kinds(system):
                if kind.name == name:
                    return kind
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (kind.name for system in self._systems.pages for kind in self._kinds(system))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _kinds(self, system: str) -> Sequence[Kind]:
        kinds: Sequence[Kind] = self._systems.page(system).KINDS
        return kinds
