"""Figures of a mixture for people: what its shards, inventory and segments hold, and copies of these under own names.

mixtures/<recipe>_shards.json       records, sequences, shards, tokens and tokens per licence of each corpus, and of all
mixtures/<recipe>_full_shards.json  the inventory: every shard with its rows and sha256
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.durable import make_folder, write_durably

INVENTORY_JSON, INVENTORY_MD, SEGMENTS_JSON = "inventory.json", "inventory.md", "segments.json"
MIXTURES = "mixtures"  # the folder of figures, among the artifacts of a recipe
_SHOWN_LICENCES = 5


def preview_token_shards(shards: Artifact) -> list[dict[str, str]]:
    """What licences its tokens have, the most frequent first."""
    counts = shards.manifest.identity.counts
    by_licence = sorted(counts["license_tokens"].items(), key=lambda item: (-item[1], item[0]))
    return [
        {"licence": tag, "of the tokens": f"{tokens / counts['tokens']:.2%}", "tokens": f"{tokens:,}"}
        for tag, tokens in by_licence[:_SHOWN_LICENCES]
    ]


def preview_inventory(inventory: Artifact) -> list[dict[str, str]]:
    """A row a corpus."""
    return [
        {"corpus": name} | {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
        for name, figures in _corpora(inventory).items()
    ]


def preview_segments(segments: Artifact) -> list[dict[str, str]]:
    """A row a segment."""
    rows = []
    for one in json.loads(segments.path(SEGMENTS_JSON).read_bytes())["segments"]:
        ranges = {name: "{:,} to {:,}".format(*of["rows"]) for name, of in one["corpora"].items()}
        rows.append({"segment": one["name"], "tokens": f"{one['stop'] - one['start']:,}", **ranges})
    return rows


def write_mixture_figures(inventory: Artifact) -> Path:
    """Writes both files beside the artifacts of the recipe; the folder that they lie in."""
    of_recipe = inventory.folder.parent
    folder, corpora = of_recipe / MIXTURES, _corpora(inventory)
    make_folder(folder)
    written = {"full_shards": inventory.path(INVENTORY_JSON).read_bytes()}
    written["shards"] = json.dumps({"corpora": corpora, "all": _sum(corpora)}, indent=1).encode() + b"\n"
    for name, data in written.items():
        write_durably(folder / f"{of_recipe.name}_{name}.json", data)
    return folder


def _corpora(inventory: Artifact) -> dict[str, dict[str, Any]]:
    """Figures by corpus."""
    corpora = json.loads(inventory.path(INVENTORY_JSON).read_bytes())["corpora"]
    return {
        name: {
            "records": figures["documents"],
            "sequences": figures["sequences"],
            "shards": len(figures["shards"]),
            "tokens": figures["tokens"],
            "license_tokens": figures["license_tokens"],
        }
        for name, figures in corpora.items()
    }


def _sum(corpora: dict[str, dict[str, Any]]) -> dict[str, Any]:
    licences, numbers = Counter[str](), Counter[str]()
    for figures in corpora.values():
        licences.update(figures["license_tokens"])
        numbers.update({name: count for name, count in figures.items() if isinstance(count, int)})
    return {**numbers, "license_tokens": dict(licences)}
