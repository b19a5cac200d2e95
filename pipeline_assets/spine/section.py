"""Sections of recipes: frozen models that refuse unknown keys."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import pydantic

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, combine_errors
from pipeline_assets.spine.recipe_errors import format_validation_errors

_MAX_INTEGER = 2**63 - 1  # of manifests and arrays
FOLDER = "folder"  # validation context: the folder of the recipe file, whose files sections may name


class RecipeSection(pydantic.BaseModel):
    """Frozen section of a recipe.

    Unknown keys are errors. Fractions are decimal strings, which a recipe may write as numbers.

    Attributes:
        LATER_KEYS: Keys that a later version of the program added. While such a key has its default value, it is not
            written, so that digests of earlier recipes do not change.
    """

    LATER_KEYS: ClassVar[frozenset[str]] = frozenset()
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    @pydantic.model_serializer(mode="wrap")
    def _omit_later_keys(self, serialize: pydantic.SerializerFunctionWrapHandler) -> dict[str, object]:
        content: dict[str, object] = serialize(self)
        omitted = {name for name in self.LATER_KEYS if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in content.items() if name not in omitted}

    @pydantic.model_validator(mode="after")
    def _check_bounds(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:
                raise ValueError(f"`{name}` must be from -{_MAX_INTEGER} to {_MAX_INTEGER}, got {value}")
            maximum = f"max_{name.removeprefix('min_')}"
            low, high = getattr(self, name), getattr(self, maximum, None)
            if name.startswith("min_") and low is not None and high is not None and Fraction(low) > Fraction(high):
                raise ValueError(f"{name} must be <= {maximum} {high}, got {low}")
        return self

    def content(self) -> dict[str, object]:
        """Return the section as JSON values, without `LATER_KEYS` at their defaults."""
        return self.model_dump(mode="json")

    @classmethod
    def from_mapping(cls, content: Mapping[str, object], where: object) -> Self:
        """Build the section from a mapping; if invalid, raise UsageError about `where`."""
        return validate_section(cls, content, lambda location: where)

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Self:
        """Build the section from `content` of a manifest; UsageError if it is invalid."""
        try:
            return cls.from_mapping(content, "the recipe in the manifest")
        except UsageError as refused:
            raise UsageError(refused.what, refused.where, "use the version of the program that wrote it") from None


@dataclass(frozen=True)
class RecipeError:
    """Problem of a recipe that no key shows alone, such as contradictory keys.

    Attributes:
        location: Path of the key to correct, from the top of the recipe; positions in lists count from 0.
    """

    location: tuple[int | str, ...]
    what: str
    fix: str


R = TypeVar("R", bound=RecipeSection)


def validate_section(
    section: type[R],
    values: Mapping[str, object],
    locate: Callable[[Sequence[int | str]], object],
    cross_checks: Iterable[RecipeError] = (),
    folder: Path | None = None,
) -> R:
    """Build a section from values; raise UsageError with all errors, sorted by line.

    `locate` returns the place of a key, or, if the key is missing, of its section. `cross_checks` are errors about
    values that contradict each other. `folder` is the folder of the recipe file, if the values are from a file.
    """
    errors: list[InputError] = []
    checked = None
    try:
        checked = section.model_validate(dict(values), context={FOLDER: folder})
    except pydantic.ValidationError as error:
        errors += format_validation_errors(error, section, locate)
    for problem in _run_cross_checks(cross_checks, checked is not None):
        dotted = ".".join(map(str, problem.location))
        errors.append(UsageError(problem.what, RecipeKey(dotted, str(locate(problem.location))), problem.fix))
    if checked is None or errors:
        raise combine_errors(sorted(errors, key=_line_in_message))
    return checked


def _run_cross_checks(cross_checks: Iterable[RecipeError], have_valid_types: bool) -> Iterator[RecipeError]:
    """Yield errors; end early if a check breaks on a value of an invalid type."""
    try:
        yield from cross_checks
    except (TypeError, AttributeError, LookupError):
        if have_valid_types:
            raise


def _line_in_message(error: InputError) -> int:
    line = re.search(r":([0-9]+)$", error.where)
    return int(line[1]) if line else 0
