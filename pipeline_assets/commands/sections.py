"""Commands whose options are made from sections of recipes: each has the keys, and their checks, in one place."""

import dataclasses
import functools
import importlib
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from pipeline_assets.commands.terminal import as_typed, naming, resume_hint
from pipeline_assets.corpus.spine.errors import OptionOf

if TYPE_CHECKING:
    import pydantic
    from pydantic.fields import FieldInfo

    from pipeline_assets.corpus.spine.recipe import Option

Content = dict[str, Any]
# Keys that no section makes options of; "" is the recipe itself.
NAMES = {"name": "--out-dir", "data": "--out-dir", "": "options"}


@dataclasses.dataclass(frozen=True)
class Section:
    """Marks a parameter of a command as the content of a section, whose keys are options.

    A key whose option isn't given is left out, unless null is a value of it; a list is empty then.

    Attributes:
        path: its class, below `pipeline_assets`; it is loaded when the command, or its help, is asked for.
        keys: those that are options, dotted; None for all that have an `Option`.
        is_repeated: whether the command makes several such sections: then each option can be given several times.
    """

    path: str
    keys: tuple[str, ...] | None = None
    is_repeated: bool = False


def command(
    app: typer.Typer, name: str, example: str, names: Mapping[str, str] = NAMES
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a command, its parameters the options; where one is a `Section` or a dataclass, its keys or fields are.

    Errors name recipe keys by the options that set them. What can go on says how.

    Args:
        example: ends its help.
        names: options, or words, for keys that no section makes options of.
    """

    def added(function: Callable[..., None]) -> Callable[..., None]:
        class Lazy(TyperCommand):
            """Its options are made when they are asked for: sections take long to load."""

            def get_params(self, ctx: Any) -> Any:
                if not self.params:
                    made = _made(function, names)
                    self.params, self.callback = made.params, made.callback
                return super().get_params(ctx)

        def described() -> None: ...

        described.__doc__ = function.__doc__
        app.command(name, cls=Lazy, epilog=f"Example: corpusmill {example}")(described)
        return function

    return added


def option_finder(options: Mapping[str, str], names: Mapping[str, str] = NAMES) -> OptionOf:
    """The option of a key, as recipes or a part of one has it.

    Args:
        options: by the key in its section.
        names: by the whole key.
    """

    def option_of(key: str) -> str | None:
        parts = [part for part in key.split(".") if not part.isdecimal()]
        tails = (".".join(parts[start:]) for start in range(len(parts)))
        return names.get(key) or next((options[tail] for tail in tails if tail in options), None)

    return option_of


@dataclasses.dataclass(frozen=True)
class _Key:
    """A key that is an option.

    Attributes:
        path: of the key in its section, dotted.
        parameter: of the command.
        empty: its value where the option isn't given; ... leaves it out.
    """

    path: str
    parameter: inspect.Parameter
    empty: object


def _made(function: Callable[..., None], names: Mapping[str, str]) -> Any:
    """The command, its options made."""
    hints = get_type_hints(function, include_extras=True)
    flat: dict[str, inspect.Parameter] = {}
    options: dict[str, str] = {}
    parts: dict[str, Callable[[Content], object]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        of_section = next((one for one in get_args(hints[name]) if isinstance(one, Section)), None)
        if of_section is not None:
            keys = list(_keys(of_section))
            flat |= {key.parameter.name: key.parameter for key in keys}
            options |= {key.path: f"--{key.parameter.name.replace('_', '-')}" for key in keys}
            parts[name] = functools.partial(_content, keys)
        elif dataclasses.is_dataclass(hints[name]):
            flat |= {one.name: one for one in _parameters(hints[name])}
            parts[name] = functools.partial(_filled, hints[name])
        else:
            flat[name] = _parameter(name, hints[name], parameter.default)
            parts[name] = operator.itemgetter(name)
    option_of = option_finder(options, names)

    def run(**given: Any) -> None:
        with resume_hint(as_typed()), naming(option_of=option_of):
            function(**{name: part(given) for name, part in parts.items()})

    run.__signature__ = inspect.Signature(list(flat.values()))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(run)
    return typer.main.get_command(app)


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _parameters(fields_of: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(fields_of, include_extras=True)
    for field in dataclasses.fields(fields_of):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield _parameter(field.name, hints[field.name], default)


def _keys(of: Section) -> Iterator[_Key]:
    module, _, name = of.path.rpartition(".")
    section = getattr(importlib.import_module(f"pipeline_assets.{module}"), name)
    for path, field, option in _fields(section):
        if of.keys is None or path in of.keys:
            word = option.name or path.rpartition(".")[2].replace("_", "-")
            kind, low, high = _type(field.annotation, of.is_repeated), *_bounds(field)
            annotation = kind | None if option.default is None else kind
            default = inspect.Parameter.empty if option.default is ... else option.default
            made = typer.Option(f"--{word}", help=option.help, min=low, max=high)
            parameter = _parameter(word.replace("-", "_"), Annotated[annotation, made], default)
            empty = None if type(None) in get_args(field.annotation) else ...
            yield _Key(path, parameter, [] if kind == list[str] else empty)


def _fields(section: type["pydantic.BaseModel"], within: str = "") -> Iterator[tuple[str, "FieldInfo", "Option"]]:
    """Key, field and option of all that has one, in nested sections too."""
    from pipeline_assets.corpus.spine.recipe import Option, sections_in

    for name, field in section.model_fields.items():
        option = next((one for one in field.metadata if isinstance(one, Option)), None)
        if option is not None:
            yield f"{within}{name}", field, option
        else:
            for nested in sections_in(field.annotation):
                yield from _fields(nested, f"{within}{name}.")


def _type(annotation: Any, is_repeated: bool) -> Any:
    """What is typed for a value: closed sets and decimals are text, that the section checks."""
    if is_repeated or get_origin(annotation) is tuple:
        return list[str]
    kinds = {annotation, *get_args(annotation)}
    return next((kind for kind in (bool, int) if kind in kinds), str)


def _bounds(field: "FieldInfo") -> tuple[int | None, int | None]:
    """The lowest and the highest value of a whole number."""
    said = {
        name: getattr(one, name) for one in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(one, name)
    }
    low, high = said.get("ge"), said.get("le")
    return said["gt"] + 1 if "gt" in said else low, said["lt"] - 1 if "lt" in said else high


def _content(keys: list[_Key], given: Mapping[str, Any]) -> Content:
    """What was typed, as the section has it."""
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
