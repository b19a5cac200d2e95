"""Recipes: YAML files with everything that changes an output's bytes, and nothing else."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

import pydantic

from pipeline_assets.build.target import Target
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.recipe_yaml import locate_key, read_yaml
from pipeline_assets.spine.section import Name, RecipeError, RecipeSection, validated


class Recipe(RecipeSection):
    """A whole recipe file. `system` says which system it belongs to; `name` names its artifacts."""

    system: str
    name: Name
    _targets: tuple[Target, ...] | None = pydantic.PrivateAttr(None)
    _written_name: str | None = pydantic.PrivateAttr(None)  # in the file, before it was folded to lower case

    def __copy__(self) -> Self:
        copied = super().__copy__()
        copied._targets = None
        return copied

    def final_targets(self) -> Sequence[Target]:
        """The artifacts that all others are made for, in the order in which they are wanted."""
        raise NotImplementedError

    def targets(self) -> Sequence[Target]:
        """Every artifact that the recipe asks for, upstream first: the goals, and all that they need."""
        if self._targets is None:
            self._targets = upstream_first(self.final_targets())
        return self._targets

    def target(self, kind: str, partition: str | None = None) -> Target:
        """Raises LookupError: the recipe asks for no such artifact."""
        for target in self.targets():
            if (target.kind.name, target.partition) == (kind, partition):
                return target
        raise LookupError(f"{self.name} asks for no {kind}")

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[RecipeError]:
        """What sections say that can't be together, and folders that aren't there. It is asked of every recipe as it
        was read, also of one whose keys are wrong: what isn't of its type is passed over, since its own error is told.
        Without a data root nothing is going to be built, and no folder is looked for.
        """
        return iter(())

    def warnings(self) -> Iterable[str]:
        """What it leaves unsaid, and its writer may have meant to say: a line each, told before it is built."""
        if self._written_name not in (None, self.name):
            yield f"`name` is folded to lower case: {self._written_name} becomes {self.name}"
        for name in sorted(self.model_fields_set):
            if getattr(self, name) is None:
                yield f"`{name}` says nothing, as if it weren't there; a section of defaults alone is `{name}: {{}}`"

    def check_local_files(self, root: Path) -> None:
        """Looks at the files of this machine that only a late step reads, before anything is built for it below a data
        root; at none where that step's artifact is current. Raises InputError, UsageError: one can't be used: what is
        built would be of no use.
        """

    def revisions(self) -> Sequence[tuple[str, str]]:
        """Dataset and commit of everything that is read from a hub."""
        return ()

    @classmethod
    def from_mapping(cls, content: Mapping[str, object], where: object) -> Self:
        """Return the recipe with these values.

        Raises:
            UsageError: A key is unknown, a value is out of range, or sections contradict each other.
        """
        return validated(cls, content, lambda location: where, cls.cross_checks(content, None))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The recipe in a YAML file. Raises UsageError: no such file, not YAML, an unknown key (with the nearest known
        one), or a value out of range.
        """
        return cls.from_file_values(read_yaml(path), path)

    @classmethod
    def from_file_values(cls, values: Mapping[str, object], path: Path, root: Path | None = None) -> Self:
        """The recipe that a file says, as it was read; the data root is as of `misfits`. Raises UsageError: each
        unknown key (with the nearest known one), value out of range and misfit, with its line.
        """
        [own], system = get_args(cls.model_fields["system"].annotation), values.get("system")
        if isinstance(system, str) and system != own:
            raise UsageError(f"`system` is {system!r}", path, f"give a recipe of {own}")
        name = values.get("name")
        folded = {"name": name.lower()} if isinstance(name, str) and name != name.lower() else {}
        written = {**values, **folded}
        recipe = validated(cls, written, functools.partial(locate_key, path), cls.cross_checks(written, root))
        recipe._written_name = str(name)
        return recipe


def upstream_first(goals: Iterable[Target]) -> tuple[Target, ...]:
    """Targets with all that they need, but for what is given, each after what it is made from."""
    found: dict[Path, Target] = {}

    def add(target: Target) -> None:
        if not target.is_external and target.folder not in found:
            for needed in (*target.upstream, *target.checked_against):
                add(needed)
            found[target.folder] = target

    for goal in goals:
        add(goal)
    return tuple(found.values())


def is_of_interest(recipe: Recipe, root: Path) -> bool:
    """Check whether a recipe belongs to a data root, or something of it is built there."""
    own = root / "recipes" / f"{recipe.name}.yaml"
    return own.exists() or any((root / target.folder).exists() for target in recipe.targets())


def recipe_of_folders(recipes: Iterable[Recipe], root: Path) -> dict[str, str]:
    """Map the folders of requested artifacts, absolute and below the data root, to names of recipes."""
    names: dict[str, str] = {}
    for recipe in recipes:
        for target in recipe.targets():
            if not target.is_external:
                names |= {str(target.folder): recipe.name, str(root / target.folder): recipe.name}
    return names
