"""Complaints about a recipe's keys and values: a line each that names the key, and the nearest known one."""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import pydantic
from pydantic_core import ErrorDetails

from pipeline_assets.spine.errors import THE_RECIPE, InputError, UsageError, key


def format_validation_errors(
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
        _format_error(one, recipe, where_of(one["loc"]))
        for one in complaints
        if not (one["type"] == "missing" and one["loc"] in misspelt)
        and not (one["type"] == "too_short" and one["loc"] in around)
    ]


def _nearest_key(recipe: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> str | None:
    return next(iter(difflib.get_close_matches(str(location[-1]), _sibling_keys(recipe, location), n=1)), None)


def _format_error(said: ErrorDetails, recipe: type[pydantic.BaseModel], where: object) -> UsageError:
    name = ".".join(_section_names(recipe, said["loc"])[1])
    in_it = key(name, str(where)) if name else where  # an option is told as the place
    match said["type"]:
        case "extra_forbidden":
            nearest, known = _nearest_key(recipe, said["loc"]), _sibling_keys(recipe, said["loc"])
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


def _tag_key(complaint: ErrorDetails) -> str:
    """The key whose value says which of several sections this is."""
    return str(complaint["ctx"]["discriminator"]).strip("'")


def _sibling_keys(recipe: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Keys that the section holding `location` knows; where it may be one of several that no tag tells apart, the keys
    of all.
    """
    sections, _ = _section_names(recipe, location[:-1])
    return sorted({key for section in sections for key in section.model_fields})


def _section_names(
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
