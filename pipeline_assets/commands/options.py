"""Options of commands that are made from sections of recipes: each key has its check, option and help in one place. And
what a user names: files and folders of this machine, sealed ones too, or a dataset or a model on a hub, by the commit
that it has now.
"""

import dataclasses
import fnmatch
import functools
import glob
import inspect
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pydantic
import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from pipeline_assets.commands.settings import Settings, apply, parameters_of
from pipeline_assets.commands.terminal import as_typed, echo, naming, resume_hint
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.readers import hub_configs
from pipeline_assets.corpus.readers.hub_files import HubFiles, is_name
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.durable import explaining
from pipeline_assets.corpus.spine.errors import InputError, OptionOf, UsageError
from pipeline_assets.corpus.spine.errors import key as recipe_key
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.recipe import Option, sections_in
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.spine.usage import Stopwatch, end_bars

Content = dict[str, Any]
Inputs = Annotated[list[str], typer.Option("--input", help="File, folder or quoted pattern; repeatable.")]
SealedInputs = Annotated[list[str], typer.Option("--input", help="Folder of a source, or quoted pattern; repeatable.")]
_MAGIC = frozenset("*?[")


def folder_named(given: str, option: str) -> Path | None:
    """The folder, absolute; None where nothing lies there: it may be a name on a hub.

    Raises:
        UsageError: it is empty, or a file.
    """
    path = Path(given).absolute()
    if not given:
        raise UsageError("it is empty", option, "give a folder, or owner/name")
    if path.is_file():
        raise UsageError("this is a file", given, "give the folder that it lies in")
    return path if path.is_dir() else None


def commit_of(hub: HubFiles, name: str, revision: str | None) -> str:
    """The commit that a name on a hub has now at a branch or a tag, `main` by default; tells it.

    Raises:
        UsageError: it is no name, or nothing has it, or not at this revision.
        InputError: from the hub.
    """
    if not is_name(name, hub.repo_type):
        raise UsageError("there is no such folder, and it is no owner/name", name, "give a folder, or owner/name")
    try:
        commit = hub.resolve(name, revision or "main")
    except InputError as error:
        if f"no such {hub.repo_type}" not in error.what:
            raise
        what = f"there is no such folder here, and on the hub: {error.what}"
        raise type(error)(what, error.where, error.fix) from None
    echo(f"{name} at {commit}", err=True)
    return commit


def folder_or_commit(
    hub: HubFiles, given: str, option: str, revision: str | None, option_of_revision: str = "--revision"
) -> Content:
    """What is named as a recipe has it: the `path` of a folder, or the `revision` of what a hub has, its commit.

    Raises:
        UsageError: a revision of a folder is asked for; else as `folder_named`, `commit_of`.
    """
    path = folder_named(given, option)
    if path is None:
        return {"revision": commit_of(hub, given, revision)}
    if revision is not None:
        raise UsageError(f"{option_of_revision} is given", given, "leave it out: a folder has no commits")
    return {"path": str(path)}


def hub_source(
    hub: HubFiles,
    dataset: str,
    config: str,
    commit: str,
    amount: dict[str, int],
    rules: Sequence[str],
    seed: str,
    split: str = "train",
    text: str = "text",
) -> dict[str, Any]:
    """The section of a hub dataset: files by its card, else names; columns by its first file; licence by its card.

    Args:
        text: the column that holds it.
    Raises:
        UsageError: no such config (names the nearest), or it has no files of the split, or no such column.
        InputError: from the hub.
    """
    from pipeline_assets.corpus.readers.parquet import read_footer
    from pipeline_assets.corpus.snapshot.draw import head_columns
    from pipeline_assets.corpus.snapshot.plan import is_lines

    where = f"{dataset}@{commit}"
    listing = hub.list_files(dataset, commit)
    configs = hub_configs.read_configs(hub, dataset, commit)
    if not configs and config != "default":
        what = f"config {config!r} can't be found: its card lists none"
        raise UsageError(what, where, "give --config-name default for all files, or write a recipe with `files`")
    chosen = hub_configs.config_named(configs, config, where) if configs else None
    patterns, meant = hub_configs.files_of_split(chosen, split, [file.path for file in listing], where)
    if not meant:
        folder = None if chosen is None else chosen.folder
        none = (
            "its card names none" if folder is None else f"its card names the folder {folder} and no files of {split}"
        )
        what = f"config {config!r} has no files ({', '.join(patterns) or none})"
        raise UsageError(what, where, "take another config, or write a recipe with `files`")
    first = next(file for file in listing if file.path == meant[0])
    names: Sequence[str]
    if is_lines(first):
        names = head_columns(hub, dataset, commit, first)
    else:
        names = read_footer(hub, dataset, commit, first).metadata.schema.to_arrow_schema().names
    if text not in names:
        by_recipe = "write a recipe with `columns` that names the one with the text"
        fix = recipe_key("sources.0.columns.text", by_recipe, "give {} the one with the text")
        raise UsageError(f"there is no column `{text}`; it has {', '.join(names)}", where, fix)
    licence = hub_configs.metadata_of_card(hub_configs.read_card(hub, dataset, commit), where).get("license")
    return {
        "kind": "hub",
        "source": (dataset.partition("/")[2] + ("" if config == "default" else f"_{config}")).lower(),
        "dataset": dataset,
        "config": config,
        "revision": commit,
        "split": split,
        "files": recipe_patterns(patterns, meant, [file.path for file in listing]),
        "domain": "web",
        "license_tag": licence_table().tag_of(licence) or UNKNOWN if isinstance(licence, str) else UNKNOWN,
        "columns": {
            "text": text,
            "id": "id" if "id" in names else None,
            "created_at": "date" if "date" in names else None,
            "license": "license" if "license" in names else None,
        },
        "rules": list(rules),
        "language": None,
        "amount": amount,
        "seed": seed,
    }


def recipe_patterns(patterns: Sequence[str], meant: Sequence[str], listed: Sequence[str]) -> list[str]:
    """Patterns that match the files that a card means where fnmatch reads them, as of a recipe, whose `*` crosses
    folders: the card's own where those do, else the name of each file.
    """
    likely = [pattern.replace("**/", "*").replace("**", "*") for pattern in patterns]
    matched = [path for path in listed if any(fnmatch.fnmatchcase(path, pattern) for pattern in likely)]
    return likely if matched == list(meant) else [glob.escape(path) for path in meant]


def name_of(source: str) -> str:
    """A source's name as recipes have it: lower case, with hyphens for what can't stand in it."""
    return "".join(letter if letter.isalnum() or letter in "_.-" else "-" for letter in source.lower()).strip("-.")


def sealed_folders(patterns: Sequence[str]) -> list[Path]:
    """Folders that hold a sealed artifact, in the order of the patterns, then of their names; each once.

    Raises:
        UsageError: a pattern matches none, or none that those before it don't.
    """
    folders: dict[Path, Path] = {}
    for pattern in patterns:
        matches = sorted(Path(match).absolute() for match in glob.glob(pattern, recursive=True))
        found = [folder for match in matches if (folder := _sealed_folder(match)) is not None]
        if not found:
            raise UsageError("no sealed source matches", pattern, "give folders that hold a manifest.json")
        new = {match.resolve(): match for match in found if match.resolve() not in folders}
        if not new and any(match.is_dir() for match in matches):
            raise UsageError("it is given twice", pattern, "give it once")
        folders |= new
    return list(folders.values())


def sealed_below(folder: Path) -> list[Path]:
    """The folders that hold a manifest, sorted: the folder itself, and all below it."""
    return sorted(path.parent for path in folder.absolute().rglob(FILE_NAME))


def as_sealed(folder: Path, kind: Kind, upstream: Sequence[Target] = (), partition: str | None = None) -> Target:
    """What is sealed in a folder, whatever recipe made it, for something else to be made from.

    Raises:
        InputError: nothing is, or it is damaged.
    """
    manifest = open_artifact(folder).manifest
    target = kind.target(manifest.name, manifest.identity.recipe, upstream, partition=partition, is_given=True)
    return replace(target, name=manifest.name, folder=folder, export_as=None)


def _sealed_folder(match: Path) -> Path | None:
    """The folder of an artifact that was named: itself, one of its shards, or the manifest beside it."""
    beside = match.with_name(match.name.removesuffix(f".{FILE_NAME}"))
    places = [match, beside, match.parent, match.parent.parent] if match.is_file() else [match]
    return next((place for place in places if (place / FILE_NAME).is_file()), None)


def folder_and_patterns(inputs: Sequence[str], in_folder: str) -> tuple[Path, list[str]]:
    """The folder above all inputs, absolute, and each of them relative to it.

    Args:
        inputs: files, folders, or patterns as a shell reads them.
        in_folder: the pattern that a folder stands for.
    Raises:
        UsageError: an input matches nothing.
    """
    patterns = []
    for text in inputs:
        path = os.path.abspath(text) if text else ""
        if os.path.isdir(path):
            patterns.append(os.path.join(path, in_folder))
        elif os.path.exists(path) or glob.glob(path, recursive=True):
            patterns.append(path)
        else:
            raise UsageError("no file matches", text, "correct the path, or quote the pattern for the shell")
    folder = Path(os.path.commonpath([_fixed(pattern) for pattern in patterns]))
    return folder, [PurePosixPath(pattern).relative_to(folder).as_posix() for pattern in patterns]


def _fixed(pattern: str) -> str:
    """The folder of a pattern before its first wildcard."""
    path = PurePosixPath(pattern)
    parts = path.parts[:-1]
    fixed = next((number for number, part in enumerate(parts) if _MAGIC & set(part)), len(parts))
    return str(PurePosixPath(*parts[:fixed]))


@dataclasses.dataclass(frozen=True)
class Section:
    """Marks a parameter of a command as the content of a section, whose keys are options.

    A key whose option isn't given is left out, unless null is what it is then; a list is empty then.

    Attributes:
        keys: those that are options, dotted; None for all that have an `Option`.
        is_repeated: whether the command makes several such sections: then each option can be given several times.
    """

    section: type[pydantic.BaseModel]
    keys: tuple[str, ...] | None = None
    is_repeated: bool = False


class Sets:
    """Marks an option of a command as what sets recipe keys that no section makes options of."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys


def made(function: Callable[..., bool | None]) -> TyperCommand:
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
            flat |= {one.name: one for one in parameters_of(hints[name])}
            parts[name] = functools.partial(_filled, hints[name])
            for parameter in parameters_of(hints[name]):
                names |= _names_set(parameter.name, parameter.annotation)
        else:
            names |= _names_set(name, hints[name])
            flat[name] = _parameter(name, hints[name], parameter.default)
            parts[name] = operator.itemgetter(name)
    option_of = option_finder(options, names)
    settings = {one.name: one for one in parameters_of(Settings) if one.name not in flat}
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


def _names_set(name: str, annotation: Any) -> dict[str, str]:
    """Return the option by each recipe key that a parameter `Sets`."""
    keys = [key for mark in get_args(annotation) if isinstance(mark, Sets) for key in mark.keys]
    return dict.fromkeys(keys, _option(name)) | ({"": "options"} if keys else {})


def option_finder(options: Mapping[str, str], names: Mapping[str, str]) -> OptionOf:
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


def _option(name: str) -> str:
    """The option of a parameter."""
    return f"--{name.replace('_', '-')}"


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _keys(of: Section) -> Iterator[_Key]:
    for path, field, option in _fields(of.section):
        if of.keys is None or path in of.keys:
            word = option.name or path.rpartition(".")[2].replace("_", "-")
            kind, low, high = _type(field.annotation, of.is_repeated), *_bounds(field)
            default = _default(field, option, kind, of.is_repeated)
            annotation = kind | None if default is None else kind
            made = typer.Option(f"--{word}", *option.other_names, help=option.help, min=low, max=high)
            parameter = _parameter(word.replace("-", "_"), Annotated[annotation, made], default)
            has_null = type(None) in get_args(field.annotation)
            empty = None if has_null and (field.is_required() or field.default is None) else ...
            yield _Key(path, parameter, [] if kind == list[str] else empty)


def _default(field: FieldInfo, option: Option, kind: Any, is_repeated: bool) -> object:
    """What an option is where it isn't given: None where the section, or the command, says what then."""
    if option.default is not ...:
        return option.default
    if field.is_required():
        return inspect.Parameter.empty
    return field.default if isinstance(field.default, bool | int | str) and not is_repeated else None


def _fields(section: type[pydantic.BaseModel], within: str = "") -> Iterator[tuple[str, FieldInfo, Option]]:
    """Key, field and option of all that has one, in nested sections too."""
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


def _bounds(field: FieldInfo) -> tuple[int | None, int | None]:
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
