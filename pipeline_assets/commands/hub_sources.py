"""The section of a hub dataset, as a recipe has it, from what the dataset says of itself."""

import fnmatch
import glob
from collections.abc import Sequence
from typing import Any

from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.readers.hub_configs import (
    config_named,
    files_of_split,
    metadata_of_card,
    read_card,
    read_configs,
)
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.parquet import read_footer
from pipeline_assets.corpus.snapshot.draw import head_columns
from pipeline_assets.corpus.snapshot.plan import is_lines
from pipeline_assets.corpus.spine.errors import UsageError


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
    where = f"{dataset}@{commit}"
    listing = hub.list_files(dataset, commit)
    configs = read_configs(hub, dataset, commit)
    if not configs and config != "default":
        what = f"config {config!r} can't be found: its card lists none"
        raise UsageError(what, where, "give --config-name default for all files, or write a recipe with `files`")
    chosen = config_named(configs, config, where) if configs else None
    patterns, meant = files_of_split(chosen, split, [file.path for file in listing], where)
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
        fix = "name the one that holds the text, or write a recipe with `columns`"
        raise UsageError(f"there is no column `{text}`; it has {', '.join(names)}", where, fix)
    licence = metadata_of_card(read_card(hub, dataset, commit), where).get("license")
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
