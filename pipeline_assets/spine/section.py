"""Sections of recipes: frozen models that refuse unknown keys."""

import decimal
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar, Self, TypeVar

import pydantic

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, combine_errors
from pipeline_assets.spine.recipe_errors import format_validation_errors

UNPINNED = "0" * 40  # revision of a dataset that is not pinned yet
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
SHARD_TEXT_BYTES = 1 << 26
_MAX_INTEGER = 2**63 - 1  # of manifests and arrays
FOLDER = "folder"  # validation context: the folder of the recipe file, whose files sections may name


def text_rule(is_valid: Callable[[str], object], rule: str) -> pydantic.AfterValidator:
    """Return a validator that raises ValueError(rule) if `is_valid` rejects a text."""

    def check(text: str) -> str:
        if not is_valid(text):
            raise ValueError(rule)
        return text

    return pydantic.AfterValidator(check)


_NAME_RULE = "must contain only lower-case letters, digits, `_`, `.` and `-`, and start with a letter or digit"
Name = Annotated[str, text_rule(re.compile(r"[a-z0-9][a-z0-9_.-]*").fullmatch, _NAME_RULE)]


def _decimal_text(value: object) -> object:
    """Return a number as its shortest exact decimal text; any other value unchanged."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return value
    text = f"{decimal.Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


DecimalText = Annotated[str, pydantic.BeforeValidator(_decimal_text, json_schema_input_type=str | int | float)]
"""Text that a recipe may write as a number; quoted text keeps its digits."""
Decimal = Annotated[
    DecimalText, text_rule(re.compile(r"[0-9]+(\.[0-9]+)?").fullmatch, "must be a decimal number, such as 0.3")
]
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
Share = Annotated[
    DecimalText,
    text_rule(_DECIMAL.fullmatch, "must be a decimal number, such as 0.3"),
    text_rule(lambda share: 0 <= Fraction(share) <= 1, "must be in [0, 1]"),
]


def split_patterns(patterns: object) -> object:
    """Split a text into patterns, one per line; return any other value unchanged."""
    return [line.strip() for line in patterns.splitlines() if line.strip()] if isinstance(patterns, str) else patterns


OptionalPatterns = Annotated[
    tuple[str, ...],
    pydantic.Field(strict=False),
    pydantic.BeforeValidator(split_patterns, json_schema_input_type=tuple[str, ...] | str),
]
Patterns = Annotated[OptionalPatterns, pydantic.Field(min_length=1)]
"""File patterns, relative to the source's folder (see `list_files`); on a hub, in fnmatch syntax."""


@dataclass(frozen=True)
class Option:
    """Command-line option for a key of a section.

    Attributes:
        help: Text in `--help`.
        name: Name without `--`; if None, the key with hyphens for underscores.
        default: Default value; if None, the command decides; if `...`, the key's default, or none for a required key.
        other_names: Further names, with `--`.
    """

    help: str
    name: str | None = None
    default: object = ...
    other_names: tuple[str, ...] = ()


MaxRejectShare = Annotated[Share, Option("Maximum share of rejected rows; a larger one stops the build.")]


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
        """Return the section as JSON values; only `LATER_KEYS` may lack their defaults."""
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


class SourceCaps(RecipeSection):
    """Upper limit for each source: the one in `sources`, or else `every_source`."""

    every_source: Decimal
    sources: Mapping[str, Decimal] = pydantic.Field(default_factory=dict)

    def cap(self, source: str) -> Fraction:
        return Fraction(self.sources.get(source, self.every_source))


def reject_duplicates(names: Sequence[str], prefix: str, fix: str) -> None:
    """Raise ValueError, with the message `prefix NAME: fix`, if a name occurs twice."""
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise ValueError(f"{prefix} {repeated}: {fix}")


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
    """Yield errors; end at a TypeError or the like if `have_valid_types` is False."""
    try:
        yield from cross_checks
    except (TypeError, AttributeError, LookupError):
        if have_valid_types:
            raise


def _line_in_message(error: InputError) -> int:
    line = re.search(r":([0-9]+)$", error.where)
    return int(line[1]) if line else 0
