"""Which files of a dataset belong to which split, at one commit or in one folder.

1. Where the card's YAML has `configs`, they say which files a split has (hub documentation, "Manual Configuration"). A
   split of several configs is told apart by the config: `<config>` where that has one split, else `<config>_<split>`.
2. Else the file's name says its split: `high.part_00.jsonl` and `high_part00.parquet` are `high_part00`,
   `train-00000-of-00005.parquet` is `train`.
3. Where a split has files of both formats, the JSON lines are read and the Parquet is left out: the lines are what was
   published first, and they keep what a Parquet schema, one for all rows, can't: absent keys, and objects of any shape.
"""

import difflib
import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from pipeline_assets.corpus.readers.hub_configs import Config, configs_of_card
from pipeline_assets.corpus.spine.errors import InputError, UsageError

Format = Literal["jsonl", "parquet"]
_SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_SHARD_NUMBER = re.compile(r"-\d{5}-of-\d{5}$")
_PART = re.compile(r"part_(\d+)$")
_UNFIT = re.compile(r"[^\w-]+")


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split.

    Attributes:
        files: paths that are read, sorted.
        format: of all of them.
        found_by: what says that they are the split's.
        left_out: paths of the same split in another format, which are not read.
    """

    split: str
    files: tuple[str, ...]
    format: Format
    found_by: Literal["recipe", "card", "file name"]
    left_out: tuple[str, ...] = ()


def format_of(path: str) -> Format | None:
    """By the end of the name, compressed or not; None for what holds no rows."""
    name = _uncompressed(path.lower())
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def split_of_name(path: str) -> str:
    """The split that a file's name says."""
    name = _uncompressed(PurePosixPath(path).name)
    stem = _SHARD_NUMBER.sub("", name.rpartition(".")[0])
    return _split_name(stem)


def find_splits(paths: Iterable[str], card: str, where: str) -> dict[str, SplitFiles]:
    """Every split with its files, in the card's order, else by name.

    Args:
        paths: all files of the dataset.
        card: the text of its README.md; empty where it has none.
        where: the dataset, for errors.
    Raises:
        InputError: the card's YAML can't be read, or a split of it names no file that is there.
    """
    there = sorted(paths)
    by_name: dict[str, list[str]] = {}
    for path in there:
        if format_of(path) is not None:
            by_name.setdefault(split_of_name(path), []).append(path)
    configs = configs_of_card(card, where)
    if not any(config.files for config in configs):
        return {split: _chosen(split, files, "file name", ()) for split, files in sorted(by_name.items())}
    found = {}
    for split, patterns in _patterns_of_card(configs).items():
        named = files_matching(there, patterns, f"split {split!r} of the card", where)
        found[split] = _chosen(split, named, "card", by_name.get(split, ()))
    return found


def files_of_split(
    paths: Iterable[str], card: str, split: str, patterns: Mapping[str, Sequence[str]], where: str
) -> SplitFiles:
    """The files of one split.

    Args:
        patterns: files by split, where a recipe says them; the card isn't asked for these splits.
    Raises:
        UsageError: there is no such split (names the nearest), or a pattern of the recipe matches no file.
        InputError: from `find_splits`.
    """
    if split in patterns:
        named = files_matching(paths, patterns[split], f"split {split!r} of the recipe", where)
        return _chosen(split, named, "recipe", ())
    found = find_splits(paths, card, where)
    if split in found:
        return found[split]
    if not found:
        raise UsageError("it has no JSON lines and no Parquet", where, "give a dataset of rows, or `files` in a recipe")
    raise no_such_split(split, list(found), where)


def no_such_split(split: str, there: Sequence[str], where: object) -> UsageError:
    """What to say of a split that isn't there: the nearest one, else all."""
    nearest = difflib.get_close_matches(split, there, n=1, cutoff=0.5)
    fix = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(there)}"
    return UsageError(f"there is no split {split!r}", where, fix, key="splits")


def files_matching(paths: Iterable[str], patterns: Sequence[str], whose: str, where: str) -> list[str]:
    """Files of rows that a pattern matches, as fnmatch reads it, sorted.

    Raises:
        InputError: there is none.
    """
    matched = [path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)]
    files = sorted(path for path in matched if format_of(path) is not None)
    if not files:
        what = f"{whose} is in {', '.join(patterns)}, and there is no file of JSON lines or Parquet of that name"
        raise InputError(what, where, "pin another commit, or say in the recipe which `files` the split has")
    return files


def _patterns_of_card(configs: Sequence[Config]) -> dict[str, list[str]]:
    """Patterns by split, over all configs."""
    splits_of = {config.name: list(dict.fromkeys(split for split, _ in config.files)) for config in configs}
    times = Counter(split for splits in splits_of.values() for split in splits)
    patterns: dict[str, list[str]] = {}
    for config in configs:
        for split in splits_of[config.name]:
            name = split
            if times[split] > 1:
                name = config.name if len(splits_of[config.name]) == 1 else f"{config.name}_{split}"
            patterns.setdefault(_split_name(name), []).extend(config.patterns(split))
    return patterns


def _chosen(
    split: str, files: Sequence[str], found_by: Literal["recipe", "card", "file name"], beside: Sequence[str]
) -> SplitFiles:
    """Rule 3; `beside` are files that have the split's name, whether or not they were found."""
    lines = [path for path in files if format_of(path) == "jsonl"]
    chosen = lines or list(files)
    left_out = tuple(sorted({*files, *beside} - set(chosen)))
    return SplitFiles(split, tuple(chosen), "jsonl" if lines else "parquet", found_by, left_out)


def _split_name(stem: str) -> str:
    return _PART.sub(r"part\1", _UNFIT.sub("_", stem))


def _uncompressed(name: str) -> str:
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name
