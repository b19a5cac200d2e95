"""Configs of a hub dataset: their names as language and script, and the files that each one says are its own.

A multilingual dataset names its configs `<language>_<Script>`: ISO 639-3 and ISO 15924, such as `eng_Latn`. The
dataset's card lists them, in the YAML between its first two `---` lines, under `configs` (hub documentation, "Manual
Configuration"). Names are compared whole: `asm_Beng` is Assamese in Bengali script and has nothing to do with `eng`.

Patterns of a card are read as `datasets` reads them (fsspec's glob): `*`, `?` and `[…]` stay in a folder and pass over
hidden names, `**` stands for any number of folders. By fnmatch, whose `*` crosses folders, one split would have the
files of another.
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

CARD = "README.md"
_FIX = "name the files in the recipe instead of a config"
_ANY_FOLDERS = "**"
_SPLIT_WORDS = {
    split: re.compile(rf"(?:^|[-._ 0-9/])(?:{words})(?:[-._ 0-9/]|$)")
    for split, words in (
        ("train", "train|training"),
        ("validation", "validation|valid|dev|val"),
        ("test", "test|testing|eval|evaluation"),
    )
}
_LANGUAGE_SCRIPT = re.compile(r"^([a-z]{2,3})_([A-Z][a-z]{3})(?:_\w+)?$")


@dataclass(frozen=True)
class Config:
    """One config of a dataset.

    Attributes:
        name: as the card has it.
        language, script: where the name is of that form, else None.
        files: (split, pattern) of its data files, in the card's order; patterns are as `matching_paths` reads them.
        folder: the one that its files lie in, where the card names that (`data_dir`) and no files; else None.
    """

    name: str
    language: str | None
    script: str | None
    files: tuple[tuple[str, str], ...]
    folder: str | None = None

    def patterns(self, split: str) -> list[str]:
        """Patterns of the files of one split."""
        return [pattern for name, pattern in self.files if name == split]


def read_configs(hub: HubFiles, dataset: str, commit: str) -> list[Config]:
    """The configs in the card of a dataset at a commit, in the card's order; none where the card lists none.

    Raises:
        InputError: from the hub, or a card whose YAML can't be read.
    """
    return configs_of_card(read_card(hub, dataset, commit), f"{dataset}@{commit}:{CARD}")


def read_card(hub: HubFiles, dataset: str, commit: str) -> str:
    """The card of a dataset at a commit; "" where it has none."""
    card = next((file for file in hub.list_files(dataset, commit) if file.path == CARD), None)
    return hub.fetch(dataset, commit, card).local.read_bytes().decode("utf-8", "replace") if card else ""


def configs_of_card(card: str, where: str) -> list[Config]:
    """The configs in the text of a card.

    Raises:
        InputError: its YAML can't be read, or `configs` is no list of names and files.
    """
    metadata = metadata_of_card(card, where)
    try:
        return [_config(entry) for entry in metadata.get("configs") or []]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"`configs` is not a list of names and files ({error!r})", where, _FIX) from None


def metadata_of_card(card: str, where: str) -> dict[str, Any]:
    """The YAML at the head of a card; empty where it has none.

    Raises:
        InputError: it can't be read.
    """
    text = card.lstrip("\ufeff").replace("\r\n", "\n")
    parts = re.split(r"^---[ \t]*$", text, maxsplit=2, flags=re.MULTILINE)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        metadata = parse_yaml(parts[1])
    except ValueError as error:
        raise InputError(f"the card's YAML can't be read ({one_line(error)})", where, _FIX) from None
    return metadata if isinstance(metadata, dict) else {}


def matching(configs: Sequence[Config], language: str | None, script: str | None) -> list[Config]:
    """Configs of exactly this language and this script; None asks for any."""
    return [
        config
        for config in configs
        if language in (None, config.language) and script in (None, config.script) and config.language is not None
    ]


def config_named(configs: Sequence[Config], name: str, where: str) -> Config:
    """The config of exactly this name.

    Raises:
        UsageError: there is none (names the nearest).
    """
    by_name = {config.name: config for config in configs}
    if name in by_name:
        return by_name[name]
    if not by_name:
        raise UsageError(f"there is no config {name!r}: its card lists none", where, "name its files in the recipe")
    nearest = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5) or sorted(by_name)[:3]
    raise UsageError(f"there is no config {name!r} among {len(by_name)}", where, f"nearest: {', '.join(nearest)}")


def files_of_split(config: Config | None, split: str, paths: Sequence[str], where: str) -> tuple[list[str], list[str]]:
    """Patterns of the files of a split, as a card has them, and the files themselves: Parquet or JSON lines.

    Where a card names no files, folders and names say the split, as they do to `datasets`: `train/0.jsonl.zst`,
    `web-train-00000.parquet`; where none says any, all files are of `train`. Where there is Parquet, lines aren't read.

    Args:
        config: None where the card lists none.
        paths: of the dataset.
    Raises:
        InputError: a pattern of the card is none of `datasets`.
    """
    if config is not None and (patterns := config.patterns(split)):
        matching = matching_paths(paths, patterns, where)
        return patterns, [path for path in matching if detect_format(path) in ("parquet", "lines")]
    folder = "" if config is None else config.folder
    if folder is None:
        return [], []
    inside = matching_paths(paths, [posixpath.join(folder, "**")], where)
    rows = [path for path in inside if detect_format(path) == "parquet"]
    if not rows:  # an uncompressed .json that no card names is dataset_infos.json or its like
        rows = [path for path in inside if detect_format(path) == "lines" and not path.endswith(".json")]
    said = [path for path in rows if _SPLIT_WORDS[split].search(path)]
    if said or config is not None or any(words.search(path) for path in rows for words in _SPLIT_WORDS.values()):
        rows = said
    if not rows:
        return [], []
    above = posixpath.commonpath([posixpath.dirname(path) for path in rows])
    endings = {"".join(PurePosixPath(path).suffixes[-1 if path.endswith(tuple(FORMATS)) else -2 :]) for path in rows}
    return [posixpath.join(above, f"**/*{ending}") for ending in sorted(endings)], rows


def _config(entry: dict[str, Any]) -> Config:
    name = str(entry["config_name"])
    match = _LANGUAGE_SCRIPT.match(name)
    language, script = match.groups() if match else (None, None)
    folder, data_files = entry.get("data_dir"), entry.get("data_files")
    files = tuple(_files(data_files, "" if folder is None else str(folder)))
    is_folder = folder is not None and data_files is None
    return Config(name, language, script, files, str(folder) if is_folder else None)


def _files(data_files: Any, folder: str) -> Iterable[tuple[str, str]]:
    """(split, pattern) of every form that a card may have: a pattern, a list of them, or of {split, path}. All are
    relative to the folder.
    """
    for item in data_files if isinstance(data_files, list) else [data_files]:
        if isinstance(item, str):
            yield "train", posixpath.join(folder, item)
        elif isinstance(item, dict):
            paths = item["path"]
            for path in paths if isinstance(paths, list) else [paths]:
                yield str(item.get("split", "train")), posixpath.join(folder, str(path))


def matching_paths(paths: Iterable[str], patterns: Sequence[str], where: object) -> list[str]:
    """The paths that one of the patterns means, in their order; a pattern that is a path is that path alone.

    Raises:
        InputError: `**` is beside other characters, which is no pattern of `datasets` either.
    """
    there = dict.fromkeys(paths)
    named = dict.fromkeys(PurePosixPath(pattern).as_posix() for pattern in patterns)  # without `./` and `//`
    globs = [PurePosixPath(pattern).parts for pattern in named if pattern not in there]
    for parts in globs:
        if any(_ANY_FOLDERS in part and part != _ANY_FOLDERS for part in parts):
            what = f"in the pattern {'/'.join(parts)!r}, `**` is no folder of its own"
            raise InputError(what, where, "write `**/` for folders and `*` in a name")
    return [
        path for path in there if path in named or any(_matches_config(tuple(path.split("/")), glob) for glob in globs)
    ]


def _matches_config(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether the names of folders and of a file are what the parts of a pattern stand for."""
    if not names or not parts:
        return not names and not parts
    is_shown = parts[0].startswith(".") or not names[0].startswith(".")
    if parts[0] != _ANY_FOLDERS:
        return is_shown and fnmatchcase(names[0], parts[0]) and _matches_config(names[1:], parts[1:])
    return _matches_config(names, parts[1:] or ("*",)) or (is_shown and _matches_config(names[1:], parts))
