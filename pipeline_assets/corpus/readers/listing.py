"""Listings of an artifact's input files before it is built."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.source_folder import SourceFile

Inputs = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Forecast:
    """A figure that is known before a build."""

    value: float
    basis: str  # where the value comes from, such as `the listing`


@dataclass(frozen=True)
class Listing:
    """Files outside the data root that an artifact depends on.

    Attributes:
        inputs: Input entries of the future manifest, as far as listings and Parquet footers determine them.
        missing_bytes: Bytes to request from a hub, by file name; None if no hub is involved.
    """

    inputs: tuple[Mapping[str, Any], ...] = ()
    missing_bytes: Mapping[str, int] | None = None

    @classmethod
    def from_files(cls, files: Iterable[SourceFile]) -> "Listing":
        """List local files that have not been hashed."""
        return cls(tuple({"name": file.name, "bytes": file.bytes} for file in files))

    @classmethod
    def from_fetched(cls, hub: HubFiles, dataset: str, files: Iterable[HubFile]) -> "Listing":
        """List hub files that are read whole and listed in upstream manifests."""
        names = {f"{dataset}:{file.path}": file for file in files}
        missing = {name: hub.count_missing_bytes(dataset, file, 0, file.size) for name, file in names.items()}
        return cls(missing_bytes=missing)


def input_figures(inputs: Inputs) -> dict[str, int]:
    """Sum the bytes and rows that a build reads from input files, not from artifacts.

    If any entry names row groups, only row groups count, otherwise whole files.
    """
    files = [entry for entry in inputs if "bytes" in entry]
    groups = [group for entry in files for group in entry.get("row_groups", ())]
    if groups:
        size = sum(group["stop"] - group["start"] for group in groups)
        return {"bytes_read": size, "rows": sum(group["rows"] for group in groups)}
    return {"bytes_read": sum(entry["bytes"] for entry in files)} if files else {}
