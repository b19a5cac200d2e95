"""Configs of a hub dataset, with their languages, scripts and files.

A multilingual dataset names its configs `<language>_<Script>` (ISO 639-3 and ISO 15924), such as `eng_Latn`. The card
of the dataset lists the configs under `configs`, in the YAML between its first two `---` lines (hub documentation,
"Manual Configuration").

Patterns in a card have the syntax of `datasets` (fsspec's glob): `*`, `?` and `[…]` match within one folder and ignore
hidden names, `**` matches any number of folders.
"""

import difflib
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_formats import FORMATS, detect_format
from pipeline_assets.spine.errors import InputError, UsageError, one_line
from pipeline_assets.spine.recipe_yaml import parse_yaml

CARD_FILE = "README.md"
_FIX = "name the files in the recipe instead of a config"
_ANY_FOLDERS = "**"
_SPLIT_WORDS = {
    "train": "train|training",
    "validation": "validation|valid|dev|val",
    "test": "test|testing|eval|evaluation",
}
_LANGUAGE_SCRIPT = re.compile(r"^([a-z]{2,3})_([A-Z][a-z]{3})(?:_\w+)?$")


@dataclass(frozen=True)
class Config:
    """Config of a hub dataset; `language` and `script`: None if not in the name."""

    name: str
    language: str | None
    script: str | None
    split_patterns: tuple[tuple[str, str], ...]  # split and pattern of the data files, in the card's order
    folder: str | None = None  # `data_dir`, if the card names only a folder of data files

    def patterns(self, split: str) -> list[str]:
        return [pattern for name, pattern in self.split_patterns if name == split]


def read_configs(hub: HubFiles, dataset: str, commit: str) -> list[Config]:
    """Read the configs that a dataset's card lists; raise InputError if invalid."""
    return parse_configs(read_card(hub, dataset, commit), f"{dataset}@{commit}:{CARD_FILE}")


def read_card(hub: HubFiles, dataset: str, commit: str) -> str:
    """Read the card of a dataset at a commit; return "" without a card."""
    card = next((file for file in hub.list_files(dataset, commit) if file.path == CARD_FILE), None)
    return hub.fetch(dataset, commit, card).path.read_bytes().decode("utf-8", "replace") if card else ""


def parse_configs(card: str, where: str) -> list[Config]:
    """Parse the configs in a card's text, in order; raise InputError if invalid."""
    metadata = parse_card_metadata(card, where)
    try:
        return [_parse_config(entry) for entry in metadata.get("configs") or []]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"`configs` is not a list of names and files ({error!r})", where, _FIX) from None


def parse_card_metadata(card: str, where: str) -> dict[str, Any]:
    """Return the mapping in a card's YAML, {} if none; InputError for invalid YAML."""
    text = card.lstrip("\ufeff").replace("\r\n", "\n")
    parts = re.split(r"^---[ \t]*$", text, maxsplit=2, flags=re.MULTILINE)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        metadata = parse_yaml(parts[1])
    except ValueError as error:
        raise InputError(f"the card's YAML cannot be read ({one_line(error)})", where, _FIX) from None
    return metadata if isinstance(metadata, dict) else {}


def matching_configs(configs: Sequence[Config], language: str | None, script: str | None) -> list[Config]:
    """Return configs with this language and script in their names; None allows any.

    Configs whose names have no language are omitted.
    """
    return [
        config
        for config in configs
        if language in (None, config.language) and script in (None, config.script) and config.language is not None
    ]


def find_config(configs: Sequence[Config], name: str, where: str) -> Config:
    """Return the config with this name; raise UsageError if it does not exist."""
    by_name = {config.name: config for config in configs}
    if name in by_name:
        return by_name[name]
    if not by_name:
        what = f"config {name!r} not found: the dataset's card lists no configs"
        raise UsageError(what, where, "name the files in the recipe")
    nearest = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5) or sorted(by_name)[:3]
    raise UsageError(f"config {name!r} not found", where, f"choose a config of its card, such as {', '.join(nearest)}")


def find_split_files(
    config: Config | None, split: str, paths: Sequence[str], where: str
) -> tuple[list[str], list[str]]:
    """Return the patterns and the paths of a split's Parquet or JSON lines files.

    If `config` has patterns for the split, the result is these patterns and the paths that match, possibly none.

    Otherwise, files are searched in the folder of `config`, or in the whole dataset if `config` is None (the card lists
    no configs). As in `datasets`, a file belongs to a split if its path below the folder contains a word for the split,
    as in `train/0.jsonl.zst`. If no path has a word for train, validation or test, all files belong to one split: the
    one that the folder's own path names, or `train` if `config` is None. JSON lines are used only if no file is
    Parquet; uncompressed `.json` files are never used. The patterns combine the files' common folder and endings.

    Both lists are empty if no file is selected, or if `config` has neither patterns for the split nor a folder.
    """
    if config is not None and (patterns := config.patterns(split)):
        matches = matching_paths(paths, patterns, where)
        return patterns, [path for path in matches if detect_format(path) in ("parquet", "lines")]
    folder = "" if config is None else config.folder
    if folder is None:
        return [], []
    inside = matching_paths(paths, [posixpath.join(folder, "**")], where)
    rows = [path for path in inside if detect_format(path) == "parquet"]
    if not rows:  # an uncompressed .json that no card names is a metadata file, such as dataset_infos.json
        rows = [path for path in inside if detect_format(path) == "lines" and not path.endswith(".json")]
    known = [_split_pattern(name) for name in _SPLIT_WORDS]
    names = [posixpath.relpath(path, folder or ".") for path in rows]
    is_unlabelled = not any(pattern.search(name) for name in names for pattern in known)
    if not (is_unlabelled and split == "train" and config is None):
        names = rows if is_unlabelled else names  # only the path of the folder may name the split
        rows = [path for path, name in zip(rows, names, strict=True) if _split_pattern(split).search(name)]
    if not rows:
        return [], []
    parent = posixpath.commonpath([posixpath.dirname(path) for path in rows])
    endings = {"".join(PurePosixPath(path).suffixes[-1 if path.endswith(tuple(FORMATS)) else -2 :]) for path in rows}
    return [posixpath.join(parent, f"**/*{ending}") for ending in sorted(endings)], rows


def _split_pattern(split: str) -> re.Pattern[str]:
    """Return a regular expression for paths that contain a word for the split."""
    words = _SPLIT_WORDS.get(split, re.escape(split))
    return re.compile(rf"(?:^|[-._ 0-9/])(?:{words})(?:[-._ 0-9/]|$)")


def _parse_config(entry: dict[str, Any]) -> Config:
    name = str(entry["config_name"])
    match = _LANGUAGE_SCRIPT.match(name)
    language, script = match.groups() if match else (None, None)
    folder, data_files = entry.get("data_dir"), entry.get("data_files")
    files = tuple(_config_patterns(data_files, "" if folder is None else str(folder)))
    is_folder = folder is not None and data_files is None
    return Config(name, language, script, files, str(folder) if is_folder else None)


def _config_patterns(data_files: Any, folder: str) -> Iterable[tuple[str, str]]:
    """Yield (split, pattern below `folder`) for each path in `data_files`."""
    for item in data_files if isinstance(data_files, list) else [data_files]:
        if isinstance(item, str):
            yield "train", posixpath.join(folder, item)
        elif isinstance(item, dict):
            paths = item["path"]
            for path in paths if isinstance(paths, list) else [paths]:
                yield str(item.get("split", "train")), posixpath.join(folder, str(path))


def matching_paths(paths: Iterable[str], patterns: Sequence[str], where: object) -> list[str]:
    """Return the distinct paths that match a pattern, in the order of `paths`.

    A pattern that equals a path matches only that path. As in `datasets`, `**` must be a whole folder name; otherwise
    InputError is raised.
    """
    known_paths = dict.fromkeys(paths)
    exact = dict.fromkeys(PurePosixPath(pattern).as_posix() for pattern in patterns)  # without `./` and `//`
    globs = [PurePosixPath(pattern).parts for pattern in exact if pattern not in known_paths]
    for parts in globs:
        if any(_ANY_FOLDERS in part and part != _ANY_FOLDERS for part in parts):
            what = f"in the pattern {'/'.join(parts)!r}, `**` must be a whole folder name"
            raise InputError(what, where, "write `**/` for folders and `*` in a name")
    return [
        path
        for path in known_paths
        if path in exact or any(_matches_pattern(tuple(path.split("/")), glob) for glob in globs)
    ]


def _matches_pattern(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Check whether the parts of a path match the parts of a pattern."""
    if not path or not pattern:
        return not path and not pattern
    is_visible = pattern[0].startswith(".") or not path[0].startswith(".")
    if pattern[0] != _ANY_FOLDERS:
        return is_visible and fnmatchcase(path[0], pattern[0]) and _matches_pattern(path[1:], pattern[1:])
    return _matches_pattern(path, pattern[1:] or ("*",)) or (is_visible and _matches_pattern(path[1:], pattern))
