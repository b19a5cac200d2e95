"""Error messages for the keys and values of a recipe."""

import datetime
import difflib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args, get_origin

import pydantic
from pydantic_core import ErrorDetails

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError

_MAX_PREVIEW_CHARACTERS = 200  # of a value in a message
_MAX_SUGGESTIONS = 3  # sections that an unknown key may belong to
_ITEM_NAMES: Mapping[object, tuple[str]] = {list: ("0",), tuple: ("0",), dict: ("NAME",), Mapping: ("NAME",)}

# For each type of a union: the last part of an error's location, and the type of the error.
_UNION_MEMBERS = {"bool": "bool_type", "int": "int_type", "str": "string_type"}
_NO_DEFAULT = "default_factory_not_called"
_UNION_TAG = re.compile(r"\([a-z]+\)|(function-after\[.*)?tuple\[.*\]")
# Pydantic's messages, such as "Input should be a valid integer", and plain words for its types.
_PYDANTIC_RULE = re.compile(r"\w+ should (.*)")
_PLAIN_WORDS = {
    r"a valid (dictionary|mapping)\b.*": "a mapping",
    r"a valid (list|tuple|array)\b": "a list",
    r"a valid string\b": "text",
    r"a valid integer\b.*": "an integer",
    r"a valid boolean\b": "true or false",
    r"\bNone\b": "null",
    r" after validation, not .*": "",
    r"greater than or equal to ": ">= ",
    r"less than or equal to ": "<= ",
    r"greater than ": "> ",
    r"less than ": "< ",
}


def format_validation_errors(
    error: pydantic.ValidationError,
    recipe_type: type[pydantic.BaseModel],
    locate: Callable[[Sequence[int | str]], object],
) -> list[InputError]:
    """Convert pydantic's validation errors to one error per key.

    A missing key is not reported if a misspelt key resembles it. `locate` returns the place of a key in the recipe
    file, or the place of its section if the key is missing. The paths passed to `locate` may contain the
    `kind` or `mode` that selects a section, but no other tags that pydantic adds for unions.
    """
    # A default that depends on an invalid key is not a second error.
    problems = [problem for problem in error.errors(include_url=False) if problem["type"] != _NO_DEFAULT]
    for problem in problems:
        problem["loc"] = tuple(part for part in problem["loc"] if not _UNION_TAG.fullmatch(str(part)))
    problems = _join_unions(problems)
    misspelt = {
        (*problem["loc"][:-1], nearest)
        for problem in problems
        if problem["type"] == "extra_forbidden"
        for nearest in _similar_siblings(recipe_type, problem["loc"])
    }
    # A list whose only item is invalid is also reported as too short.
    parents = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    return [
        _format_error(problem, recipe_type, str(locate(problem["loc"])))
        for problem in problems
        if not (problem["type"] == "missing" and problem["loc"] in misspelt)
        and not (problem["type"] == "too_short" and problem["loc"] in parents)
    ]


def _join_unions(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Merge the errors about the types of a union into one error for each value.

    If an item inside the value is invalid, such as a list item, keep only the error about the item.
    """
    joined = dict[tuple[int | str, ...], ErrorDetails]()
    is_member = [_UNION_MEMBERS.get("".join(map(str, problem["loc"][-1:]))) == problem["type"] for problem in problems]
    inside = {problem["loc"][:-1] for problem, member in zip(problems, is_member, strict=True) if not member}
    for problem, member in zip(problems, is_member, strict=True):
        location = problem["loc"][:-1] if member else problem["loc"]
        if member and location in inside:
            continue
        if (first := joined.get(location)) is None:
            joined[location] = problem
        else:
            rule = f"{_format_rule(first)}, or {_format_rule(problem).removeprefix('must be ')}"
            joined[location] = {**first, "loc": location, "type": "union", "msg": rule}
    return list(joined.values())


def _similar_siblings(recipe_type: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """List the key next to the unknown key at a location that it resembles, if any.

    A key that other sections have must be more similar.
    """
    cutoff = 0.8 if _nearest_paths(recipe_type, location) else 0.6
    return difflib.get_close_matches(str(location[-1]), _sibling_keys(recipe_type, location), n=1, cutoff=cutoff)


def _nearest_paths(recipe_type: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """List the paths of an unknown key in the nearest sections that have this key.

    The list is empty if the paths are many, or if the key's own section has it with another `kind` or `mode`.
    """
    _, parents = _possible_section_types(recipe_type, location[:-1])
    places = ["0" if part.isdigit() else part for part in parents]
    paths = _paths_by_key(recipe_type).get(str(location[-1]), {})
    if (*places, str(location[-1])) in paths:
        return []
    by_shared_parents: dict[int, list[str]] = {-1: []}
    for path in paths:
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(places, path, strict=False)))
        by_shared_parents.setdefault(shared, []).append(".".join([*parents[:shared], *path[shared:]]))
    nearest = by_shared_parents[max(by_shared_parents)]
    return nearest if len(nearest) <= _MAX_SUGGESTIONS else []


@functools.cache
def _paths_by_key(recipe_type: type[pydantic.BaseModel]) -> dict[str, dict[tuple[str, ...], None]]:
    """Map each key of a recipe and its sections to the set of its paths, in order."""
    paths: dict[str, dict[tuple[str, ...], None]] = {}
    for path in _key_paths(recipe_type, ()):
        paths.setdefault(path[-1], {})[path] = None
    return paths


def _key_paths(section: type[pydantic.BaseModel], parents: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths, below `parents`, of all keys in a section and its sections.

    In a path, 0 stands for any position in a list, and NAME for a key that users choose.
    """
    for name, field in section.model_fields.items():
        yield (*parents, name)
        for inner, path in _sections_in(field.annotation, (*parents, name)):
            yield from _key_paths(inner, path)


def _format_error(problem: ErrorDetails, recipe_type: type[pydantic.BaseModel], file_and_line: str) -> UsageError:
    name = ".".join(_possible_section_types(recipe_type, problem["loc"])[1])
    place = RecipeKey(name, file_and_line) if name else file_and_line
    match problem["type"]:
        case "extra_forbidden":
            suggested = [f"`{key}`" for key in _similar_siblings(recipe_type, problem["loc"])]
            for path in _nearest_paths(recipe_type, problem["loc"]):
                suggested.append(f"`{path}`" if "." in path else f"`{path}` at the top level")
            known = ", ".join(_sibling_keys(recipe_type, problem["loc"]))
            fix = f"did you mean {' or '.join(suggested)}?" if suggested else f"remove it; known keys: {known}"
            return UsageError(f"unknown key `{name}`", file_and_line, fix)
        case "missing":
            return UsageError(f"the key `{name}` is missing", file_and_line, "add it")
        case "union_tag_not_found":
            return UsageError(f"the key `{name}.{_tag_key(problem)}` is missing", file_and_line, "add it")
        case "union_tag_invalid":
            tag, known = str(problem["ctx"]["tag"]), problem["ctx"]["expected_tags"].replace("'", "").split(", ")
            nearest = next(iter(difflib.get_close_matches(tag, known, n=1)), None)
            fix = f"did you mean {nearest}?" if nearest else "correct the value"
            tagged = f"{name}.{_tag_key(problem)}"
            what = f"`{tagged}` must be one of {', '.join(known)}, got {tag!r}"
            return UsageError(what, RecipeKey(tagged, file_and_line), fix)
        case "value_error" if isinstance(problem["input"], Mapping):  # a preview of the section would bury the message
            what, fix = _split_fix(_format_rule(problem), "correct it")
            if name and not what.startswith(f"`{name}."):
                what = f"`{name}` {what}" if what.startswith("must ") else f"`{name}`: {what}"
            return UsageError(what, place, fix)
        case "tuple_type":
            value = problem["input"]
            example = json.dumps(value, ensure_ascii=False, default=str)  # a date is text
            fix = "list its entries" if value is None else f"write [{example}]"
            return UsageError(f"`{name}` must be a list, got {_preview_value(value)}", place, fix)
        case "model_type" | "dict_type" | "mapping_type":
            what = f"`{name}` must be a mapping, got {_preview_value(problem['input'])}"
            return UsageError(what, place, _mapping_fix(problem, recipe_type))
        case _:
            rule, value = _format_rule(problem), _preview_value(problem["input"])
            is_unquoted = problem["type"] == "string_type" and isinstance(problem["input"], int | float | datetime.date)
            rule, fix = _split_fix(rule, "put it in quotes" if is_unquoted else "correct the value")
            if rule.startswith("must "):
                what = f"`{name}` {rule}" + ("" if ", got " in rule else f", got {value}")
            else:
                what = f"`{name}` is {value}: {rule}"
            return UsageError(what, place, fix)


def _mapping_fix(problem: ErrorDetails, recipe_type: type[pydantic.BaseModel]) -> str:
    """Return the fix for a value that must be a mapping: `write {NAME: VALUE}`.

    For a section with exactly one required key, NAME is this key. For any other section, the fix lists all its keys.
    """
    value, known = problem["input"], ["NAME"]
    if problem["type"] == "model_type":
        [section, *_], _ = _possible_section_types(recipe_type, problem["loc"])
        known = [key for key, field in section.model_fields.items() if field.is_required()]
        if len(known) != 1:
            return f"write `key: value` lines; known keys: {', '.join(section.model_fields)}"
    example = (value or ["VALUE"])[0] if isinstance(value, list) else "VALUE" if value is None else value
    return f"write {{{known[0]}: {_clip(str(example))}}}"


def _format_rule(problem: ErrorDetails) -> str:
    """Return a problem's message, with `must be` instead of pydantic's `should be`."""
    message = problem["msg"].removeprefix("Value error, ")
    rule = _PYDANTIC_RULE.fullmatch(message)
    if problem["type"] == "value_error" or rule is None:
        return message
    text = rule[1]
    for pattern, words in _PLAIN_WORDS.items():
        text = re.sub(pattern, words, text)
    return f"must {text}"


def _split_fix(message: str, default: str) -> tuple[str, str]:
    """Split `WHAT; FIX` into (what, fix); `default` replaces a missing fix."""
    what, separator, fix = message.rpartition("; ")
    return (what, fix) if separator else (message, default)


def _preview_value(value: object) -> str:
    return _clip(str(value) if isinstance(value, datetime.date) else repr(value))


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_PREVIEW_CHARACTERS else f"{text[:_MAX_PREVIEW_CHARACTERS]}…"


def _tag_key(problem: ErrorDetails) -> str:
    """Return the key whose value selects the section of a tagged union."""
    return str(problem["ctx"]["discriminator"]).strip("'")


def _sibling_keys(recipe_type: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """List the keys that are allowed next to the key at a location."""
    sections, _ = _possible_section_types(recipe_type, location[:-1])
    return sorted({key for section in sections for key in section.model_fields})


def _possible_section_types(
    recipe_type: type[pydantic.BaseModel], location: tuple[int | str, ...]
) -> tuple[list[type[pydantic.BaseModel]], list[str]]:
    """Return the section types possible at `location`, and its parts without tags."""
    sections, keys = [recipe_type], list[str]()
    for part in location:
        fields = [section.model_fields[str(part)] for section in sections if str(part) in section.model_fields]
        tagged = [
            section
            for section in sections
            if not fields and any(part in get_args(field.annotation) for field in section.model_fields.values())
        ]
        keys += [] if tagged else [str(part)]
        sections = [section for field in fields for section in section_types_in(field.annotation)] or tagged or sections
    return sections, keys


def section_types_in(annotation: object) -> Iterator[type[pydantic.BaseModel]]:
    """Yield the section types in a field's annotation, also in its lists and unions."""
    return (section for section, _ in _sections_in(annotation, ()))


def _sections_in(
    annotation: object, path: tuple[str, ...]
) -> Iterator[tuple[type[pydantic.BaseModel], tuple[str, ...]]]:
    """Yield section types in a field's annotation, with the paths of their sections.

    `path` is the path of the field.
    """
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation, path
    for argument in get_args(annotation):
        yield from _sections_in(argument, (*path, *_ITEM_NAMES.get(get_origin(annotation), ())))
