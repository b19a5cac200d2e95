"""Commands built from functions, with options generated from sections of recipes.

A field of a section defines the check, the option and the help text of a recipe key.
"""

import dataclasses
import functools
import inspect
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pydantic
import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from pipeline_assets.commands.settings import Settings, set_variables, signature_parameters
from pipeline_assets.commands.terminal import explain_recipe_keys, resume_hint, running_command
from pipeline_assets.spine.bars import end_bars
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.disk_errors import convert_os_errors
from pipeline_assets.spine.errors import OptionFinder
from pipeline_assets.spine.provenance import ProvenanceRecorder
from pipeline_assets.spine.recipe_errors import section_types_in

RecipeContent = dict[str, Any]
_typed_parameters: ContextVar[frozenset[str]] = ContextVar("typed_parameters", default=frozenset())


@dataclasses.dataclass(frozen=True)
class SectionOptions:
    """Annotation of a command's parameter that receives the content of a section.

    The section's keys become options. If an option is not passed, its key gets the first of these values that exists:
    the option's own default, [] for a list, the section's default, None.
    """

    section: type[pydantic.BaseModel]
    keys: tuple[str, ...] | None = None  # dotted keys that become options; None for all that have an `Option`


class SetsKeys:
    """Annotation that names the recipe keys which a command's option sets."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys


def make_command(function: Callable[..., bool | None]) -> TyperCommand:
    """Build a command from a function, whose parameters become options.

    A parameter annotated with `SectionOptions` becomes an option per key; a dataclass becomes an option per field.
    Options for run settings are added. The help ends with the function's docstring. Exit status is 1 if the function
    returns False. Errors name options instead of recipe keys. After a retryable or unexpected error, the command that
    continues the build is printed.
    """
    hints = get_type_hints(function, include_extras=True)
    flat_parameters: dict[str, inspect.Parameter] = {}
    options: dict[str, str] = {}
    parts: dict[str, Callable[[RecipeContent], object]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        marks = get_args(hints[name])
        section = next((mark for mark in marks if isinstance(mark, SectionOptions)), None)
        if section is not None:
            keys = list(_key_options(section))
            flat_parameters |= {key.parameter.name: key.parameter for key in keys}
            options |= {key.dotted_key: _option_name(key.parameter.name) for key in keys}
            parts[name] = functools.partial(_collect_content, keys)
        elif dataclasses.is_dataclass(hints[name]):
            flat_parameters |= {field.name: field for field in signature_parameters(hints[name])}
            parts[name] = functools.partial(_fill_dataclass, hints[name])
        else:
            flat_parameters[name] = _parameter(name, hints[name], parameter.default)
            parts[name] = operator.itemgetter(name)
    names = {
        key: _option_name(parameter.name)
        for parameter in flat_parameters.values()
        for mark in get_args(parameter.annotation)
        if isinstance(mark, SetsKeys)
        for key in mark.keys
    }
    option_for = option_finder(options, names)
    settings = {field.name: field for field in signature_parameters(Settings) if field.name not in flat_parameters}
    flat_parameters |= settings
    context_parameter = _parameter("typer_context", typer.Context, inspect.Parameter.empty)

    def run(typer_context: typer.Context, **values: Any) -> None:
        sources = {name: typer_context.get_parameter_source(name) for name in values}
        typed = (name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
        _typed_parameters.set(frozenset(typed))
        set_variables({name: values[name] for name in settings})
        ProvenanceRecorder.record_command(running_command())
        try:
            with (
                resume_hint(running_command()),
                explain_recipe_keys(find_option=option_for),
                convert_os_errors(_find_root(values)),
            ):
                is_yes = function(**{name: part(values) for name, part in parts.items()})
        finally:
            end_bars()
        raise typer.Exit(int(is_yes is False))

    run.__signature__ = inspect.Signature([context_parameter, *flat_parameters.values()])  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=function.__doc__)(run)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


def is_typed(parameter_name: str) -> bool:
    """Check whether the user typed an option, even with its default value."""
    return parameter_name in _typed_parameters.get()


def typed_keys(section: type[pydantic.BaseModel]) -> list[str]:
    """List the dotted keys of a section whose options were typed."""
    return [key.dotted_key for key in _key_options(SectionOptions(section)) if is_typed(key.parameter.name)]


def _find_root(values: Mapping[str, object]) -> Path:
    """Return the data root or output folder among a command's values, or the default.

    The default is the data root of the command's artifact, else CORPUSMILL_DATA, else `data`.
    """
    folders = (values.get(name) for name in ("data", "out_dir", "output_dir", "out"))
    typed, artifact = next((folder for folder in folders if isinstance(folder, Path)), None), values.get("folder")
    found = find_data_root(artifact) if isinstance(artifact, Path) else None
    return typed or found or Path(os.environ.get("CORPUSMILL_DATA") or "data")


def option_finder(by_section_key: Mapping[str, str], by_full_key: Mapping[str, str]) -> OptionFinder:
    """Return a function that finds the option of a recipe key.

    `by_full_key` maps full recipe keys to options. `by_section_key` maps keys relative to a section, which may be
    anywhere in the recipe.
    """

    def option_name(key: str) -> str | None:
        parts = [part for part in key.split(".") if not part.isdecimal()]
        tails = (".".join(parts[start:]) for start in range(len(parts)))
        return by_full_key.get(key) or next((by_section_key[tail] for tail in tails if tail in by_section_key), None)

    return option_name


@dataclasses.dataclass(frozen=True)
class _KeyOption:
    """Recipe key that a command sets with an option."""

    dotted_key: str  # within the section
    parameter: inspect.Parameter
    unset_value: object  # value of the key without the option; ... omits the key


def _option_name(parameter_name: str) -> str:
    return f"--{parameter_name.replace('_', '-')}"


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _key_options(section_options: SectionOptions) -> Iterator[_KeyOption]:
    for path, field, option in _option_fields(section_options.section):
        if section_options.keys is None or path in section_options.keys:
            word = option.name or path.rpartition(".")[2].replace("_", "-")
            kind, low, high = _option_type(field.annotation), *_integer_bounds(field)
            default = _option_default(field, option)
            annotation = kind | None if default is None else kind
            info = typer.Option(f"--{word}", *option.other_names, help=option.help, min=low, max=high)
            parameter = _parameter(word.replace("-", "_"), Annotated[annotation, info], default)
            has_null = type(None) in get_args(field.annotation)
            empty = None if has_null and (field.is_required() or field.default is None) else ...
            yield _KeyOption(path, parameter, [] if kind == list[str] else empty)


def _option_default(field: FieldInfo, option: Option) -> object:
    """Return the default of an option or of its key; `Parameter.empty` if required."""
    if option.default is not ...:
        return option.default
    if field.is_required():
        return inspect.Parameter.empty
    # The section itself applies a default of another type.
    return field.default if isinstance(field.default, bool | int | str) else None


def _option_fields(section: type[pydantic.BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo, Option]]:
    """Yield (dotted key, field, option) of each field with an option, at any depth."""
    for name, field in section.model_fields.items():
        option = next((mark for mark in field.metadata if isinstance(mark, Option)), None)
        if option is not None:
            yield f"{prefix}{name}", field, option
        else:
            for nested in section_types_in(field.annotation):
                yield from _option_fields(nested, f"{prefix}{name}.")


def _option_type(annotation: Any) -> Any:
    """Return the type of an option: list, bool, int, or text for everything else."""
    if get_origin(annotation) is tuple:
        return list[str]
    kinds = {annotation, *get_args(annotation)}
    return next((kind for kind in (bool, int) if kind in kinds), str)


def _integer_bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    """Return the minimum and maximum of an integer field; None if unlimited."""
    limits = {
        name: getattr(mark, name) for mark in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(mark, name)
    }
    low, high = limits.get("ge"), limits.get("le")
    return limits["gt"] + 1 if "gt" in limits else low, limits["lt"] - 1 if "lt" in limits else high


def _collect_content(key_options: list[_KeyOption], values: Mapping[str, Any]) -> RecipeContent:
    content: RecipeContent = {}
    for key in key_options:
        value = key.unset_value if values[key.parameter.name] is None else values[key.parameter.name]
        if value is not ...:
            *sections, last = key.dotted_key.split(".")
            part = content
            for section in sections:
                part = part.setdefault(section, {})
            part[last] = value
    return content


def _fill_dataclass(options_class: type[Any], values: Mapping[str, Any]) -> object:
    return options_class(**{field.name: values[field.name] for field in dataclasses.fields(options_class)})
