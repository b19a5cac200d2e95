"""Planned against real: the figures that a manifest has both of."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.planning.estimate import Estimate
from pipeline_assets.corpus.spine.manifest import Manifest

FIGURES = (
    "bytes_fetched",
    "rows",
    "documents",
    "text_bytes",
    "tokens",
    "bytes",
    "peak_disk_bytes",
    "peak_memory_bytes",
    "fetch_seconds",
    "build_seconds",
)
"""What is planned of an artifact, in the order in which it is told; an artifact has those that it knows."""


@dataclass(frozen=True)
class Outcome:
    """One figure of a finished artifact; `planned` is None where nothing was planned, `real` where nothing was told."""

    figure: str
    planned: Estimate | None
    real: float | None


def as_json(figures: Mapping[str, Estimate]) -> dict[str, dict[str, float | str]]:
    """Planned figures as a manifest's provenance holds them."""
    return {name: figure.to_json() for name, figure in figures.items()}


def outcomes(manifest: Manifest) -> list[Outcome]:
    """Figures that were planned, and those that are known, in their order. What can't be read is left out: no digest
    covers it.
    """
    planned, real = _planned(manifest), real_figures(manifest)
    return [Outcome(name, planned.get(name), real.get(name)) for name in FIGURES if name in planned or name in real]


def real_figures(manifest: Manifest) -> dict[str, float]:
    """What the artifact came to."""
    counts, provenance = manifest.identity.counts, manifest.provenance
    laps = _section(manifest, "seconds_of")
    found = {
        "bytes_fetched": provenance.get("bytes_fetched"),
        "rows": counts.get("ledger", {}).get("in"),
        "documents": counts.get("documents"),
        "text_bytes": counts.get("text_bytes"),
        "tokens": counts.get("tokens"),
        "bytes": sum(file.bytes for file in manifest.storage),
        "peak_disk_bytes": provenance.get("peak_disk_bytes"),
        "peak_memory_bytes": provenance.get("peak_memory_bytes"),
        "fetch_seconds": laps.get("fetch"),
        "build_seconds": _building_seconds(provenance.get("seconds"), laps),
    }
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _building_seconds(seconds: object, laps: Mapping[str, Any]) -> float | None:
    """Without planning and fetching, which depend on the network."""
    times = [seconds, laps.get("plan", 0), laps.get("fetch", 0)]
    whole, *waited = [part for part in times if isinstance(part, int | float)] or [0.0]
    return round(whole - sum(waited), 3) if len(waited) == len(times) - 1 else None


def _planned(manifest: Manifest) -> dict[str, Estimate]:
    figures = {}
    for name, value in _section(manifest, "planned").items():
        with contextlib.suppress(KeyError, TypeError):
            figures[name] = Estimate.from_json(value)
    return figures


def _section(manifest: Manifest, name: str) -> Mapping[str, Any]:
    section = manifest.provenance.get(name)
    return section if isinstance(section, dict) else {}
