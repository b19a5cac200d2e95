"""Files that an artifact is made from as they are listed before it is built, with the figures that they tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.source_folder import SourceFile

Inputs = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """A figure before it is real, and for people what it rests on, as `the listing and footers`."""

    value: float
    basis: str


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
    def from_files(cls, files: Iterable[SourceFile]) -> "Listing":
        """Of files of this machine, none of which has been hashed."""
        return cls(tuple({"name": file.name, "bytes": file.bytes} for file in files))

    @classmethod
    def from_fetched(cls, hub: HubFiles, dataset: str, files: Iterable[HubFile]) -> "Listing":
        """Of what reads files of a hub whole, listed by what it is made from."""
        return cls(
            missing={f"{dataset}:{file.path}": hub.count_missing_bytes(dataset, file, 0, file.size) for file in files}
        )


def figures_of_inputs(inputs: Inputs) -> dict[str, int]:
    """What is read of files: their row groups, where footers tell them, else all bytes; nothing of artifacts."""
    files = [entry for entry in inputs if "bytes" in entry]
    groups = [group for entry in files for group in entry.get("row_groups", ())]
    if groups:
        size = sum(one["stop"] - one["start"] for one in groups)
        return {"bytes_read": size, "rows": sum(one["rows"] for one in groups)}
    return {"bytes_read": sum(entry["bytes"] for entry in files)} if files else {}
