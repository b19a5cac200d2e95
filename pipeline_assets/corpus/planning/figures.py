"""Figures of an artifact: what its manifest tells of what it took and gave, beside what was planned."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.spine.manifest import Manifest

FIGURES = (
    "bytes_fetched",
    "bytes_read",
    "rows",
    "documents",
    "text_bytes",
    "tokens",
    "bytes",
    "peak_disk_bytes",
    "peak_memory_bytes",
    "fetch_seconds",
    "cpu_seconds",
    "build_seconds",
)
"""What is planned of an artifact, in the order in which it is told; an artifact has those that it knows."""
Inputs = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """A figure before it is real.

    Attributes:
        basis: where it comes from, for people: `the listing`, `as in 3 earlier builds here`.
    """

    value: float
    basis: str


@dataclass(frozen=True)
class Outcome:
    """One figure of a finished artifact; `planned` is None where nothing was planned, `real` where nothing was told."""

    figure: str
    planned: Planned | None
    real: float | None


@dataclass(frozen=True)
class Size:
    """How much goes into a build, or lies in an artifact: text where its bytes are told, else files; None where
    nothing tells.
    """

    bytes: float | None = None
    rows: float | None = None


@dataclass(frozen=True)
class Listing:
    """The files outside of the data root that an artifact is made from, as far as a listing and footers tell.

    Attributes:
        inputs: as the artifact's manifest will list them; empty where it is made of other artifacts.
        missing: bytes that a hub will be asked for, by the name of the file; None where no hub is.
        text_bytes: uncompressed size of the text columns that are read; None where no footer tells it.
    """

    inputs: tuple[Mapping[str, Any], ...] = ()
    missing: Mapping[str, int] | None = None
    text_bytes: int | None = None


@dataclass(frozen=True)
class Limit:
    """The most that a recipe asks of an artifact, however much it is made from.

    Attributes:
        key: the recipe's, for people.
        rows: that are read; None for all.
        tokens: that are written; None for all.
        passes: how often a text may count: the share of the artifact, or its epochs.
    """

    key: str
    rows: int | None = None
    tokens: int | None = None
    passes: float = 1.0


def total_size(sizes: Iterable[Size]) -> Size:
    """The sum; None where one of them is not known, or there is none."""
    every = list(sizes)
    return Size(_sum(size.bytes for size in every), _sum(size.rows for size in every))


def size_of_inputs(inputs: Inputs) -> Size:
    """Of files: of the row groups that are read, where footers tell them, else of all bytes."""
    files = [entry for entry in inputs if "bytes" in entry]
    groups = [group for entry in files for group in entry.get("row_groups", ())]
    if groups:
        return Size(sum(one["stop"] - one["start"] for one in groups), sum(one["rows"] for one in groups))
    return Size(_sum(entry["bytes"] for entry in files))


def size_of(manifest: Manifest) -> Size:
    """What a sealed artifact holds: its text, else its files, else the files that it lists."""
    counts, listed = manifest.identity.counts, size_of_inputs(manifest.identity.inputs)
    held = (_count(counts.get("text_bytes")), _sum(file.bytes for file in manifest.storage), listed.bytes)
    rows = (_count(counts.get("documents")), _count(counts.get("ledger", {}).get("out")), listed.rows)
    return Size(_first(held), _first(rows))


def real_figures(manifest: Manifest) -> dict[str, float]:
    """What an artifact came to."""
    counts, provenance, laps = manifest.identity.counts, manifest.provenance, _section(manifest, "seconds_of")
    found = {
        "bytes_read": size_of_inputs(manifest.identity.inputs).bytes,
        "rows": counts.get("ledger", {}).get("in", counts.get("rows")),
        **{name: _count(counts.get(name)) for name in ("documents", "text_bytes", "tokens")},
        "bytes": _sum(file.bytes for file in manifest.storage),
        **{name: provenance.get(name) for name in ("bytes_fetched", "peak_disk_bytes", "peak_memory_bytes")},
        "fetch_seconds": laps.get("fetch"),
        "cpu_seconds": provenance.get("cpu_seconds"),
        "build_seconds": _building_seconds(provenance.get("seconds"), laps),
    }
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def outcomes(manifest: Manifest) -> list[Outcome]:
    """Figures that were planned, and those that are known, in their order. What can't be read is left out: no digest
    covers it.
    """
    real, planned = real_figures(manifest), {}
    for name, value in _section(manifest, "planned").items():
        with contextlib.suppress(KeyError, TypeError):
            planned[name] = Planned(value["value"] + 0, value["basis"])
    return [Outcome(name, planned.get(name), real.get(name)) for name in FIGURES if name in planned or name in real]


def _building_seconds(seconds: object, laps: Mapping[str, Any]) -> float | None:
    """Without planning and fetching, which depend on the network."""
    waited = [lap for lap in (laps.get("plan", 0), laps.get("fetch", 0)) if isinstance(lap, int | float)]
    return round(seconds - sum(waited), 3) if isinstance(seconds, int | float) else None


def _section(manifest: Manifest, name: str) -> Mapping[str, Any]:
    section = manifest.provenance.get(name)
    return section if isinstance(section, dict) else {}


def _count(count: object) -> int | None:
    """A count, or the sum of one that is told by part."""
    if isinstance(count, dict):
        return sum(part for part in count.values() if isinstance(part, int))
    return count if isinstance(count, int) else None


def _sum(counts: Iterable[float | None]) -> float | None:
    every = list(counts)
    known = [count for count in every if count is not None]
    return sum(known) if known and len(known) == len(every) else None


def _first(counts: Iterable[float | None]) -> float | None:
    return next((count for count in counts if count is not None), None)
