"""Inputs on the command line: files, sealed artifacts, or hub repositories."""

import fnmatch
import glob
import hashlib
import itertools
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.build.removal_staleness import has_listed_rows
from pipeline_assets.build.run import HUB_TRIES, open_hub
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.commands.options import RecipeContent
from pipeline_assets.commands.terminal import echo, format_command
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.readers import hub_configs
from pipeline_assets.corpus.readers.file_patterns import glob_paths
from pipeline_assets.corpus.readers.hub_files import HubFiles, is_repo_name
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.source_formats import detect_format
from pipeline_assets.corpus.stores.object_source import is_object_url
from pipeline_assets.spine.areas import scan_folders
from pipeline_assets.spine.artifact import Artifact, open_artifact, try_read_manifest
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.key_types import MAX_NAME
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.rows.row_stores import RowStores

Inputs = Annotated[list[str], typer.Option("--input", help="File, folder or quoted pattern; repeatable.")]
SealedInputs = Annotated[list[str], typer.Option("--input", help="Folder of a source, or quoted pattern; repeatable.")]
_WILDCARDS = frozenset("*?[")
_USUAL_COLUMNS = {"id": "id", "created_at": "date", "license": "license"}
_KINDS_READ_WITH_UPSTREAM = ("stage_a/filtered", "nemotron/nll_scores")


def local_folder(name: str, option: str) -> Path | None:
    """Return a folder's path, or None if it is missing; raise UsageError for a file."""
    path = Path(name).absolute()
    if not name:
        raise UsageError("must not be empty", option, "pass a folder, or owner/name")
    if path.is_file():
        raise UsageError("expected a folder, got a file", name, "pass the folder that contains it")
    return path if path.is_dir() else None


def open_interactive_hub(root: Path, variables: Mapping[str, str]) -> HubFiles:
    """Return access to the hub with short waits, because a user waits for the result.

    A request gets two tries of 10 seconds each. If CORPUSMILL_HUB_TRIES is set, the limits of a build apply instead.
    """
    hub = open_hub(root, variables)
    return hub if variables.get(HUB_TRIES.variable) else replace(hub, tries=2, timeout_s=10.0)


def resolve_commit(hub: HubFiles, name: str, revision: str | None) -> str:
    """Resolve a branch, tag or commit (default: `main`); print and return the commit."""
    commit = hub.resolve(name, revision or "main")
    echo(f"{name} at {commit}", err=True)
    return commit


def folder_or_commit(
    hub: HubFiles, name: str, option: str, revision: str | None, revision_option: str = "--revision"
) -> RecipeContent:
    """Return {"path": folder} for a folder, or {"revision": commit} for a hub repo.

    A `revision` of None stands for `main`. Errors name the options `option` and `revision_option`.
    """
    path = local_folder(name, option)
    if path is not None:
        if revision is not None:
            raise UsageError(f"a folder has no commits, got {revision_option}", name, f"omit {revision_option}")
        return {"path": str(path)}
    if not is_repo_name(name, hub.repo_type):
        raise UsageError("folder not found", name, "pass a folder, or owner/name")
    try:
        return {"revision": resolve_commit(hub, name, revision)}
    except InputError as error:
        if revision is not None:
            raise
        what = f"{error.what}, and the folder {name} was not found"
        raise type(error)(what, error.where or None, error.fix) from None


def hub_source_section(
    hub: HubFiles,
    dataset: str,
    config: str,
    commit: str,
    amount: dict[str, int],
    rules: Sequence[str],
    seed: str,
    split: str = "train",
    text_column: str = "text",
) -> dict[str, Any]:
    """Return a section of `sources` that reads a config of a hub dataset.

    Licence and files come from the dataset's card; if the card has no configs, the files are found by their names. The
    columns for id, date and licence are set if the first file with columns has the usual names. `amount`, `rules` and
    `seed` are copied to the section. Raise UsageError if the config, the split or the text column does not exist; for a
    nested column such as `body.text`, only the name before the first dot is checked.
    """
    where = f"{dataset}@{commit}"
    listing = hub.list_files(dataset, commit)
    configs = hub_configs.read_configs(hub, dataset, commit)
    if not configs and config != "default":
        what = f"config {config!r} not found: the dataset's card lists no configs"
        raise UsageError(what, where, "pass --config-name default for all files, or write a recipe with `files`")
    chosen = hub_configs.find_config(configs, config, where) if configs else None
    patterns, matches = hub_configs.find_split_files(chosen, split, [file.path for file in listing], where)
    if not matches:
        folder = None if chosen is None else chosen.folder
        listed = "its card names none" if folder is None else f"its card names only the folder {folder}"
        named = ", ".join(patterns) or listed
        if not any(detect_format(file.path) in ("parquet", "lines") for file in listing):
            fix = f"download it, and run corpusmill init {slugify(dataset.partition('/')[2])} --input FOLDER"
            raise UsageError("no file of the dataset is Parquet or JSON lines", where, fix)
        what = f"config {config!r} has no files of split {split!r} ({named})"
        raise UsageError(what, where, "choose another split or config, or write a recipe with `files`")
    chosen_paths = set(matches)
    files = (file for file in listing if file.path in chosen_paths)
    names = next(filter(None, (_file_columns(hub, dataset, commit, file) for file in files)), ())
    if not any(f"{text_column}.".startswith(f"{name}.") for name in names):
        fix = "set `sources.0.columns.text` in the recipe to the column that holds the text"
        raise UsageError(f"column `{text_column}` not found among {', '.join(names) or 'no columns'}", where, fix)
    licence = hub_configs.parse_card_metadata(hub_configs.read_card(hub, dataset, commit), where).get("license")
    return {
        "kind": "hub",
        "source": (dataset.partition("/")[2] + ("" if config == "default" else f"_{config}")).lower(),
        "dataset": dataset,
        "config": config,
        "revision": commit,
        "split": split,
        "files": recipe_patterns(patterns, matches, [file.path for file in listing]),
        "domain": "web",
        "license_tag": licence_table().match_tag(licence) or UNKNOWN if isinstance(licence, str) else UNKNOWN,
        "columns": {"text": text_column}
        | {key: name if name in names else None for key, name in _USUAL_COLUMNS.items()},
        "rules": list(rules),
        "language": None,
        "amount": amount,
        "seed": seed,
    }


def _file_columns(hub: HubFiles, dataset: str, commit: str, file: HubFile) -> Sequence[str]:
    """Return the columns of a hub file; empty for JSON lines without rows."""
    from pipeline_assets.corpus.readers.hub_parquet import read_footer
    from pipeline_assets.corpus.snapshot.line_prefixes import head_columns
    from pipeline_assets.corpus.snapshot.plan import is_json_lines

    if is_json_lines(file):
        return head_columns(hub, dataset, commit, file)
    names: list[str] = read_footer(hub, dataset, commit, file)[0].schema.to_arrow_schema().names
    return names


def recipe_patterns(card_patterns: Sequence[str], files: Sequence[str], listed_paths: Sequence[str]) -> list[str]:
    """Return recipe patterns that select exactly `files` from `listed_paths`.

    The patterns of a dataset card are converted to fnmatch patterns, whose `*` also matches `/`. If the converted
    patterns select more or fewer files than `files`, return the escaped name of each file instead.
    """
    converted = [pattern.replace("**/", "*").replace("**", "*") for pattern in card_patterns]
    matches = [path for path in listed_paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in converted)]
    return converted if matches == list(files) else [*map(glob.escape, files)]


def slugify(text: str) -> str:
    """Convert a text to a name in lower case, with hyphens for invalid characters.

    Accents are removed. Letters without an ASCII base letter are removed too, so the name may be empty.
    """
    return "".join(
        unicodedata.normalize("NFD", letter).encode("ascii", "ignore").decode()
        if letter.isalnum() or letter in "_.-"
        else "-"
        for letter in text.lower()
    ).strip("-.")


def join_names(names: Iterable[str]) -> str:
    """Join names as the name of a recipe; cut a long one, and end it with a hash."""
    name = "-".join(names)
    return name if len(name) <= MAX_NAME else f"{name[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def sealed_folders(patterns: Sequence[str]) -> list[Path]:
    """List the sealed folders that match patterns, in pattern order, then path order.

    A folder is listed once. Raise UsageError if a pattern matches no sealed folder, or only folders already listed.
    """
    folders: dict[Path, Path] = {}
    for pattern in patterns:
        matches = sorted(glob_paths(os.path.abspath(pattern)))
        sealed = [folder for match in matches if (folder := _find_sealed_folder(match)) is not None]
        if not sealed:
            raise UsageError("no sealed source matches", pattern, "choose folders that contain a manifest.json")
        new = {match.resolve(): match for match in sealed if match.resolve() not in folders}
        if not new and any(match.is_dir() for match in matches):
            raise UsageError("the input is repeated", pattern, "pass it once")
        folders |= new
    return list(folders.values())


def _find_sealed_folder(matched_path: Path) -> Path | None:
    """Return the sealed folder to which a path belongs; None if it belongs to none.

    The path may be the folder, its sibling FOLDER.manifest.json, or a file in the folder or one level deeper.
    """
    folders = [matched_path]
    if matched_path.is_file():
        sibling = matched_path.with_name(matched_path.name.removesuffix(f".{MANIFEST_FILE}"))
        folders += [sibling, matched_path.parent, matched_path.parent.parent]
    return next((folder for folder in folders if (folder / MANIFEST_FILE).is_file()), None)


def warn_of_listed_rows(folder: Path, root: Path) -> None:
    """Warn if an artifact that is about to be copied has rows on the removal list."""
    manifest = try_read_manifest(folder)
    if manifest is not None and has_listed_rows(root, manifest):
        command = format_command("forget", "--data", root)
        echo(f"warning: {folder} has rows of the removal list; {command} prints how to rebuild it", err=True)


def warn_of_unsearchable(stores: "RowStores") -> None:
    """Warn of artifacts whose rows cannot be searched, because an input is missing."""
    if found := stores.find_unsearchable():
        folder, missing = next(iter(found.items()))
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        what = f"{missing}, from which it was built, is missing"
        echo(f"warning: rows cannot be followed to {folder}{more}: {what}", err=True)


def sealed_target(folder: Path, *kinds: Kind) -> Target:
    """Return a folder's artifact as a target; raise UsageError if its kind is wrong."""
    artifact = open_artifact(folder)
    manifest = artifact.manifest
    kind = next((kind for kind in kinds if kind.name == manifest.kind), None)
    if kind is None:
        expected = " or ".join(kind.name for kind in kinds)
        raise UsageError(f"expected a {expected}, got a {manifest.kind}", folder, "choose another folder")
    upstream = upstream_targets(artifact, *SYSTEMS.kinds.values()) if kind.name in _KINDS_READ_WITH_UPSTREAM else []
    target = kind.target(manifest.name, manifest.identity.recipe, upstream, is_external=True)
    external = kind.external_inputs(manifest, find_data_root(folder) or folder.parent)
    partition = manifest.name.partition("/")[2] or None
    return replace(target, partition=partition, folder=folder.absolute(), copy_name=None, external_inputs=external)


def upstream_targets(artifact: Artifact, *kinds: Kind) -> list[Target]:
    """Find an artifact's inputs of these kinds in its data root, by their digests.

    Raise InputError if an input is missing or damaged.
    """
    lineage = Lineage(find_data_root(artifact.folder) or artifact.folder.parent)
    inputs, names = artifact.manifest.identity.upstream, {kind.name for kind in kinds}
    digests = [entry["digest"] for entry in inputs if "/".join(entry["name"].split("/")[:2]) in names]
    return [sealed_target(lineage.open_by_digest(digest, artifact.manifest.name).folder, *kinds) for digest in digests]


def manifests_below(folder: Path) -> Iterator[tuple[Path, Manifest]]:
    """Yield folder and manifest of each artifact below a folder, except leftovers.

    Raise InputError if a manifest is damaged.
    """
    for path, manifest in scan_folders(str(folder.absolute())):
        if isinstance(manifest, InputError):
            raise manifest
        yield Path(path), manifest


def sealed_targets(folder: Path, *kinds: Kind) -> dict[str, Target]:
    """Return artifacts below a folder by role; raise UsageError if a role repeats."""
    targets: dict[str, Target] = {}
    names = {kind.name for kind in kinds}
    for sealed in (path for path, manifest in manifests_below(folder) if manifest.kind in names):
        target = sealed_target(sealed, *kinds)
        if (earlier := targets.setdefault(target.role, target)) is not target:
            what = f"{target.role} is also sealed in {earlier.folder}"
            raise UsageError(what, sealed, "pass a folder that holds only one recipe's artifacts")
    return targets


def folder_and_patterns(inputs: Sequence[str], folder_pattern: str) -> tuple[Path, list[str]]:
    """Return the absolute path of the inputs' common folder, and a pattern per input.

    The patterns are relative to the common folder. An input is a file, a folder or a shell pattern. A folder stands for
    its files that match `folder_pattern`. Raise UsageError if an input is a URL, or matches no file or folder.
    """
    paths = list[tuple[PurePosixPath, str]]()  # with the pattern of a folder's files; empty for a file or pattern
    for text in inputs:
        path = os.path.abspath(text) if text else ""
        if os.path.isdir(path):
            paths.append((PurePosixPath(path), folder_pattern))
        elif any(True for _ in glob_paths(path)):
            paths.append((PurePosixPath(path), ""))
        elif "://" in text:
            in_recipe = "write this URL as the path of a source in a recipe (docs/object_stores.md), or copy the files"
            fix = in_recipe if is_object_url(text) else "pass the path of a local file or folder"
            raise UsageError("only local files are read here", text, fix)
        else:
            raise UsageError("no file matches", text, "correct the path, or quote the pattern for the shell")
    fixed_parts = (
        path.parts if inner else itertools.takewhile(_WILDCARDS.isdisjoint, path.parts[:-1]) for path, inner in paths
    )
    folder = Path(os.path.commonpath([PurePosixPath(*parts) for parts in fixed_parts]))
    relative = [(path.relative_to(folder).as_posix(), inner) for path, inner in paths]
    return folder, [PurePosixPath(glob.escape(path), inner).as_posix() if inner else path for path, inner in relative]
