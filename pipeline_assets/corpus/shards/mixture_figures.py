"""Figures of a mixture: rows, tokens and licences of its corpora.

mixtures/<recipe>_shards.json           for each corpus and in total: number of documents (`records`), rows
                                        (`sequences`), shards and tokens; tokens by licence; lost text
mixtures/<recipe>_filtered_shards.json  as above for filtered corpora, plus numbers of rows kept and dropped by filters
mixtures/<recipe>_full_shards.json      copy of inventory.json: every shard with its rows and sha256
mixtures/<recipe>_tokenizer.json        figures of the trained tokenizer, see `tokens.trained_tokenizer`
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.shards.mixture_report import JSON_FORMAT, JsonObject
from pipeline_assets.corpus.tokens.losses import LOST_TEXT, Losses
from pipeline_assets.spine.artifact import Artifact, read_manifest
from pipeline_assets.spine.durable import make_folder, remove, write_durably
from pipeline_assets.spine.manifest import Manifest

INVENTORY_JSON, INVENTORY_MD, SEGMENTS_JSON = "inventory.json", "inventory.md", "segments.json"
MIXTURES_FOLDER = "mixtures"  # folder next to the artifacts of a recipe
_PREVIEW_LICENCES = 5


def preview_token_shards(shards: Artifact) -> list[dict[str, str]]:
    """Return preview rows for the five licences with the most tokens."""
    counts = shards.manifest.identity.counts
    by_licence = sorted(counts["license_tokens"].items(), key=lambda item: (-item[1], item[0]))
    return [
        {"licence": tag, "of the tokens": f"{tokens / counts['tokens']:.2%}", "tokens": f"{tokens:,}"}
        for tag, tokens in by_licence[:_PREVIEW_LICENCES]
    ]


def preview_inventory(inventory: Artifact) -> list[dict[str, str]]:
    """Return a preview row for each corpus."""
    return [
        {"corpus": name}
        | {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
        | {"text lost": f"{float(Losses(**figures[LOST_TEXT]).fraction):.3%}"}
        for name, figures in _corpus_figures(inventory).items()
    ]


def preview_segments(segments: Artifact) -> list[dict[str, str]]:
    """Return a preview row for each segment."""
    lines = []
    for segment in JSON_FORMAT.read(segments.path(SEGMENTS_JSON))["segments"]:
        ranges = {name: "{:,} to {:,}".format(*corpus["rows"]) for name, corpus in segment["corpora"].items()}
        lines.append({"segment": segment["name"], "tokens": f"{segment['stop'] - segment['start']:,}", **ranges})
    return lines


def write_mixture_figures(inventory: Artifact) -> Path:
    """Write an inventory's figures to JSON files in `mixtures/`; return this folder.

    Remove the tokenizer's figures if no corpus in the inventory uses the tokenizer, and earlier figures of filtered
    shards if no corpus is filtered.
    """
    recipe_folder = inventory.folder.parent
    folder, corpora = recipe_folder / MIXTURES_FOLDER, _corpus_figures(inventory)
    make_folder(folder)
    contents = {"full_shards": inventory.path(INVENTORY_JSON).read_bytes(), "shards": _encode_figures(corpora)}
    filtered = {
        name: {**figures, **filters}
        for name, figures in corpora.items()
        if (filters := _filter_counts(recipe_folder, name))
    }
    if filtered:
        contents["filtered_shards"] = _encode_figures(filtered)
    for name, data in contents.items():
        write_durably(folder / f"{recipe_folder.name}_{name}.json", data)
    used = {
        figures["tokenizer_sha256"] for figures in JSON_FORMAT.read(inventory.path(INVENTORY_JSON))["corpora"].values()
    }
    tokenizer = folder / f"{recipe_folder.name}_tokenizer.json"
    if tokenizer.exists() and JSON_FORMAT.read(tokenizer).get("sha256") not in used:
        remove(tokenizer)
    if not filtered:
        remove(folder / f"{recipe_folder.name}_filtered_shards.json")
    return folder


def _corpus_figures(inventory: Artifact) -> dict[str, dict[str, Any]]:
    """Return the figures of each corpus in an inventory, by corpus name."""
    corpora = JSON_FORMAT.read(inventory.path(INVENTORY_JSON))["corpora"]
    return {
        name: {
            "records": figures["documents"],
            "sequences": figures["sequences"],
            "shards": len(figures["shards"]),
            "tokens": figures["tokens"],
            "license_tokens": figures["license_tokens"],
            LOST_TEXT: {  # without fractions, which cannot be summed
                key: count
                for key, count in (figures.get(LOST_TEXT) or {}).get(name, {}).items()
                if isinstance(count, int)
            },
        }
        for name, figures in corpora.items()
    }


def _encode_figures(corpora: dict[str, dict[str, Any]]) -> bytes:
    """Encode the figures of all corpora and their sums; dicts are summed key by key."""
    sums: dict[str, Any] = {}
    for figures in corpora.values():
        for name, value in figures.items():
            if isinstance(value, dict):
                sums.setdefault(name, Counter()).update(value)  # `+` would omit counts of 0
            else:
                sums[name] = value + sums.get(name, 0)
    return json.dumps({"corpora": corpora, "all": sums}, indent=1).encode() + b"\n"


def _filter_counts(recipe_folder: Path, corpus: str) -> dict[str, Any]:
    """Return a corpus's filter counts; empty if its shards were built without filters."""
    folders = (Path("shards", corpus), Path("deduplicated"), Path("filtered", corpus))
    shards, deduplicated, filtered = (read_manifest(recipe_folder / folder) for folder in folders)
    used = _upstream_digests(shards)
    if deduplicated is not None and deduplicated.digest in used:
        used |= _upstream_digests(deduplicated)
    if filtered is None or filtered.digest not in used:
        return {}
    ledger = filtered.identity.ledger
    return {"records_in": ledger.rows_in, "records_kept": ledger.out, "dropped": dict(ledger.dropped)}


def _upstream_digests(manifest: Manifest | None) -> set[str]:
    return set() if manifest is None else {entry["digest"] for entry in manifest.identity.upstream}


def mixture_statistics(recipe_folder: Path) -> JsonObject:
    """Return a mixture's figures from the JSON files in the recipe's `mixtures/`.

    The dict has the recipe's name as `recipe`, totals and `corpora` from `<recipe>_shards.json`, and the content
    of `<recipe>_filtered_shards.json` and `<recipe>_tokenizer.json` as `filtered_shards` and `tokenizer`. A missing
    file adds no key; `corpora` may be empty.
    """
    statistics: JsonObject = {"recipe": recipe_folder.name}
    for name in ("shards", "filtered_shards", "tokenizer"):
        path = recipe_folder / MIXTURES_FOLDER / f"{recipe_folder.name}_{name}.json"
        figures = JSON_FORMAT.read(path) if path.exists() else {}
        if name == "shards":
            statistics |= {**figures.get("all", {}), "corpora": figures.get("corpora", {})}
        elif figures:
            statistics[name] = figures
    return statistics
