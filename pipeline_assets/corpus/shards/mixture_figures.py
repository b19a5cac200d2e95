"""Figures of a mixture: rows, tokens and licences of its corpora."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.shards.mixture_report import Content
from pipeline_assets.corpus.tokens.losses import LOST_TEXT, Losses
from pipeline_assets.spine.artifact import Artifact, read_manifest
from pipeline_assets.spine.durable import make_folder, write_durably

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
        {"corpus": name}
        | {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
        | {"text lost": f"{float(Losses(**figures[LOST_TEXT]).fraction):.3%}"}
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
    written["shards"] = _figures(corpora)
    filtered = {name: {**one, **kept} for name, one in corpora.items() if (kept := _filter_counts(of_recipe, name))}
    if filtered:
        written["filtered_shards"] = _figures(filtered)
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
            LOST_TEXT: {  # without the fraction: these add up
                key: count
                for key, count in (figures.get(LOST_TEXT) or {}).get(name, {}).items()
                if isinstance(count, int)
            },
        }
        for name, figures in corpora.items()
    }


def _figures(corpora: dict[str, dict[str, Any]]) -> bytes:
    return json.dumps({"corpora": corpora, "all": _sum(corpora)}, indent=1).encode() + b"\n"


def _sum(corpora: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Add up numbers, and numbers by name, of all corpora."""
    sums: dict[str, Any] = {}
    for figures in corpora.values():
        for name, value in figures.items():
            is_by_name = isinstance(value, dict)
            sums[name] = Counter(value) + Counter(sums.get(name)) if is_by_name else value + sums.get(name, 0)
    return sums


def _filter_counts(of_recipe: Path, corpus: str) -> dict[str, Any]:
    """Count what the filters of a corpus read, kept and dropped; empty if its shards derive from no filtered text."""
    manifest = read_manifest(of_recipe / "filtered" / corpus)
    downstream = map(read_manifest, (of_recipe / "shards" / corpus, of_recipe / "deduplicated"))
    used = {entry["digest"] for derived in downstream if derived for entry in derived.identity.upstream}
    if manifest is None or manifest.digest not in used:
        return {}
    ledger = manifest.identity.ledger
    return {"records_in": ledger.rows_in, "records_kept": ledger.out, "dropped": dict(ledger.dropped)}


def mixture_statistics(of_recipe: Path) -> Content:
    """Return the figures of a recipe's mixture in one mapping: sums, figures by corpus, its filters, its tokenizer.

    Args:
        of_recipe: The folder of the recipe's artifacts.
    """
    statistics: Content = {"recipe": of_recipe.name}
    for name in ("shards", "filtered_shards", "tokenizer"):
        path = of_recipe / MIXTURES / f"{of_recipe.name}_{name}.json"
        figures = json.loads(path.read_bytes()) if path.exists() else {}
        if name == "shards":
            statistics |= {**figures.get("all", {}), "corpora": figures.get("corpora", {})}
        elif figures:
            statistics[name] = figures
    return statistics
