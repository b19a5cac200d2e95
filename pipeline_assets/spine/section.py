"""Sections of recipes: frozen models that refuse unknown keys, with the types of their values."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Self, TypeVar

import pydantic

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, combine_errors
from pipeline_assets.spine.recipe_errors import format_validation_errors

UNPINNED = "0" * 40  # a revision that nobody has looked up yet
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
SHARD_TEXT_BYTES = 1 << 26


def text_rule(holds: Callable[[str], object], words: str) -> pydantic.AfterValidator:
    """Make a validator of a rule that a text must keep, and what to say of one that doesn't."""

    def check(text: str) -> str:
        if not holds(text):
            raise ValueError(words)
        return text

    return pydantic.AfterValidator(check)


_NAME_RULE = "must contain only lower-case letters, digits, `_`, `.` and `-`, and start with a letter or digit"
Name = Annotated[str, text_rule(re.compile(r"[a-z0-9][a-z0-9_.-]*").fullmatch, _NAME_RULE)]
Decimal = Annotated[str, text_rule(re.compile(r"[0-9]+(\.[0-9]+)?").fullmatch, "must be a decimal number, such as 0.3")]
Share = Annotated[Decimal, text_rule(lambda fraction: Fraction(fraction) <= 1, "must be at most 1")]


@dataclass(frozen=True)
class Option:
    """What makes a key of a section an option of the commands that write such a section.

    Attributes:
        help: what `--help` says of it.
        name: of the option, without `--`; None for that of the key, with hyphens.
        default: what it is where it isn't given: None leaves it to the command, ... is the key's own, or asks for it.
        other_names: more names of the option, with `--`.
    """

    help: str
    name: str | None = None
    default: object = ...
    other_names: tuple[str, ...] = ()


RejectShare = Annotated[Share, Option("More bad rows than this stop it.")]


class RecipeSection(pydantic.BaseModel):
    """A frozen section of a recipe; an unknown key is an error. Fractions are decimal strings: there are no floats.

    Attributes:
        LATER_KEYS: keys that a later version added; with its default, such a key is not written, and changes no digest.
    """

    LATER_KEYS: ClassVar[frozenset[str]] = frozenset()
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    @pydantic.model_serializer(mode="wrap")
    def _omit_later_keys(self, serialize: pydantic.SerializerFunctionWrapHandler) -> dict[str, object]:
        content: dict[str, object] = serialize(self)
        fields = type(self).model_fields
        omitted = {name for name in self.LATER_KEYS if getattr(self, name) == fields[name].default}
        return {name: value for name, value in content.items() if name not in omitted}

    def content(self) -> dict[str, object]:
        """The section as JSON values, every default written out."""
        return self.model_dump(mode="json")

    @classmethod
    def from_mapping(cls, content: Mapping[str, object], where: object) -> Self:
        """The section that a mapping says. Raises UsageError: an unknown key (with the nearest known one), or a value
        out of range.
        """
        return validated(cls, content, lambda location: where)

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Self:
        """The section that `content` wrote down. Raises UsageError: this program reads no such section: an unknown key,
        a missing one, a value out of range.
        """
        try:
            return cls.from_mapping(content, "the recipe in the manifest")
        except UsageError as refused:
            raise UsageError(refused.what, refused.where, "use the version of the program that made it") from None


@dataclass(frozen=True)
class RecipeError:
    """What is wrong with a recipe though each of its keys may be right, and the location of the key to correct, from
    the top of the recipe; positions in lists count from 0.
    """

    location: tuple[int | str, ...]
    what: str
    fix: str


class PerSource(RecipeSection):
    """A cap on every source, but for those that have their own."""

    every_source: Decimal
    sources: Mapping[str, Decimal] = pydantic.Field(default_factory=dict)

    def cap(self, source: str) -> Fraction:
        """Of a source."""
        return Fraction(self.sources.get(source, self.every_source))


def reject_duplicate_keys(names: Sequence[str], what: str, fix: str) -> None:
    """Raises ValueError: a name is there twice."""
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise ValueError(f"{what} {repeated}: {fix}")


R = TypeVar("R", bound=RecipeSection)


def validated(
    section: type[R],
    values: Mapping[str, object],
    where_of: Callable[[Sequence[int | str]], object],
    misfits: Iterable[RecipeError] = (),
) -> R:
    """Return the section with these values.

    Args:
        where_of: gives the place of a key, or of the section that lacks it.
        misfits: more errors, of values that don't fit together.

    Raises:
        UsageError: every error, in the order of their lines.
    """
    found: list[InputError] = []
    checked = None
    try:
        checked = section.model_validate(dict(values))
    except pydantic.ValidationError as error:
        found += format_validation_errors(error, section, where_of)
    for misfit in misfits:
        dotted = ".".join(map(str, misfit.location))
        found.append(UsageError(misfit.what, RecipeKey(dotted, str(where_of(misfit.location))), misfit.fix))
    if checked is None or found:
        raise combine_errors(sorted(found, key=_line_in_message))
    return checked


def _line_in_message(error: InputError) -> int:
    line = re.search(r":([0-9]+)$", error.where)
    return int(line[1]) if line else 0
