"""What a user names for a command to work on: files, what is sealed here, or what a hub has, at its commit of now."""

import fnmatch
import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from pipeline_assets.build.kind import Kind
from pipeline_assets.build.target import Target
from pipeline_assets.commands.options import Content
from pipeline_assets.commands.terminal import echo
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.readers import hub_configs
from pipeline_assets.corpus.readers.hub_files import HubFiles, is_name
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.errors import key as recipe_key
from pipeline_assets.spine.lineage import Lineage, find_data_root
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.systems.registry import SYSTEMS

Inputs = Annotated[list[str], typer.Option("--input", help="File, folder or quoted pattern; repeatable.")]
SealedInputs = Annotated[list[str], typer.Option("--input", help="Folder of a source, or quoted pattern; repeatable.")]
_MAGIC = frozenset("*?[")
_USUAL_COLUMNS = {"id": "id", "created_at": "date", "license": "license"}
_READ_WITH_UPSTREAM = ("stage_a/filtered", "nemotron/nll_scores")


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


def resolved(hub: HubFiles, name: str, revision: str | None) -> str:
    """Return the commit that a name on a hub has now at a branch or a tag, `main` by default; tell it."""
    commit = hub.resolve(name, revision or "main")
    echo(f"{name} at {commit}", err=True)
    return commit


def folder_or_commit(
    hub: HubFiles, given: str, option: str, revision: str | None, option_of_revision: str = "--revision"
) -> Content:
    """What is named as a recipe has it: the `path` of a folder, or the `revision` of what a hub has, its commit.

    Raises:
        UsageError: it is no name, nothing has it, or a revision of a folder is asked for; or as `folder_named`.
        InputError: from the hub.
    """
    path = folder_named(given, option)
    if path is not None:
        if revision is not None:
            raise UsageError(f"{option_of_revision} is given", given, "leave it out: a folder has no commits")
        return {"path": str(path)}
    if not is_name(given, hub.repo_type):
        raise UsageError("there is no such folder, and it is no owner/name", given, "give a folder, or owner/name")
    try:
        return {"revision": resolved(hub, given, revision)}
    except InputError as error:
        if f"no such {hub.repo_type}" not in error.what:
            raise
        what = f"there is no such folder here, and on the hub: {error.what}"
        raise type(error)(what, error.where, error.fix) from None


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
    from pipeline_assets.corpus.readers.hub_parquet import read_footer
    from pipeline_assets.corpus.snapshot.line_prefixes import head_columns
    from pipeline_assets.corpus.snapshot.plan import is_lines

    where = f"{dataset}@{commit}"
    listing = hub.list_files(dataset, commit)
    configs = hub_configs.read_configs(hub, dataset, commit)
    if not configs and config != "default":
        what = f"config {config!r} can't be found: its card lists none"
        raise UsageError(what, where, "give --config-name default for all files, or write a recipe with `files`")
    chosen = hub_configs.find_config(configs, config, where) if configs else None
    patterns, meant = hub_configs.find_split_files(chosen, split, [file.path for file in listing], where)
    if not meant:
        folder = None if chosen is None else chosen.folder
        none = (
            "its card names none" if folder is None else f"its card names the folder {folder} and no files of {split}"
        )
        what = f"config {config!r} has no files ({', '.join(patterns) or none})"
        raise UsageError(what, where, "take another config, or write a recipe with `files`")
    first = next(file for file in listing if file.path == meant[0])
    if is_lines(first):
        names = [*head_columns(hub, dataset, commit, first)]
    else:
        names = read_footer(hub, dataset, commit, first).metadata.schema.to_arrow_schema().names
    if text not in names:
        by_recipe = "write a recipe with `columns` that names the one with the text"
        fix = recipe_key("sources.0.columns.text", by_recipe, "give {} the one with the text")
        raise UsageError(f"there is no column `{text}`; it has {', '.join(names)}", where, fix)
    licence = hub_configs.parse_card_metadata(hub_configs.read_card(hub, dataset, commit), where).get("license")
    return {
        "kind": "hub",
        "source": (dataset.partition("/")[2] + ("" if config == "default" else f"_{config}")).lower(),
        "dataset": dataset,
        "config": config,
        "revision": commit,
        "split": split,
        "files": recipe_patterns(patterns, meant, [file.path for file in listing]),
        "domain": "web",
        "license_tag": licence_table().match_tag(licence) or UNKNOWN if isinstance(licence, str) else UNKNOWN,
        "columns": {"text": text} | {key: name if name in names else None for key, name in _USUAL_COLUMNS.items()},
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


def slugify(source: str) -> str:
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


def _sealed_folder(match: Path) -> Path | None:
    """The folder of an artifact that was named: itself, one of its shards, or the manifest beside it."""
    beside = match.with_name(match.name.removesuffix(f".{FILE_NAME}"))
    places = [match, beside, match.parent, match.parent.parent] if match.is_file() else [match]
    return next((place for place in places if (place / FILE_NAME).is_file()), None)


def sealed_target(folder: Path, *kinds: Kind) -> Target:
    """Return what is sealed in a folder, whatever recipe made it, for something else to be made from.

    Raises:
        UsageError: It is of none of these kinds.
        InputError: Nothing is sealed there, or it is damaged.
    """
    artifact = open_artifact(folder)
    manifest = artifact.manifest
    kind = next((one for one in kinds if one.name == manifest.kind), None)
    if kind is None:
        raise UsageError(f"this is a {manifest.kind}", folder, f"give a {' or '.join(one.name for one in kinds)}")
    upstream = upstream_targets(artifact, *SYSTEMS.kinds.values()) if kind.name in _READ_WITH_UPSTREAM else []
    target = kind.target(manifest.name, manifest.identity.recipe, upstream, is_external=True)
    outside = kind.external_inputs(manifest, find_data_root_above(folder))
    partition = manifest.name.partition("/")[2] or None
    return replace(target, partition=partition, folder=folder.absolute(), export_as=None, external_inputs=outside)


def upstream_targets(artifact: Artifact, *kinds: Kind) -> list[Target]:
    """Return what an artifact was made from, of these kinds, wherever it lies in the data root of the artifact.

    Raises:
        InputError: It is not there, or damaged.
    """
    lineage, names = Lineage(find_data_root_above(artifact.folder)), {kind.name for kind in kinds}
    entries = (one for one in artifact.manifest.identity.upstream if "/".join(one["name"].split("/")[:2]) in names)
    return [sealed_target(lineage.locate(entry["digest"]).folder, *kinds) for entry in entries]


def find_data_root_above(folder: Path) -> Path:
    """Return the data root that a folder lies in; the folder around it where it lies in none."""
    return find_data_root(folder) or folder.parent


def sealed_below(folder: Path, *kinds: Kind) -> dict[str, Target]:
    """Return what is sealed in a folder and below it, of these kinds, each by its role.

    Raises:
        UsageError: Two of a kind have one partition.
    """
    found: dict[str, Target] = {}
    names = {kind.name for kind in kinds}
    for place in sorted(path.parent for path in folder.absolute().rglob(FILE_NAME)):
        if open_artifact(place).manifest.kind not in names:
            continue
        target = sealed_target(place, *kinds)
        earlier = found.setdefault(target.role, target)
        if earlier is not target:
            what = f"{earlier.folder} has {target.role} too"
            raise UsageError(what, place, "give the folder of one recipe")
    return found


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
