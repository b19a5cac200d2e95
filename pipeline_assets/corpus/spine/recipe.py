"""Recipes: what the user wants, in YAML, holding all that changes an output's bytes and nothing else; and what the
writer of one is told of it: each complaint in a line that names the key, and the file's line.
"""

import contextlib
import difflib
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

import pydantic
import yaml
from pydantic_core import ErrorDetails

from pipeline_assets.corpus.spine.errors import THE_RECIPE, InputError, UsageError, key, one_line, together
from pipeline_assets.corpus.spine.files import OwnFile
from pipeline_assets.corpus.spine.target import Target

RECIPE_FILE: OwnFile[object] = OwnFile("recipe", 4 << 20, "give a recipe file", object, may_be_link=True)


def explained(
    error: pydantic.ValidationError, recipe: type[pydantic.BaseModel], where_of: Callable[[Sequence[int | str]], object]
) -> list[InputError]:
    """The complaints of pydantic, a line each that names the key; a misspelt key is told once, and not as missing too.
    `where_of` tells the place of a key, or of the section that misses it.
    """
    complaints = error.errors(include_url=False)
    misspelt = {
        (*one["loc"][:-1], nearest)
        for one in complaints
        if one["type"] == "extra_forbidden" and (nearest := _nearest_key(recipe, one["loc"])) is not None
    }
    around = {one["loc"][:depth] for one in complaints for depth in range(len(one["loc"]))}  # lists of what is refused
    return [
        _complaint(one, recipe, where_of(one["loc"]))
        for one in complaints
        if not (one["type"] == "missing" and one["loc"] in misspelt)
        and not (one["type"] == "too_short" and one["loc"] in around)
    ]


def _nearest_key(recipe: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> str | None:
    return next(iter(difflib.get_close_matches(str(location[-1]), _keys_beside(recipe, location), n=1)), None)


def _complaint(said: ErrorDetails, recipe: type[pydantic.BaseModel], where: object) -> UsageError:
    name = ".".join(_sections_of(recipe, said["loc"])[1])
    in_it = key(name, str(where)) if name else where  # an option is told as the place
    match said["type"]:
        case "extra_forbidden":
            nearest, known = _nearest_key(recipe, said["loc"]), _keys_beside(recipe, said["loc"])
            fix = f"did you mean `{nearest}`?" if nearest else f"remove it; known here: {', '.join(known)}"
            return UsageError(f"unknown key `{name}`", where, fix)
        case "missing":
            return UsageError(f"the key {key(name)} is missing", where, "add it")
        case "union_tag_not_found":
            return UsageError(f"the key {key(f'{name}.{_tag_key(said)}')} is missing", where, "add it")
        case "union_tag_invalid":
            tag, known = str(said["ctx"]["tag"]), said["ctx"]["expected_tags"].replace("'", "").split(", ")
            near = difflib.get_close_matches(tag, known, n=1)
            fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            tagged = f"{name}.{_tag_key(said)}"
            return UsageError(f"{key(tagged, '`{}` is', 'it is')} {tag!r}", key(tagged, str(where)), fix)
        case "value_error" if isinstance(said["input"], Mapping):  # all of it would bury what is said of it
            what = said["msg"].removeprefix("Value error, ")
            return UsageError(f"{key(name, '`{}`: ', '')}{what}" if name else what, in_it, f"correct {THE_RECIPE}")
        case "tuple_type":
            what = f"{key(name, '`{}` is', 'it is')} {_preview(said['input'])}, and not a list"
            return UsageError(what, in_it, f"write [{json.dumps(said['input'], ensure_ascii=False)}]")
        case _:
            reason = said["msg"].removeprefix("Value error, ")
            what = f"{key(name, '`{}` is', 'it is')} {_preview(said['input'])}: {reason}"
            is_unquoted = said["type"] == "string_type" and isinstance(said["input"], int | float)
            return UsageError(what, in_it, "put it in quotes" if is_unquoted else "correct the value")


_MAX_PREVIEW = 200  # characters of a value in a message


def _preview(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_PREVIEW else f"{text[:_MAX_PREVIEW]}…"


def line_of(path: Path, location: Sequence[int | str]) -> str:
    """A recipe file with the line of a key, or of the section that misses it: `recipes/mine.yaml:12`."""
    line = None
    with contextlib.suppress(OSError, InputError, ValueError, yaml.YAMLError):
        node = _composed(RECIPE_FILE.bytes_of(path))
        for part in location:  # the tag of a union is no key
            if isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if pair[0].value == part), None)
            else:
                items = node.value if isinstance(node, yaml.SequenceNode) else []
                found = (items[part], items[part]) if isinstance(part, int) and part < len(items) else None
            if found is not None:
                line, node = found[0].start_mark.line + 1, found[1]
    return str(path) if line is None else f"{path}:{line}"


@functools.lru_cache(maxsize=1)  # for all complaints of a file
def _composed(recipe: bytes) -> yaml.Node | None:
    text = recipe.decode("utf-8")
    _refuse_depth(text)
    return _Loader(text).get_single_node()


def _tag_key(complaint: ErrorDetails) -> str:
    """The key whose value says which of several sections this is."""
    return str(complaint["ctx"]["discriminator"]).strip("'")


def _keys_beside(recipe: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Keys that the section holding `location` knows; where it may be one of several that no tag tells apart, the keys
    of all.
    """
    sections, _ = _sections_of(recipe, location[:-1])
    return sorted({key for section in sections for key in section.model_fields})


def _sections_of(
    recipe: type[pydantic.BaseModel], location: tuple[int | str, ...]
) -> tuple[list[type[pydantic.BaseModel]], list[str]]:
    """The sections that a location may lead to, and the keys on the way: without tags of unions, which are none."""
    sections, keys = [recipe], list[str]()
    for part in location:
        fields = [section.model_fields[str(part)] for section in sections if str(part) in section.model_fields]
        tagged = [
            section
            for section in sections
            if not fields and any(part in get_args(field.annotation) for field in section.model_fields.values())
        ]
        keys += [] if tagged else [str(part)]
        sections = [section for field in fields for section in sections_in(field.annotation)] or tagged or sections
    return sections, keys


def sections_in(annotation: object) -> Iterator[type[pydantic.BaseModel]]:
    """Sections that a field may hold: directly, in a list, or as one of several."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)


UNPINNED = "0" * 40  # a revision that nobody has looked up yet
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
SHARD_TEXT_BYTES = 1 << 26
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_MOST_VALUES, _DEEPEST, _MOST_DIGITS = 500_000, 100, 40
_TOO_MUCH = f"it has more than {_MOST_VALUES:,} values, {_DEEPEST} levels of them, or {_MOST_DIGITS} digits of a number"


def _is_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name has lower-case letters, digits, `_`, `.` and `-`, a letter or digit first")
    return name


def _is_decimal(text: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError("write it as a decimal number, such as 0.3")
    return text


def _is_share(fraction: str) -> str:
    if Fraction(fraction) > 1:
        raise ValueError("a fraction is at most 1")
    return fraction


Name = Annotated[str, pydantic.AfterValidator(_is_name)]
Decimal = Annotated[str, pydantic.AfterValidator(_is_decimal)]
Share = Annotated[Decimal, pydantic.AfterValidator(_is_share)]


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


def read_yaml(path: Path, what: str = "recipe") -> dict[str, object]:
    """The mapping in a YAML file, which should be what it is called here. Raises UsageError: no such file, or not a
    YAML mapping.
    """
    try:
        values = parse_yaml(replace(RECIPE_FILE, noun=what).bytes_of(path).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        known = sorted(other.stem for other in path.parent.glob("*.yaml"))
        nearest = difflib.get_close_matches(path.stem, known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known) or 'none'}"
        raise UsageError(f"there is no such {what}", path, hint) from None
    except ValueError as error:
        raise UsageError(f"this is not YAML ({one_line(error)})", path, "correct that line") from None
    except InputError as error:
        raise UsageError(error.what, path, f"give a {what.removesuffix(' file')} file") from None
    if values is None:
        raise UsageError("the file is empty", path, "write one: manifests/recipes and docs have examples")
    if not isinstance(values, dict):
        raise UsageError(f"a {what} is a mapping, this is a {type(values).__name__}", path, "write `key: value` lines")
    return values


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


def section_at(values: object, *keys: str) -> Mapping[str, Any]:
    """The section below some keys of what was read; empty where there is none."""
    for one in keys:
        values = values.get(one) if isinstance(values, Mapping) else None
    return values if isinstance(values, Mapping) else {}


def sections_at(values: object, *keys: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The sections in a list below some keys of what was read, each with its position."""
    listed = section_at(values, *keys[:-1]).get(keys[-1])
    items = listed if isinstance(listed, list | tuple) else ()
    return [(position, item) for position, item in enumerate(items) if isinstance(item, Mapping)]


def refuse_repeated(names: Sequence[str], what: str, fix: str) -> None:
    """Raises ValueError: a name is there twice."""
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise ValueError(f"{what} {repeated}: {fix}")


def parse_yaml(text: str) -> object:
    """The value that a YAML text says. Raises ValueError: it says none; or one nested too deep, or that names its parts
    so often that it grows without bound.
    """
    try:
        _refuse_depth(text)
        loader = _Loader(text)  # it refuses control characters
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_growth(node)
        return loader.construct_document(node)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, RecursionError) as error:  # of odd tags too
        raise ValueError(str(error)) from None


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is three times as fast


def _refuse_depth(text: str) -> None:
    """
    Raises:
        ValueError: it has so many levels that libyaml, which calls itself for each, would run out of stack.
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(_TOO_MUCH)


def _refuse_growth(node: yaml.Node) -> None:
    """Raises ValueError: written out, without anchors, it would have too many values, too many levels, or a huge
    number.
    """
    waiting = [(node, 0)]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return
        one, depth = waiting.pop()
        if depth > _DEEPEST or (one.tag.endswith(":int") and len(one.value) > _MOST_DIGITS):
            break
        if isinstance(one, yaml.MappingNode):
            _refuse_repeated_key(one)
        parts = one.value if isinstance(one, yaml.CollectionNode) else []
        waiting += [(part, depth + 1) for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,))]
    raise ValueError(_TOO_MUCH)


def _refuse_repeated_key(mapping: yaml.MappingNode) -> None:
    """Refuse a mapping with two equal keys, of which PyYAML would silently take the last one.

    Raises:
        ValueError: a key is there twice; the message has its line.
    """
    seen: set[tuple[str, str]] = set()
    for name, _ in mapping.value:
        if isinstance(name, yaml.ScalarNode) and name.tag != "tag:yaml.org,2002:merge":
            if (name.tag, name.value) in seen:
                raise ValueError(f"line {name.start_mark.line + 1} has the key `{name.value}` a second time")
            seen.add((name.tag, name.value))


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
