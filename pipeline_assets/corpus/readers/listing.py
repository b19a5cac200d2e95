"""Listings of an artifact's input files, made before the artifact is built."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.source_folder import SourceFile


@dataclass(frozen=True)
class Forecast:
    """Number that is known or estimated before a build, with its basis."""

    value: float
    basis: str  # where the value comes from, such as `the listing`


@dataclass(frozen=True)
class Listing:
    """Input files, outside the data root, of an artifact that will be built.

    Attributes:
        inputs: Entries of `inputs` in the future manifest, as known from file listings and Parquet footers.
        bytes_to_fetch: Number of bytes to fetch from a hub, by file or source; None if all files are local.
    """

    inputs: tuple[Mapping[str, Any], ...] = ()
    bytes_to_fetch: Mapping[str, int] | None = None

    @classmethod
    def from_files(cls, files: Iterable[SourceFile]) -> "Listing":
        """List local files with name and size, but without hashes."""
        return cls(tuple({"name": file.name, "bytes": file.bytes} for file in files))

    @classmethod
    def from_pinned(cls, hub: HubFiles, dataset: str, files: Iterable[HubFile]) -> "Listing":
        """Return a listing of pinned hub files that has `bytes_to_fetch` but no `inputs`."""
        names = {f"{dataset}:{file.path}": file for file in files}
        missing = {name: hub.count_missing_bytes(dataset, file, 0, file.size) for name, file in names.items()}
        return cls(bytes_to_fetch=missing)
