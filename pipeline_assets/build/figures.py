"""Planned and real figures of a build, such as rows, bytes and seconds."""

import contextlib
from dataclasses import dataclass

from pipeline_assets.build.input_figures import input_figures
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.manifest_schema import total_count


@dataclass(frozen=True)
class FigureOutcome:
    """Planned and real value of an artifact's figure, such as rows; None if unknown."""

    figure: str
    planned: Forecast | None
    real: float | None


def real_figures(manifest: Manifest) -> dict[str, float | None]:
    """Return an artifact's figures by name, in display order; None if unknown."""
    counts, provenance = manifest.identity.counts, manifest.provenance
    seconds, laps = provenance.get("seconds"), provenance.get("seconds_of", {})
    network_seconds = laps.get("plan", 0) + laps.get("fetch", 0)
    figures = {
        "bytes_fetched": provenance.get("bytes_fetched"),
        "bytes_read": input_figures(manifest.identity.inputs).get("bytes_read"),
        "rows": counts.get("ledger", {}).get("in", counts.get("rows")),
        **{name: total_count(counts.get(name)) for name in ("documents", "text_bytes", "tokens")},
        "bytes": sum(file.bytes for file in manifest.storage) if manifest.storage else None,
        **{name: provenance.get(name) for name in ("peak_disk_bytes", "peak_memory_bytes")},
        "fetch_seconds": laps.get("fetch"),
        **{name: provenance.get(name) for name in ("cpu_seconds", "gpu_seconds", "step_seconds")},
        "build_seconds": None if seconds is None else round(seconds - network_seconds, 3),
    }
    return {name: value if isinstance(value, int | float) else None for name, value in figures.items()}


def figure_outcomes(manifest: Manifest) -> list[FigureOutcome]:
    """Return the planned and real figures of an artifact, in display order.

    Figures with neither value are omitted. Malformed planned values are ignored, because no digest protects them.
    """
    real, stored, planned = real_figures(manifest), manifest.provenance.get("planned"), {}
    for name, value in stored.items() if isinstance(stored, dict) else ():
        with contextlib.suppress(KeyError, TypeError):
            planned[name] = Forecast(value["value"] + 0, value["basis"])
    known = {name: value for name, value in real.items() if value is not None or name in planned}
    return [FigureOutcome(name, planned.get(name), value) for name, value in known.items()]
