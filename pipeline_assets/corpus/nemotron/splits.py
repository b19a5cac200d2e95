"""The splits: which files of a dataset belong to which.

Names are those of the hub. Files, columns and row counts are in no list here: they are found at the pinned revision.
Another dataset is a line of a recipe.

1. Where the card's YAML has `configs`, they say which files a split has (hub documentation, "Manual Configuration"). Of
   a config that names a folder alone, `data_dir`, rule 2 says the splits of the files in it. A split of several configs
   is told apart by the config: `<config>` where that has one split, else `<config>_<split>`.
2. Else the file's name says its split: `high.part_00.jsonl` and `high_part00.parquet` are `high_part00`,
   `train-00000-of-00005.parquet` is `train`.
3. Where a split has files of both formats, the JSON lines are read and the Parquet is left out: the lines are what was
   published first, and they keep what a Parquet schema, one for all rows, can't: absent keys, and objects of any shape.

Names of splits become names of folders and files, `a.b` and `a b` both `a_b`: where two would be one, nothing is read.
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
from pipeline_assets.spine.errors import InputError, UsageError

_INVALID_IN_KEYS = re.compile(r"[^a-z0-9_.-]+")


def dataset_key(dataset: str) -> str:
    """How partitions and folders call a dataset: its name without the owner, in lower case."""
    return _INVALID_IN_KEYS.sub("-", dataset.rpartition("/")[2].lower()).strip("-.")


def partition_key(dataset: str, split: str) -> str:
    """`nemotron-math-v2/high_part00`."""
    return f"{dataset_key(dataset)}/{split}"


def dataset_name(partition: str) -> str:
    """How the dataset of a split is called."""
    return partition.partition("/")[0]


Format = Literal["jsonl", "parquet"]
_SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_SHARD_NUMBER = re.compile(r"-\d{5}-of-\d{5}$")
_PART = re.compile(r"part_(\d+)$")
_INVALID = re.compile(r"[^\w-]+")
DEFAULT_CONFIG = "default"  # what a hub calls the config of a dataset that has one


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split.

    Attributes:
        files: paths that are read, sorted.
        format: of all of them.
        found_by: what says that they are the split's.
        left_out: paths of the same split in another format, which are not read.
        config: of the card, that the files are of; None where the card names none, or it is `default`.
    """

    split: str
    files: tuple[str, ...]
    format: Format
    found_by: Literal["recipe", "card", "file name"]
    left_out: tuple[str, ...] = ()
    config: str | None = None


def detect_format(path: str) -> Format | None:
    """By the end of the name, compressed or not; None for what holds no rows."""
    name = _uncompressed(path).lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


def split_of_name(path: str) -> str:
    """The split that a file's name says."""
    return _split_name(_stem(path))


def find_splits(paths: Iterable[str], card: str, where: str) -> dict[str, SplitFiles]:
    """Every split with its files, in the card's order, else by name.

    Args:
        paths: all files of the dataset.
        card: the text of its README.md; empty where it has none.
        where: the dataset, for errors.
    Raises:
        InputError: the card's YAML can't be read, a split of it names no file that is there, or two splits would have
            one name here.
    """
    there = sorted(paths)
    configs = parse_configs(card, where)
    if any(config.files or config.folder is not None for config in configs):
        return _splits_of_card(configs, there, where)
    return {split: _chosen(split, files, "file name", ()) for split, files in _by_name(there, where).items()}


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
    raise unknown_split_error(split, list(found), where)


def unknown_split_error(split: str, there: Sequence[str], where: object) -> UsageError:
    """What to say of a split that isn't there: the nearest one, else all."""
    nearest = difflib.get_close_matches(split, there, n=1, cutoff=0.5)
    fix = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(there)}"
    return UsageError(f"there is no split {split!r}", where, fix)


def files_matching(paths: Iterable[str], patterns: Sequence[str], whose: str, where: str) -> list[str]:
    """Files of rows that a pattern means, see `matching_paths`, sorted.

    Raises:
        InputError: there is none, or it is no pattern.
    """
    files = sorted(path for path in matching_paths(paths, patterns, where) if detect_format(path) is not None)
    if not files:
        what = f"{whose} is in {', '.join(patterns)}, and there is no file of JSON lines or Parquet of that name"
        raise InputError(what, where, "pin another commit, or say in the recipe which `files` the split has")
    return files


def _by_name(paths: Iterable[str], where: str) -> dict[str, list[str]]:
    """Group files of rows by the split that their names say, sorted; those of both formats may be named unlike."""
    by_split: dict[str, list[str]] = {}
    first: dict[tuple[str, Format], str] = {}
    for path in paths:
        kind = detect_format(path)
        if kind is None:
            continue
        split = split_of_name(path)
        other = first.setdefault((split, kind), path)
        if _stem(other) != _stem(path):
            raise _one_name(f"the files {other} and {path}", split, where)
        by_split.setdefault(split, []).append(path)
    return dict(sorted(by_split.items()))


def _splits_of_card(configs: Sequence[Config], there: Sequence[str], where: str) -> dict[str, SplitFiles]:
    """Return every split of every config, by its name here."""
    beside: dict[str, list[str]] = {}
    for path in filter(detect_format, there):
        beside.setdefault(split_of_name(path), []).append(path)
    of_configs = [(config, _files_of_config(config, there, where)) for config in configs]
    times = Counter(split for _, files in of_configs for split in files)
    found: dict[str, SplitFiles] = {}
    whole_names: dict[str, str] = {}
    for config, by_split in of_configs:
        for split, files in by_split.items():
            alone = config.name if len(by_split) == 1 else f"{config.name}_{split}"
            name = _split_name(split if times[split] == 1 else alone)
            whole_name = f"{split!r} of config {config.name!r}"
            if name in found:
                raise _one_name(f"the card's splits {whole_names[name]} and {whole_name}", name, where)
            chosen = _chosen(name, files, "card", beside.get(name, ()))
            found[name] = replace(chosen, config=None if config.name == DEFAULT_CONFIG else config.name)
            whole_names[name] = whole_name
    return found


def _files_of_config(config: Config, there: Sequence[str], where: str) -> dict[str, list[str]]:
    """Return files by split, in the card's order."""
    if config.folder is not None:
        whose = f"config {config.name!r} of the card"
        return _by_name(files_matching(there, [posixpath.join(config.folder, "**")], whose, where), where)
    splits = dict.fromkeys(split for split, _ in config.files)
    return {
        split: files_matching(there, config.patterns(split), f"split {split!r} of the card", where) for split in splits
    }


def _one_name(both: str, split: str, where: str) -> InputError:
    fix = "write a recipe that says in `files` which files each of its splits has"
    return InputError(f"{both} would both be the split {split}", where, fix)


def _chosen(
    split: str, files: Sequence[str], found_by: Literal["recipe", "card", "file name"], beside: Sequence[str]
) -> SplitFiles:
    """Rule 3; `beside` are files that have the split's name, whether or not they were found."""
    lines = [path for path in files if detect_format(path) == "jsonl"]
    chosen = lines or list(files)
    left_out = tuple(sorted({*files, *beside} - set(chosen)))
    return SplitFiles(split, tuple(chosen), "jsonl" if lines else "parquet", found_by, left_out)


def _stem(path: str) -> str:
    """The name of a file without its endings and the number of a shard."""
    name = _uncompressed(PurePosixPath(path).name)
    return _SHARD_NUMBER.sub("", name.rpartition(".")[0])


def _split_name(stem: str) -> str:
    return _PART.sub(r"part\1", _INVALID.sub("_", stem))


def _uncompressed(name: str) -> str:
    for suffix in _COMPRESSED:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name
