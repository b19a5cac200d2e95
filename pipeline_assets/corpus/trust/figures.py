"""Figures of an artifact: what its build took and gave, as its manifest tells, beside what was planned."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.spine.manifest import Manifest, total

Inputs = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """A figure before it is real, and for people what it rests on, as `the listing and footers`."""

    value: float
    basis: str


@dataclass(frozen=True)
class FigureOutcome:
    """One figure of a finished artifact; `planned` and `real` are None where they aren't known."""

    figure: str
    planned: Planned | None
    real: float | None


@dataclass(frozen=True)
class Listing:
    """The files outside of the data root that an artifact is made from, as far as a listing and footers tell.

    Attributes:
        inputs: as the artifact's manifest will list them; none of what is made of other artifacts.
        missing: bytes that a hub will be asked for, by the name of the file; None where no hub is.
    """

    inputs: tuple[Mapping[str, Any], ...] = ()
    missing: Mapping[str, int] | None = None

    @classmethod
    def of_files(cls, files: Iterable[SourceFile]) -> "Listing":
        """Of files of this machine, none of which has been hashed."""
        return cls(tuple({"name": file.name, "bytes": file.bytes} for file in files))

    @classmethod
    def of_fetched(cls, hub: HubFiles, dataset: str, files: Iterable[HubFile]) -> "Listing":
        """Of what reads files of a hub whole, listed by what it is made from."""
        return cls(missing={f"{dataset}:{file.path}": hub.bytes_missing(dataset, file, 0, file.size) for file in files})


def figures_of_inputs(inputs: Inputs) -> dict[str, int]:
    """What is read of files: their row groups, where footers tell them, else all bytes; nothing of artifacts."""
    files = [entry for entry in inputs if "bytes" in entry]
    groups = [group for entry in files for group in entry.get("row_groups", ())]
    if groups:
        size = sum(one["stop"] - one["start"] for one in groups)
        return {"bytes_read": size, "rows": sum(one["rows"] for one in groups)}
    return {"bytes_read": sum(entry["bytes"] for entry in files)} if files else {}


def real_figures(manifest: Manifest) -> dict[str, float | None]:
    """Every figure of an artifact, in the order of their lines; None where its manifest doesn't tell it."""
    counts, provenance = manifest.identity.counts, manifest.provenance
    seconds, laps = provenance.get("seconds"), provenance.get("seconds_of", {})
    network_seconds = laps.get("plan", 0) + laps.get("fetch", 0)
    found = {
        "bytes_fetched": provenance.get("bytes_fetched"),
        "bytes_read": figures_of_inputs(manifest.identity.inputs).get("bytes_read"),
        "rows": counts.get("ledger", {}).get("in", counts.get("rows")),
        **{name: total(counts.get(name)) for name in ("documents", "text_bytes", "tokens")},
        "bytes": sum(file.bytes for file in manifest.storage) if manifest.storage else None,
        **{name: provenance.get(name) for name in ("peak_disk_bytes", "peak_memory_bytes")},
        "fetch_seconds": laps.get("fetch"),
        **{name: provenance.get(name) for name in ("cpu_seconds", "gpu_seconds")},
        "build_seconds": None if seconds is None else round(seconds - network_seconds, 3),
    }
    return {name: value if isinstance(value, int | float) else None for name, value in found.items()}


def outcomes(manifest: Manifest) -> list[FigureOutcome]:
    """Planned and real figures, in their order. A plan that can't be read is left out: no digest covers it."""
    real, told, planned = real_figures(manifest), manifest.provenance.get("planned"), {}
    for name, value in told.items() if isinstance(told, dict) else ():
        with contextlib.suppress(KeyError, TypeError):
            planned[name] = Planned(value["value"] + 0, value["basis"])
    known = {name: value for name, value in real.items() if value is not None or name in planned}
    return [FigureOutcome(name, planned.get(name), value) for name, value in known.items()]
