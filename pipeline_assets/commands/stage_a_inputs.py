"""Stage A recipes from what a command line says: inputs by pattern, hub datasets by name."""

import fnmatch
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.normalize.sources import Step
from pipeline_assets.corpus.readers.hub_configs import (
    CARD,
    config_named,
    files_of_split,
    metadata_of_card,
    read_configs,
)
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.parquet import read_footer
from pipeline_assets.corpus.recipes.files import write_recipe_of
from pipeline_assets.corpus.snapshot.drawn_lines import head_columns
from pipeline_assets.corpus.snapshot.plan import is_lines
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.systems.stage_a import StageARecipe

NORMALIZED_DIR = "stage_a/normalized"
SHARD_TEXT_BYTES = 1 << 26
_MAGIC = frozenset("*?[")


@dataclass(frozen=True)
class KnownDataset:
    """A dataset that has a short name, and its config where none is given."""

    dataset: str
    config: str


KNOWN = {
    "fineweb-edu": KnownDataset("HuggingFaceFW/fineweb-edu", "default"),
    "fineweb-2": KnownDataset("HuggingFaceFW/fineweb-2", "eng_Latn"),
}


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
        path = os.path.abspath(text)
        if os.path.isdir(path):
            patterns.append(f"{path}/{in_folder}")
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


def hub_source(
    hub: HubFiles, dataset: str, config: str, commit: str, amount: dict[str, int], rules: Sequence[str], seed: str
) -> dict[str, Any]:
    """The section of a hub dataset: files by its card, else names; columns by its first file; licence by its card.

    Raises:
        UsageError: no such config (names the nearest), or it has no files or no column `text`.
        InputError: from the hub.
    """
    where = f"{dataset}@{commit}"
    listing = hub.list_files(dataset, commit)
    configs = read_configs(hub, dataset, commit)
    if not configs and config != "default":
        what = f"config {config!r} can't be found: its card lists none"
        raise UsageError(what, where, "give --config-name default for all files, or write a recipe with `files`")
    chosen = config_named(configs, config, where) if configs else None
    patterns, meant = files_of_split(chosen, "train", [file.path for file in listing], where)
    if not meant:
        folder = None if chosen is None else chosen.folder
        none = "its card names none" if folder is None else f"its card names the folder {folder} and no files of train"
        what = f"config {config!r} has no files ({', '.join(patterns) or none})"
        raise UsageError(what, where, "take another config, or write a recipe with `files`")
    first = next(file for file in listing if file.path == meant[0])
    names: Sequence[str]
    if is_lines(first):
        names = head_columns(hub, dataset, commit, first)
    else:
        names = read_footer(hub, dataset, commit, first).metadata.schema.to_arrow_schema().names
    if "text" not in names:
        raise UsageError(
            f"there is no column `text`; it has {', '.join(names)}", where, "write a recipe with `columns`"
        )
    card = next((file for file in listing if file.path == CARD), None)
    said = {} if card is None else metadata_of_card(hub.fetch(dataset, commit, card).local.read_bytes(), where)
    licence = said.get("license")
    return {
        "kind": "hub",
        "source": _source_name(dataset, config),
        "dataset": dataset,
        "config": config,
        "revision": commit,
        "split": "train",
        "files": recipe_patterns(patterns, meant, [file.path for file in listing]),
        "domain": "web",
        "license_tag": licence_table().tag_of(licence) or UNKNOWN if isinstance(licence, str) else UNKNOWN,
        "columns": {
            "text": "text",
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


def _source_name(dataset: str, config: str) -> str:
    name = dataset.partition("/")[2] + ("" if config == "default" else f"_{config}")
    return name.lower()


def write_recipe(
    root: Path,
    name: str,
    sources: Sequence[dict[str, Any]],
    up_to: Step,
    refuse_licences: Sequence[str] = (),
    replace: bool = False,
) -> tuple[StageARecipe, Path]:
    """The recipe of these sources, among those of the data root; not written where it can't be built.

    Args:
        up_to: the last step that will be built: what nobody asked for isn't missing.
        replace: whether what another recipe made may be replaced.
    Raises:
        UsageError: from `write_recipe_of`.
    """
    content = {
        "system": "stage_a",
        "name": name,
        "outputs": {"normalized_dir": NORMALIZED_DIR, "up_to": up_to},
        "refuse_licences": list(refuse_licences),
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
        "shard_text_bytes": SHARD_TEXT_BYTES,
        "sources": list(sources),
    }
    return write_recipe_of(StageARecipe, content, root, "stage-a", replace)
