"""YAML files of recipes as they are read: bounded in size, depth and growth, with the line of each key."""

import contextlib
import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.spine.errors import InputError, UsageError, one_line
from pipeline_assets.spine.files import MetadataFile

RECIPE_FILE: MetadataFile[object] = MetadataFile("recipe", 4 << 20, "give a recipe file", object, allow_symlink=True)
_MOST_VALUES, _DEEPEST, _MOST_DIGITS = 500_000, 100, 40
_LIMITS_EXCEEDED = (
    f"it has more than {_MOST_VALUES:,} values, {_DEEPEST} levels of them, or {_MOST_DIGITS} digits of a number"
)


def read_yaml(path: Path, what: str = "recipe") -> dict[str, object]:
    """The mapping in a YAML file, which should be what it is called here. Raises UsageError: no such file, or not a
    YAML mapping.
    """
    try:
        values = parse_yaml(replace(RECIPE_FILE, noun=what).read_raw(path).decode("utf-8"))
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


def locate_key(path: Path, location: Sequence[int | str]) -> str:
    """A recipe file with the line of a key, or of the section that misses it: `recipes/mine.yaml:12`."""
    line = None
    with contextlib.suppress(OSError, InputError, ValueError, yaml.YAMLError):
        node = _composed(RECIPE_FILE.read_raw(path))
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
    _limit_depth(text)
    return _Loader(text).get_single_node()


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


def parse_yaml(text: str) -> object:
    """The value that a YAML text says. Raises ValueError: it says none; or one nested too deep, or that names its parts
    so often that it grows without bound.
    """
    try:
        _limit_depth(text)
        loader = _Loader(text)  # it refuses control characters
        node = loader.get_single_node()
        if node is None:
            return None
        _limit_growth(node)
        return loader.construct_document(node)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, RecursionError) as error:  # of odd tags too
        raise ValueError(str(error)) from None


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is three times as fast


def _limit_depth(text: str) -> None:
    """
    Raises:
        ValueError: it has so many levels that libyaml, which calls itself for each, would run out of stack.
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(_LIMITS_EXCEEDED)


def _limit_growth(node: yaml.Node) -> None:
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
    raise ValueError(_LIMITS_EXCEEDED)


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
