"""Splits of a dataset and their files.

Files, columns and row counts are read at the pinned revision. Rules (see "Files of a split" in `docs/nemotron.md`):

1. The `configs` of the card's YAML name the files of each split. If several configs have splits of the same name, each
   of these splits is named after its config: `<config>` if the config has one split, else `<config>_<split>`.
2. If the card names no files, or only the folder of a config (`data_dir`), a file belongs to the split whose name
   is in the file's name.
3. If a split has JSON lines and Parquet files, only the JSON lines are read.
"""

import difflib
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from pipeline_assets.corpus.readers.hub_configs import Config, matching_paths, parse_configs
from pipeline_assets.corpus.readers.source_formats import strip_compression_suffix
from pipeline_assets.spine.errors import InputError, UsageError

_INVALID_IN_KEYS = re.compile(r"[^a-z0-9_.-]+")


def dataset_key(dataset: str) -> str:
    """Return a dataset's name in partitions: without owner, in lower case."""
    return _INVALID_IN_KEYS.sub("-", dataset.rpartition("/")[2].lower()).strip("-.")


def partition_key(dataset: str, split: str) -> str:
    """Return the partition of a split, such as `nemotron-math-v2/high_part00`."""
    return f"{dataset_key(dataset)}/{split}"


def dataset_of_partition(partition: str) -> str:
    """Return the dataset of a partition: `a` of `a/b`."""
    return partition.partition("/")[0]


Format = Literal["jsonl", "parquet"]
FoundBy = Literal["recipe", "card", "file name"]
_SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_SHARD_NUMBER = re.compile(r"-\d{5}-of-\d{5}$")
_PART_SUFFIX = re.compile(r"part_(\d+)$")
_INVALID_CHARACTERS = re.compile(r"[^\w-]+")
_NO_FILE_FIXES = {
    "recipe": "correct `files` of the split",
    "card": "correct the card or pin another commit, or set `files` of the dataset's splits in a recipe",
}
DEFAULT_CONFIG = "default"  # name that a hub gives to an only config


@dataclass(frozen=True)
class SplitFiles:
    """Sorted files of one split, with the reason for which they belong to it."""

    split: str
    files: tuple[str, ...]
    format: Format
    found_by: FoundBy
    left_out: tuple[str, ...] = ()  # unread files of the split: of another format, or with its name but unlisted
    config: str | None = None  # name of the card's config; None for `default`, or if no config has the split


def detect_format(path: str) -> Format | None:
    """Detect a file's format from its suffix, compressed or not, or return None."""
    name = strip_compression_suffix(path).lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def split_from_file_name(path: str) -> str:
    return _split_name(_remove_suffixes(path))


def find_splits(paths: Iterable[str], card: str, where: str) -> dict[str, SplitFiles]:
    """Find all splits of a dataset with their files, by name.

    Splits on the card have the card's order. Splits that are derived from file names are sorted. `card` is the text of
    README.md, empty if the file is missing; `where` names the dataset in errors. Raise InputError if two splits share a
    name.
    """
    available = sorted(paths)
    configs = parse_configs(card, where)
    if any(config.split_patterns or config.folder is not None for config in configs):
        return _find_card_splits(configs, available, where)
    by_name = _group_by_name(available, where)
    return {split: _prefer_json_lines(split, files, "file name") for split, files in by_name.items()}


def find_split(
    paths: Iterable[str], card: str, split: str, patterns: Mapping[str, Sequence[str]], where: str
) -> SplitFiles:
    """Find the files of one split; its `patterns` in the recipe override the card.

    `card` is the text of README.md; `where` names the dataset in errors. If the dataset has no such split, raise
    `UsageError`; if no file matches the patterns, raise `InputError`.
    """
    if split in patterns:
        named = files_matching(paths, patterns[split], f"split {split!r}", "recipe", where)
        return _prefer_json_lines(split, named, "recipe")
    splits = find_splits(paths, card, where)
    if split in splits:
        return splits[split]
    if not splits:
        fix = "choose a dataset with rows, or set `files` in a recipe"
        raise UsageError("no JSON lines or Parquet files found", where, fix)
    raise unknown_split_error(split, list(splits), where)


def unknown_split_error(split: str, known_splits: Sequence[str], where: object) -> UsageError:
    """Return the error of an unknown split, with the nearest name or all names."""
    nearest = difflib.get_close_matches(split, known_splits, n=1, cutoff=0.5)
    fix = f"did you mean {nearest[0]}?" if nearest else f"choose one of {', '.join(known_splits)}"
    return UsageError(f"split {split!r} not found", where, fix)


def files_matching(
    paths: Iterable[str], patterns: Sequence[str], patterns_owner: str, origin: Literal["recipe", "card"], where: str
) -> list[str]:
    """List the JSON lines and Parquet files that match a pattern, sorted.

    If no file matches, raise InputError, which names `patterns_owner`, the split or config with the patterns.
    """
    files = sorted(path for path in matching_paths(paths, patterns, where) if detect_format(path) is not None)
    if not files:
        what = f"{patterns_owner} of the {origin}: no JSON lines or Parquet file matches {', '.join(patterns)}"
        raise InputError(what, where, _NO_FILE_FIXES[origin])
    return files


def _group_by_name(paths: Iterable[str], where: str) -> dict[str, list[str]]:
    """Group files by split; raise InputError if two spellings mean the same split."""
    by_split: dict[str, list[str]] = {}
    first: dict[tuple[str, Format], str] = {}
    for path in paths:
        kind = detect_format(path)
        if kind is None:
            continue
        split = split_from_file_name(path)
        other = first.setdefault((split, kind), path)
        if _remove_suffixes(other) != _remove_suffixes(path):
            raise _name_clash_error(f"the files {other} and {path}", split, where)
        by_split.setdefault(split, []).append(path)
    return dict(sorted(by_split.items()))


def _find_card_splits(configs: Sequence[Config], paths: Sequence[str], where: str) -> dict[str, SplitFiles]:
    """Return the splits of a card's configs, named by rule 1 of the module docstring."""
    same_name: dict[str, list[str]] = {}
    for path in filter(detect_format, paths):
        same_name.setdefault(split_from_file_name(path), []).append(path)
    config_files = [(config, _config_files(config, paths, where)) for config in configs]
    config_counts = Counter(split for _, files in config_files for split in files)
    splits: dict[str, SplitFiles] = {}
    whole_names: dict[str, str] = {}
    for config, by_split in config_files:
        for split, files in by_split.items():
            unique_name = config.name if len(by_split) == 1 else f"{config.name}_{split}"
            name = _split_name(split if config_counts[split] == 1 else unique_name)
            whole_name = f"{split!r} of config {config.name!r}"
            if name in splits:
                raise _name_clash_error(f"the card's splits {whole_names[name]} and {whole_name}", name, where)
            chosen = _prefer_json_lines(name, files, "card", same_name.get(name, ()))
            splits[name] = replace(chosen, config=None if config.name == DEFAULT_CONFIG else config.name)
            whole_names[name] = whole_name
    return splits


def _config_files(config: Config, paths: Sequence[str], where: str) -> dict[str, list[str]]:
    """Return the sorted files of a config by split.

    If the config names only a folder, the splits are sorted by name; otherwise, they have the card's order.
    """
    if config.folder is not None:
        pattern, owner = posixpath.join(config.folder, "**"), f"config {config.name!r}"
        return _group_by_name(files_matching(paths, [pattern], owner, "card", where), where)
    splits = dict.fromkeys(split for split, _ in config.split_patterns)
    return {split: files_matching(paths, config.patterns(split), f"split {split!r}", "card", where) for split in splits}


def _name_clash_error(subject: str, split: str, where: str) -> InputError:
    fix = "set `files` of each split in a recipe"
    return InputError(f"{subject} would both be the split {split}", where, fix)


def _prefer_json_lines(
    split: str, files: Sequence[str], found_by: FoundBy, same_name_files: Sequence[str] = ()
) -> SplitFiles:
    """Choose the JSON lines of a split, or its Parquet files if it has no JSON lines.

    `same_name_files` are all files whose names contain the split; files that are not chosen are `left_out`.
    """
    lines = [path for path in files if detect_format(path) == "jsonl"]
    chosen = lines or list(files)
    left_out = tuple(sorted({*files, *same_name_files} - set(chosen)))
    return SplitFiles(split, tuple(chosen), "jsonl" if lines else "parquet", found_by, left_out)


def _remove_suffixes(path: str) -> str:
    """Return the name of a file without suffixes and shard number."""
    name = strip_compression_suffix(PurePosixPath(path).name)
    return _SHARD_NUMBER.sub("", name.rpartition(".")[0])


def _split_name(stem: str) -> str:
    return _PART_SUFFIX.sub(r"part\1", _INVALID_CHARACTERS.sub("_", stem))
