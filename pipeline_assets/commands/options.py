"""Options of commands that are made from sections of recipes: each key has its check, option and help in one place."""

import dataclasses
import functools
import inspect
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pydantic
import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from pipeline_assets.commands.settings import Settings, apply, click_parameters
from pipeline_assets.commands.terminal import as_typed, naming, resume_hint
from pipeline_assets.spine.bars import end_bars
from pipeline_assets.spine.disk_errors import explaining
from pipeline_assets.spine.errors import OptionOf
from pipeline_assets.spine.provenance import Stopwatch
from pipeline_assets.spine.recipe_errors import sections_in
from pipeline_assets.spine.section import Option

Content = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Section:
    """Marks a parameter of a command as the content of a section, whose keys are options.

    A key whose option isn't given is left out, unless null is what it is then; a list is empty then.

    Attributes:
        keys: those that are options, dotted; None for all that have an `Option`.
    """

    section: type[pydantic.BaseModel]
    keys: tuple[str, ...] | None = None


class Sets:
    """Marks an option of a command as what sets recipe keys that no section makes options of."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys


def make_command(function: Callable[..., bool | None]) -> TyperCommand:
    """A command of a function, whose parameters are the options; where one is a `Section` or a dataclass, its keys or
    fields are. Where the function answers False, the exit status is 1. Its docstring ends the help.

    Errors name recipe keys by the options that set them. What can go on says how.
    """
    hints = get_type_hints(function, include_extras=True)
    flat: dict[str, inspect.Parameter] = {}
    options: dict[str, str] = {}
    names: dict[str, str] = {}
    parts: dict[str, Callable[[Content], object]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        marks = get_args(hints[name])
        of_section = next((one for one in marks if isinstance(one, Section)), None)
        if of_section is not None:
            keys = list(_keys(of_section))
            flat |= {key.parameter.name: key.parameter for key in keys}
            options |= {key.path: _option(key.parameter.name) for key in keys}
            parts[name] = functools.partial(_content, keys)
        elif dataclasses.is_dataclass(hints[name]):
            flat |= {one.name: one for one in click_parameters(hints[name])}
            parts[name] = functools.partial(_filled, hints[name])
        else:
            flat[name] = _parameter(name, hints[name], parameter.default)
            parts[name] = operator.itemgetter(name)
    for one in flat.values():
        names |= _names_set(one)
    option_of = option_finder(options, names)
    settings = {one.name: one for one in click_parameters(Settings) if one.name not in flat}
    flat |= settings

    def run(**given: Any) -> None:
        apply({name: given[name] for name in settings})
        Stopwatch.name_command(as_typed())
        try:
            with resume_hint(as_typed()), naming(option_of=option_of), explaining(_root(given)):
                is_yes = function(**{name: part(given) for name, part in parts.items()})
        finally:
            end_bars()
        raise typer.Exit(int(is_yes is False))

    run.__signature__ = inspect.Signature(list(flat.values()))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=function.__doc__)(run)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


def _root(given: Mapping[str, object]) -> Path:
    """Return the data root, or output folder, that a command was called with, else the one of the environment."""
    folders = (given.get(name) for name in ("data", "out_dir", "output_dir", "out"))
    found = next((folder for folder in folders if isinstance(folder, Path)), None)
    return found or Path(os.environ.get("CORPUSMILL_DATA") or "data")


def _names_set(parameter: inspect.Parameter) -> dict[str, str]:
    """Return the option by each recipe key that a parameter `Sets`."""
    keys = [key for mark in get_args(parameter.annotation) if isinstance(mark, Sets) for key in mark.keys]
    return dict.fromkeys(keys, _option(parameter.name)) | ({"": "options"} if keys else {})


def option_finder(options: Mapping[str, str], names: Mapping[str, str]) -> OptionOf:
    """The option of a key, as recipes or a part of one has it.

    Args:
        options: by the key in its section.
        names: by the whole key.
    """

    def option_name(key: str) -> str | None:
        parts = [part for part in key.split(".") if not part.isdecimal()]
        tails = (".".join(parts[start:]) for start in range(len(parts)))
        return names.get(key) or next((options[tail] for tail in tails if tail in options), None)

    return option_name


@dataclasses.dataclass(frozen=True)
class _Key:
    """A key that is an option; where that isn't given, `empty` is its value, and ... leaves it out."""

    path: str
    parameter: inspect.Parameter
    empty: object


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _keys(of: Section) -> Iterator[_Key]:
    for path, field, option in _fields(of.section):
        if of.keys is None or path in of.keys:
            word = option.name or path.rpartition(".")[2].replace("_", "-")
            kind, low, high = _type(field.annotation), *_bounds(field)
            default = _default(field, option)
            annotation = kind | None if default is None else kind
            made = typer.Option(f"--{word}", *option.other_names, help=option.help, min=low, max=high)
            parameter = _parameter(word.replace("-", "_"), Annotated[annotation, made], default)
            has_null = type(None) in get_args(field.annotation)
            empty = None if has_null and (field.is_required() or field.default is None) else ...
            yield _Key(path, parameter, [] if kind == list[str] else empty)


def _default(field: FieldInfo, option: Option) -> object:
    """What an option is where it isn't given: None where the section, or the command, says what then."""
    if option.default is not ...:
        return option.default
    if field.is_required():
        return inspect.Parameter.empty
    return field.default if isinstance(field.default, bool | int | str) else None


def _fields(section: type[pydantic.BaseModel], within: str = "") -> Iterator[tuple[str, FieldInfo, Option]]:
    """Key, field and option of all that has one, in nested sections too."""
    for name, field in section.model_fields.items():
        option = next((one for one in field.metadata if isinstance(one, Option)), None)
        if option is not None:
            yield f"{within}{name}", field, option
        else:
            for nested in sections_in(field.annotation):
                yield from _fields(nested, f"{within}{name}.")


def _type(annotation: Any) -> Any:
    """What is typed for a value: closed sets and decimals are text, that the section checks."""
    if get_origin(annotation) is tuple:
        return list[str]
    kinds = {annotation, *get_args(annotation)}
    return next((kind for kind in (bool, int) if kind in kinds), str)


def _bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    """The lowest and the highest value of a whole number."""
    said = {
        name: getattr(one, name) for one in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(one, name)
    }
    low, high = said.get("ge"), said.get("le")
    return said["gt"] + 1 if "gt" in said else low, said["lt"] - 1 if "lt" in said else high


def _content(keys: list[_Key], given: Mapping[str, Any]) -> Content:
    content: Content = {}
    for key in keys:
        value = key.empty if given[key.parameter.name] is None else given[key.parameter.name]
        if value is not ...:
            *sections, last = key.path.split(".")
            part = content
            for section in sections:
                part = part.setdefault(section, {})
            part[last] = value
    return content


def _filled(fields_of: type[Any], given: Mapping[str, Any]) -> object:
    return fields_of(**{field.name: given[field.name] for field in dataclasses.fields(fields_of)})
