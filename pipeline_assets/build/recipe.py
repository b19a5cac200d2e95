"""Recipes: YAML files with everything that changes the bytes of an output."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, get_args

import pydantic

from pipeline_assets.build.target import Target
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import Name
from pipeline_assets.spine.recipe_errors import section_types_in
from pipeline_assets.spine.recipe_validation import RecipeProblem, validate_section
from pipeline_assets.spine.recipe_yaml import locate_key, read_yaml
from pipeline_assets.spine.section import RecipeSection


class Recipe(RecipeSection):
    """Values of a recipe file; subclasses add the sections of their system."""

    system: str
    name: Name
    _targets: tuple[Target, ...] | None = pydantic.PrivateAttr(None)
    _name_in_file: str | None = pydantic.PrivateAttr(None)  # in the file, before it was folded to lower case

    def __copy__(self) -> Self:
        copied = super().__copy__()
        copied._targets = None
        return copied

    def final_targets(self) -> Sequence[Target]:
        """Return the requested artifacts; `targets` returns their inputs as well."""
        raise NotImplementedError

    def targets(self) -> Sequence[Target]:
        """Return every artifact of the recipe, upstream first."""
        if self._targets is None:
            self._targets = mark_intermediate(upstream_first(self.final_targets()))
        return self._targets

    def target(self, kind: str, partition: str | None = None) -> Target:
        """Return the target of a kind and partition; LookupError if none matches."""
        role = kind if partition is None else f"{kind}/{partition}"
        for target in self.targets():
            if target.role == role:
                return target
        raise LookupError(f"{self.name} requests no {role}")

    def folder(self, role: str) -> Path:
        """Return the folder of the target with a role; LookupError if none matches."""
        return self.target(role).folder

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[RecipeProblem]:
        """Yield contradictions between sections and, if `root` is set, missing inputs.

        This runs before the types of `values` are validated, so values of a wrong type are skipped.
        """
        return iter(())

    def warnings(self) -> Iterable[str]:
        """Yield warnings, one line each, about values that may be mistakes."""
        if self._name_in_file not in (None, self.name):
            yield f"`name` is folded to lower case: {self._name_in_file} becomes {self.name}"
        for name in sorted(self.model_fields_set):
            field = type(self).model_fields[name]
            if getattr(self, name) is field.default is None:
                sections = [section.model_fields.values() for section in section_types_in(field.annotation)]
                has_defaults = any(not any(key.is_required() for key in keys) for keys in sections)
                fix = (
                    f"to request it with all defaults, write `{name}: {{}}`" if has_defaults else "set it, or remove it"
                )
                yield f"`{name}` is empty and has no effect; {fix}"

    def check_prerequisites(self, root: Path, targets: Sequence[Target] | None = None) -> None:
        """Raise InputError if builds of `targets` lack a usable local file or a library.

        By default, all targets are checked. A target that is up to date needs no file and no library.
        """

    def revisions(self) -> Sequence[tuple[str, str]]:
        """Return (dataset, commit) of every hub dataset that the recipe reads."""
        return ()

    @classmethod
    def from_mapping(cls, content: Mapping[str, object], where: object) -> Self:
        """Build a recipe from its values; if invalid, raise UsageError that names `where`."""
        return validate_section(cls, content, lambda location: where, cls.cross_checks(content, None))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the recipe in a YAML file; UsageError if it is missing or invalid."""
        return cls.from_file_values(read_yaml(path), path)

    @classmethod
    def from_file_values(cls, values: Mapping[str, object], path: Path, root: Path | None = None) -> Self:
        """Return the recipe with the values of a file.

        Raise UsageError, which lists all unknown keys, invalid values and contradictions, each with its line. Missing
        local folders are errors only if the data root `root` is set.
        """
        [own], system = get_args(cls.model_fields["system"].annotation), values.get("system")
        if isinstance(system, str) and system != own:
            raise UsageError(f"`system` must be {own}, got {system!r}", path, f"choose a recipe of {own}")
        name = values.get("name")
        written = {**values, "name": name.lower()} if isinstance(name, str) else values
        locate, problems = functools.partial(locate_key, path), cls.cross_checks(written, root)
        recipe = validate_section(cls, written, locate, problems, path.parent)
        recipe._name_in_file = str(name)
        return recipe


def upstream_first(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return targets and all artifacts that they need; omit external artifacts.

    Each artifact comes after the artifacts that its build or its checks read.
    """
    ordered: dict[Path, Target] = {}

    def add(target: Target) -> None:
        if not target.is_external and target.folder not in ordered:
            for needed in (*target.upstream, *target.checked_against):
                add(needed)
            ordered[target.folder] = target

    for target in targets:
        add(target)
    return tuple(ordered.values())


def mark_intermediate(targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return the targets; set `is_intermediate` for corpora that other corpora read.

    `targets` are upstream first. An output that the recipe names is never marked. A corpus that keeps all documents
    links the files of its input; the input is then marked only if the corpus is marked.
    """
    intermediate = set[Path]()
    for target in reversed(targets):
        is_linked = target.kind.keeps_all_documents(target.recipe) and target.folder not in intermediate
        if target.kind.row_store_class is not None and target.kind.formats & {"jsonl", "parquet"} and not is_linked:
            inputs = (other for other in target.upstream if "jsonl" in other.kind.formats and not other.is_output)
            intermediate.update(other.folder for other in inputs)
    return tuple(replace(target, is_intermediate=target.folder in intermediate) for target in targets)
