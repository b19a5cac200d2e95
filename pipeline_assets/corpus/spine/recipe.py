"""Recipes: what the user wants, in YAML, holding all that changes an output's bytes and nothing else."""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

import pydantic

from pipeline_assets.corpus.spine.errors import InputError, UsageError, key, together
from pipeline_assets.corpus.spine.recipe_errors import explained
from pipeline_assets.corpus.spine.recipe_yaml import line_of, read_yaml
from pipeline_assets.corpus.spine.target import Target

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


_NAME_RULE = "a name has lower-case letters, digits, `_`, `.` and `-`, a letter or digit first"
Name = Annotated[str, text_rule(re.compile(r"[a-z0-9][a-z0-9_.-]*").fullmatch, _NAME_RULE)]
Decimal = Annotated[
    str, text_rule(re.compile(r"[0-9]+(\.[0-9]+)?").fullmatch, "write it as a decimal number, such as 0.3")
]
Share = Annotated[Decimal, text_rule(lambda fraction: Fraction(fraction) <= 1, "a fraction is at most 1")]


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


class RecipePart(pydantic.BaseModel):
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
    def of(cls, content: Mapping[str, object], where: object) -> Self:
        """The section that a mapping says. Raises UsageError: an unknown key (with the nearest known one), or a value
        out of range.
        """
        return _validated(cls, content, lambda location: where)

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Self:
        """The section that `content` wrote down. Raises UsageError: this program reads no such section: an unknown key,
        a missing one, a value out of range.
        """
        try:
            return cls.of(content, "the recipe in the manifest")
        except UsageError as refused:
            raise UsageError(refused.what, refused.where, "use the version of the program that made it") from None


@dataclass(frozen=True)
class Misfit:
    """What is wrong with a recipe though each of its keys may be right, and the location of the key to correct, from
    the top of the recipe; positions in lists count from 0.
    """

    location: tuple[int | str, ...]
    what: str
    fix: str


class PerSource(RecipePart):
    """A cap on every source, but for those that have their own."""

    every_source: Decimal
    sources: Mapping[str, Decimal] = pydantic.Field(default_factory=dict)

    def cap(self, source: str) -> Fraction:
        """Of a source."""
        return Fraction(self.sources.get(source, self.every_source))


class Recipe(RecipePart):
    """A whole recipe file. `system` says which system it belongs to; `name` names its artifacts."""

    system: str
    name: Name
    _targets: tuple[Target, ...] | None = pydantic.PrivateAttr(None)
    _written_name: str | None = pydantic.PrivateAttr(None)  # in the file, before it was folded to lower case

    def __copy__(self) -> Self:
        copied = super().__copy__()
        copied._targets = None
        return copied

    def goals(self) -> Sequence[Target]:
        """The artifacts that all others are made for, in the order in which they are wanted."""
        raise NotImplementedError

    def targets(self) -> Sequence[Target]:
        """Every artifact that the recipe asks for, upstream first: the goals, and all that they need."""
        if self._targets is None:
            self._targets = upstream_first(self.goals())
        return self._targets

    def target(self, kind: str, partition: str | None = None) -> Target:
        """Raises LookupError: the recipe asks for no such artifact."""
        for target in self.targets():
            if (target.kind, target.partition) == (kind, partition):
                return target
        raise LookupError(f"{self.name} asks for no {kind}")

    @classmethod
    def misfits(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[Misfit]:
        """What sections say that can't be together, and folders that aren't there. It is asked of every recipe as it
        was read, also of one whose keys are wrong: what isn't of its type is passed over, since its own error is told.
        Without a data root nothing is going to be built, and no folder is looked for.
        """
        return iter(())

    def remarks(self) -> Iterable[str]:
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
    def read(cls, path: Path) -> Self:
        """The recipe in a YAML file. Raises UsageError: no such file, not YAML, an unknown key (with the nearest known
        one), or a value out of range.
        """
        return cls.in_file(read_yaml(path), path)

    @classmethod
    def in_file(cls, values: Mapping[str, object], path: Path, root: Path | None = None) -> Self:
        """The recipe that a file says, as it was read; the data root is as of `misfits`. Raises UsageError: each
        unknown key (with the nearest known one), value out of range and misfit, with its line.
        """
        [own], system = get_args(cls.model_fields["system"].annotation), values.get("system")
        if isinstance(system, str) and system != own:
            raise UsageError(f"`system` is {system!r}", path, f"give a recipe of {own}")
        name = values.get("name")
        folded = {"name": name.lower()} if isinstance(name, str) and name != name.lower() else {}
        recipe = _validated(cls, {**values, **folded}, functools.partial(line_of, path), root)
        recipe._written_name = str(name)
        return recipe


def upstream_first(goals: Iterable[Target]) -> tuple[Target, ...]:
    """Targets with all that they need, but for what is given, each after what it is made from."""
    found: dict[Path, Target] = {}

    def add(target: Target) -> None:
        if not target.is_given and target.folder not in found:
            for needed in (*target.upstream, *target.compared_to):
                add(needed)
            found[target.folder] = target

    for goal in goals:
        add(goal)
    return tuple(found.values())


def refuse_repeated(names: Sequence[str], what: str, fix: str) -> None:
    """Raises ValueError: a name is there twice."""
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise ValueError(f"{what} {repeated}: {fix}")


R = TypeVar("R", bound=RecipePart)


def _validated(
    section: type[R],
    values: Mapping[str, object],
    where_of: Callable[[Sequence[int | str]], object],
    root: Path | None = None,
) -> R:
    """What the values say. `where_of` tells the place of a key, or of the section that misses it; `root` is as of
    `Recipe.misfits`. Raises UsageError: all that is wrong.
    """
    found: list[InputError] = []
    validated = None
    try:
        validated = section.model_validate(dict(values))
    except pydantic.ValidationError as error:
        found += explained(error, section, where_of)
    if issubclass(section, Recipe):
        for misfit in section.misfits(values, root):
            dotted = ".".join(map(str, misfit.location))
            found.append(UsageError(misfit.what, key(dotted, str(where_of(misfit.location))), misfit.fix))
    if validated is None or found:
        raise together(sorted(found, key=_line_told))
    return validated


def _line_told(error: InputError) -> int:
    line = re.search(r":([0-9]+)$", error.where)
    return int(line[1]) if line else 0
