"""Reading of recipe files in YAML, with limits on size, depth and values."""

import contextlib
import decimal
import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.spine.errors import InputError, RetryableError, UsageError, one_line
from pipeline_assets.spine.metadata_file import MAX_BITS, MetadataFormat

RECIPE_FORMAT = MetadataFormat("recipe", 4 << 20, "pass a recipe file", object, allow_symlink=True)
_MAX_VALUES, _MAX_DEPTH, _MAX_DIGITS = 500_000, 100, 40
_LIMITS_EXCEEDED = f"more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels"


def read_yaml(
    path: Path,
    noun: str = "recipe",
    empty_fix: str = "write one: manifests/recipes and docs have examples",
    as_text: bool = False,
) -> dict[str, object]:
    """Read a YAML file (called `noun` in errors) as a mapping.

    If `as_text`, numbers, booleans and dates are returned as they are written. Raise UsageError if the file is missing
    or invalid, RetryableError if it lacks read permission.
    """
    try:
        text = replace(RECIPE_FORMAT, noun=noun).read_raw(path).decode("utf-8")
        values = parse_yaml(text, text_keys=True, as_text=as_text)
    except (FileNotFoundError, NotADirectoryError):
        known = {other.stem: other for other in sorted(path.parent.glob("*.yaml")) if other != path}
        fix = f"the folder has {', '.join(other.name for other in known.values())}" if known else "correct the path"
        if nearest := difflib.get_close_matches(path.stem, known, n=1):
            fix = f"did you mean {known[nearest[0]]}?"
        raise UsageError(f"{noun} not found", path, fix) from None
    except ValueError as error:
        raise UsageError(f"not valid YAML ({one_line(error)})", path, "correct that line") from None
    except RetryableError:  # as without read permission
        raise
    except InputError as error:
        raise UsageError(error.what, path, f"pass a {noun.removesuffix(' file')} file") from None
    if values is None:
        raise UsageError("the file is empty", path, empty_fix)
    if not isinstance(values, dict):
        raise UsageError(f"a {noun} must be a mapping, got {type(values).__name__}", path, "write `key: value` lines")
    return values


def locate_key(path: Path, location: Sequence[int | str]) -> str:
    """Return the file and line of a recipe key, such as `recipes/mine.yaml:12`.

    A missing key gets the line of the section that lacks it. If no line is found, return only the file.
    """
    line = None
    with contextlib.suppress(OSError, InputError, ValueError, yaml.YAMLError):
        node = _parse_tree(RECIPE_FORMAT.read_raw(path))
        for part in location:  # a part may be a union's tag, which is not in the file
            if isinstance(node, yaml.MappingNode):
                entry = next((pair for pair in node.value if pair[0].value == part), None)
            else:
                items = node.value if isinstance(node, yaml.SequenceNode) else []
                entry = (items[part], items[part]) if isinstance(part, int) and part < len(items) else None
            if entry is not None:
                line, node = entry[0].start_mark.line + 1, entry[1]
    return str(path) if line is None else f"{path}:{line}"


def replace_value(text: str, key: str, value: str) -> str:
    """Replace the value of an existing top-level key; drop a BOM, keep all other text."""
    text = text.removeprefix("\ufeff")  # libyaml does not count a byte order mark
    node = _parse_tree(text.encode())
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    start, end = next((old.start_mark.index, old.end_mark.index) for name, old in pairs if name.value == key)
    return text[:start] + inline_yaml(value) + text[end:]


def inline_yaml(value: object) -> str:
    """Format a value as YAML, on one line unless a text contains line breaks."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("...\n").strip()


@functools.lru_cache(maxsize=1)  # reused for all errors of one file
def _parse_tree(recipe: bytes) -> yaml.Node | None:
    text = recipe.decode("utf-8")
    _raise_if_too_deep(text)
    node: yaml.Node | None = _Loader(text).get_single_node()
    return node


def section_at(values: object, *keys: str) -> Mapping[str, Any]:
    """Return the section at a path of keys; empty if missing."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values if isinstance(values, Mapping) else {}


def sections_at(values: object, *keys: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return (position, section) for each section in the list at a path of keys."""
    listed = section_at(values, *keys[:-1]).get(keys[-1])
    items = listed if isinstance(listed, list | tuple) else ()
    return [(position, item) for position, item in enumerate(items) if isinstance(item, Mapping)]


def parse_yaml(text: str, text_keys: bool = False, as_text: bool = False) -> object:
    """Parse a YAML text; raise ValueError if it is invalid or exceeds a limit.

    With `text_keys`, a key that is not text, such as `no`, is an error. With `as_text`, numbers, booleans and
    dates are returned as they are written.
    """
    try:
        _raise_if_too_deep(text)
        loader = (_TextLoader if as_text else _Loader)(text)  # rejects control characters
        node = loader.get_single_node()
        if node is None:
            return None
        _raise_if_too_large(node, text_keys)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise ValueError(_describe_mistake(error)) from None
    except (yaml.YAMLError, *_ODD_TAG_ERRORS) as error:
        raise ValueError(str(error)) from None


def _describe_mistake(error: yaml.MarkedYAMLError) -> str:
    """Describe a mistake with its line, or with the line of the enclosing bracket."""
    if error.problem == "exceeded maximum nesting depth":  # of libyaml, above ours
        return _LIMITS_EXCEEDED
    if "flow" in (error.context or "") and error.context_mark is not None:
        return f"line {error.context_mark.line + 1}: a bracket or brace is not closed, or a comma is missing"
    mark = error.problem_mark
    return (error.problem or str(error)) if mark is None else f"line {mark.line + 1}: {error.problem}"


# PyYAML raises these for odd tags.
_ODD_TAG_ERRORS = (LookupError, TypeError, AttributeError, RecursionError)
_NON_DECIMAL_NUMBER = re.compile(r"[-+]?(0[0-7_]+$|[0-9_]+:)")
# libyaml's loader is three times as fast
_Loader: Any = type("_Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
_TextLoader: Any = type("_TextLoader", (_Loader,), {})


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float | str:
    """Return a number as a float, or as text if a float would change its digits.

    A number in base 60, such as 1:30.5, is also returned as text.
    """
    if _NON_DECIMAL_NUMBER.match(node.value):
        return str(node.value)
    value: float = loader.construct_yaml_float(node)
    with contextlib.suppress(decimal.InvalidOperation):  # .inf and .nan
        if decimal.Decimal(node.value) != decimal.Decimal(repr(value)):
            return str(node.value)
    return value


def _construct_integer(loader: Any, node: yaml.ScalarNode) -> int | str:
    """Return an integer; ValueError if it is larger than a manifest can hold.

    YAML 1.1 reads 010 in base 8, and 1:30 in base 60. They are returned as text, since few people expect 8 and 90.
    """
    if _NON_DECIMAL_NUMBER.match(node.value):
        return str(node.value)
    value: int = loader.construct_yaml_int(node)
    if value.bit_length() > MAX_BITS:
        raise ValueError(f"line {node.start_mark.line + 1}: a number has more than {MAX_BITS} bits; text needs quotes")
    return value


def _construct_timestamp(loader: Any, node: yaml.ScalarNode) -> object:
    """Return a date or time; return an impossible one, such as 2026-02-30, as text."""
    try:
        return loader.construct_yaml_timestamp(node)
    except (ValueError, AttributeError):  # AttributeError: not in the form of a date
        return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _construct_timestamp)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)
for _tag in ("bool", "float", "int", "timestamp"):
    _TextLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_scalar)


def _raise_if_too_deep(text: str) -> None:
    """Raise ValueError if YAML exceeds `_MAX_DEPTH`, before libyaml recurses into it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(_LIMITS_EXCEEDED)


def _raise_if_too_large(node: yaml.Node, text_keys: bool) -> None:
    """Raise ValueError if a document has too many values or levels, or a huge number.

    Aliases count as if they were written out. `_check_keys` may raise ValueError, too.
    """
    waiting = [(node, 0)]
    for _ in range(_MAX_VALUES):
        if not waiting:
            return
        node, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            break
        if node.tag.endswith(":int") and len(node.value) > _MAX_DIGITS:
            line = node.start_mark.line + 1
            raise ValueError(f"line {line}: a number has more than {_MAX_DIGITS} digits; text needs quotes")
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, text_keys)
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        waiting += [(part, depth + 1) for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,))]
    raise ValueError(_LIMITS_EXCEEDED)


def _check_keys(mapping: yaml.MappingNode, text_keys: bool) -> None:
    """Raise ValueError for a repeated key, whose last value PyYAML would silently use.

    With `text_keys`, a key that is not text is an error, too.
    """
    seen: set[tuple[str, str]] = set()
    for name, _ in mapping.value:
        if isinstance(name, yaml.ScalarNode) and name.tag != "tag:yaml.org,2002:merge":
            line = name.start_mark.line + 1
            if text_keys and not name.tag.endswith(":str"):
                raise ValueError(f"line {line}: the key `{name.value}` is not text; put it in quotes")
            if (name.tag, name.value) in seen:
                raise ValueError(f"line {line} repeats the key `{name.value}`")
            seen.add((name.tag, name.value))
