"""Figures of an artifact: what its build took and gave, as its manifest tells, beside what was planned.

The track record of a data root is what its earlier builds of a kind took and gave, in proportion to their inputs.
"""

import contextlib
import functools
import heapq
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import AREAS
from pipeline_assets.corpus.spine.manifest import FILE_NAME, Manifest, total

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
    "gpu_seconds",
    "build_seconds",
)
"""Names of the figures that are planned of an artifact, in the order of their lines; an artifact has those it knows."""
Inputs = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """A figure before it is real, and for people what it rests on: `the listing`, `as in 3 earlier builds here`."""

    value: float
    basis: str


@dataclass(frozen=True)
class FigureOutcome:
    """One figure of a finished artifact; `planned` and `real` are None where they aren't known."""

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
        inputs: as the artifact's manifest will list them; none of what is made of other artifacts.
        missing: bytes that a hub will be asked for, by the name of the file; None where no hub is.
        text_bytes: uncompressed size of the text columns that are read; None where no footer tells it.
    """

    inputs: tuple[Mapping[str, Any], ...] = ()
    missing: Mapping[str, int] | None = None
    text_bytes: int | None = None

    @classmethod
    def of_files(cls, files: Iterable[SourceFile]) -> "Listing":
        """Of files of this machine, none of which has been hashed."""
        return cls(tuple({"name": file.name, "bytes": file.bytes} for file in files))

    @classmethod
    def of_fetched(cls, hub: HubFiles, dataset: str, files: Iterable[HubFile]) -> "Listing":
        """Of what reads files of a hub whole, listed by what it is made from."""
        return cls(missing={f"{dataset}:{file.path}": hub.bytes_missing(dataset, file, 0, file.size) for file in files})


@dataclass(frozen=True)
class Limit:
    """The most that a recipe asks of an artifact by one of its keys, however much it is made from: rows that are read,
    tokens that are written, None for all. A text may count for so many passes: the artifact's share, or its epochs.
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
    held = (total(counts.get("text_bytes")), _sum(file.bytes for file in manifest.storage), listed.bytes)
    rows = (total(counts.get("documents")), total(counts.get("ledger", {}).get("out")), listed.rows)
    return Size(_first(held), _first(rows))


def real_figures(manifest: Manifest) -> dict[str, float]:
    """What an artifact came to, as far as its manifest tells."""
    counts, provenance = manifest.identity.counts, manifest.provenance
    seconds, laps = provenance.get("seconds"), provenance.get("seconds_of", {})
    network_seconds = laps.get("plan", 0) + laps.get("fetch", 0)
    found = {
        "bytes_read": size_of_inputs(manifest.identity.inputs).bytes,
        "rows": counts.get("ledger", {}).get("in", counts.get("rows")),
        **{name: total(counts.get(name)) for name in ("documents", "text_bytes", "tokens")},
        "bytes": _sum(file.bytes for file in manifest.storage),
        **{name: provenance.get(name) for name in ("bytes_fetched", "peak_disk_bytes", "peak_memory_bytes")},
        **{name: provenance.get(name) for name in ("tokens_encoded", "cpu_seconds", "gpu_seconds")},
        "fetch_seconds": laps.get("fetch"),
        "build_seconds": None if seconds is None else round(seconds - network_seconds, 3),
    }
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def outcomes(manifest: Manifest) -> list[FigureOutcome]:
    """Planned and real figures, in their order. A plan that can't be read is left out: no digest covers it."""
    real, told, planned = real_figures(manifest), manifest.provenance.get("planned"), {}
    for name, value in told.items() if isinstance(told, dict) else ():
        with contextlib.suppress(KeyError, TypeError):
            planned[name] = Planned(value["value"] + 0, value["basis"])
    named = [name for name in FIGURES if name in planned or name in real]
    return [FigureOutcome(name, planned.get(name), real.get(name)) for name in named]


def joint_basis(planned: Sequence[Planned]) -> str:
    """What a figure of several artifacts rests on: of how many earlier builds is told from the fewest to the most."""
    bases = list(dict.fromkeys(one.basis for one in planned))
    builds = sorted({int(found[1]) for found in map(_EARLIER.match, bases) if found})
    if len(builds) > 1:
        span = f"as in {builds[0]} to {builds[-1]} earlier builds here"
        bases = [*(basis for basis in bases if not _EARLIER.match(basis)), span]
    return " or ".join(bases)


def _sum(counts: Iterable[float | None]) -> float | None:
    every = list(counts)
    known = [count for count in every if count is not None]
    return sum(known) if known and len(known) == len(every) else None


def _first(counts: Iterable[float | None]) -> float | None:
    return next((count for count in counts if count is not None), None)


_EARLIER = re.compile(r"as in (\d+) earlier builds? here")
_MOST = 16  # of a folder that artifacts lie in: as many tell as much as ten thousand, and are read at once
_FETCHED_ENOUGH = 4 << 20  # less is mostly waiting
_FETCHING = ("bytes_fetched", "fetch_seconds")
_OF_WORKERS = ("peak_memory_bytes", "build_seconds")
_OF_TOKENS = ("documents", "bytes")


@dataclass(frozen=True)
class _Build:
    """One earlier build, with figures that it is good for: seconds are those of a host, and of all its shards."""

    partition: str | None
    workers: object
    took_in: Size
    figures: Mapping[str, float]


@dataclass
class TrackRecord:
    """The latest builds below a data root, read when they are first asked for; and the bytes a second that the user
    says the network has, if they do.
    """

    root: Path
    fetch_rate: float | None = None

    def forecast(
        self, kind: str, partition: str | None, workers: int, size: Size, tokens: int | None = None
    ) -> dict[str, Planned]:
        """Figures of an artifact of this kind that so much goes into, in proportion to those of earlier ones: of its
        partition, where there are any. What it will hold goes by the tokens that are asked of it. Memory is the most
        that one took, whatever its size. None where nothing of the kind was built.
        """
        planned = {}
        every = self._builds.get(kind, ())
        for name in (name for name in FIGURES if every and name not in _FETCHING):
            builds = [build for build in every if name in build.figures]
            if name in _OF_WORKERS:
                builds = [build for build in builds if build.workers == workers]
            builds = [build for build in builds if build.partition == partition] or builds
            value: float | None = max((build.figures[name] for build in builds), default=None)
            if name != "peak_memory_bytes":
                value = _in_proportion(name, builds, size, tokens if name in _OF_TOKENS else None)
            if value is not None:
                basis = f"as in {len(builds)} earlier {'build' if len(builds) == 1 else 'builds'} here"
                planned[name] = Planned(round(value, 3) if name.endswith("_seconds") else round(value), basis)
        return planned

    def tokens_within(self, kind: str, partition: str | None, size: Size) -> float | None:
        """Tokens that what goes into an artifact holds for this partition; None where none of it was built."""
        builds = [build for build in self._builds.get(kind, ()) if build.partition == partition]
        return _in_proportion("tokens_encoded", [one for one in builds if one.figures.get("tokens_encoded")], size)

    def fetch_seconds(self, missing_bytes: int) -> Planned | None:
        """None where something is to be fetched and nobody knows how fast the network is."""
        if not missing_bytes:
            return Planned(0, "nothing is to be fetched")
        if self.fetch_rate is not None:
            return Planned(missing_bytes / self.fetch_rate, f"{self.fetch_rate / 125_000:g} Mbit/s, as stated")
        fetches = [
            (build.figures["bytes_fetched"], build.figures["fetch_seconds"])
            for builds in self._builds.values()
            for build in builds
            if build.figures.get("bytes_fetched", 0) >= _FETCHED_ENOUGH and build.figures.get("fetch_seconds")
        ]
        if not fetches:
            return None
        rate = sum(fetched for fetched, _ in fetches) / sum(seconds for _, seconds in fetches)
        return Planned(missing_bytes / rate, f"{rate / 1e6:.1f} MB/s, as in earlier fetches here")

    @functools.cached_property
    def _builds(self) -> Mapping[str, Sequence[_Build]]:
        """By kind. What can't be read is passed over."""
        builds: dict[str, list[_Build]] = {}
        for folder in _latest_folders(self.root):
            with contextlib.suppress(InputError):
                manifest = read_manifest(folder)
                if manifest is not None and isinstance(manifest.provenance.get("took_in"), dict):
                    builds.setdefault(manifest.kind, []).append(_build(manifest))
        return builds


def _latest_folders(root: Path) -> Iterator[Path]:
    """The latest sealed folders of each folder."""
    sealed: dict[Path, list[tuple[float, str]]] = {}
    for area in AREAS:
        for folder, below, files in os.walk(root / area):
            below[:] = [name for name in below if not name.startswith(".")]  # being built, or left by a seal
            if FILE_NAME in files:
                with contextlib.suppress(OSError):
                    changed = os.stat(os.path.join(folder, FILE_NAME)).st_mtime
                    sealed.setdefault(Path(folder).parent, []).append((changed, folder))
    for beside in sealed.values():
        yield from (Path(folder) for _, folder in heapq.nlargest(_MOST, beside))


def _build(manifest: Manifest) -> _Build:
    provenance, figures = manifest.provenance, real_figures(manifest)
    if provenance.get("host") != socket.gethostname() or provenance.get("adopted_shards"):
        figures = {name: value for name, value in figures.items() if not name.endswith("_seconds")}
    took_in = [provenance["took_in"].get(name) for name in ("bytes", "rows")]
    size = Size(*(one if isinstance(one, int | float) else None for one in took_in))
    workers = provenance.get("run_settings", {}).get("workers")
    return _Build(manifest.name.partition("/")[2] or None, workers, size, figures)


def _in_proportion(figure: str, builds: Sequence[_Build], size: Size, tokens: int | None = None) -> float | None:
    """What is due to a size, or to tokens, by what came of all builds; None where they can't be held together."""
    if not builds:
        return None
    asked = (tokens, size.bytes, size.rows)
    had = zip(*((one.figures.get("tokens"), one.took_in.bytes, one.took_in.rows) for one in builds), strict=True)
    for wanted, known in zip(asked, had, strict=True):
        if wanted is not None and all(known):
            return float(sum(build.figures[figure] for build in builds) * wanted / sum(known))
    return None
