"""Comparisons of artifacts with the removal list of their data root.

An artifact whose kind applies the list is stale if a row matches an entry that was added after its build. `forget`
compares all artifacts of such kinds with new entries, and stores the results in `removals/compared.json`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from pipeline_assets.corpus.removal_entries import LIST_FILE
from pipeline_assets.corpus.removal_list import read_removal_list
from pipeline_assets.corpus.removals import REMOVALS_FOLDER, REMOVALS_KEY, Removals
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.staging import PULLED_KEY


class RemovalComparison(msgspec.Struct, frozen=True):
    """Comparison of an artifact with the removal list up to the entry `position`."""

    position: str = ""
    rows: dict[str, int] = {}  # number of rows that match an entry, by file
    is_downstream: bool = False  # the artifact was built from an artifact with such rows

    @property
    def has_listed_rows(self) -> bool:
        return bool(self.rows) or self.is_downstream


_COMPARISONS_PATH = f"{REMOVALS_FOLDER}/compared.json"
_COMPARISONS_FORMAT = MetadataFormat(
    "record of comparisons", 1 << 28, "delete it, then run `corpusmill forget`", dict[str, RemovalComparison]
)


def read_comparisons(root: Path) -> dict[str, RemovalComparison]:
    """Read the comparisons by artifact digest; none exist before the first `forget`."""
    try:
        return _COMPARISONS_FORMAT.read(root / _COMPARISONS_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def applied_positions(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return an artifact's name for each removal-list position that a build recorded.

    A build records the position up to which it applied the list. If several artifacts have the same position, only
    one of them is named. Pulled artifacts are skipped.
    """
    built_here = (
        sealed for sealed in manifests if REMOVALS_KEY in sealed.provenance and PULLED_KEY not in sealed.provenance
    )
    return {str(sealed.provenance[REMOVALS_KEY]): f"{sealed.kind} {sealed.name}" for sealed in built_here}


def read_removals(root: Path, names_by_position: Mapping[str, str] = MappingProxyType({})) -> Removals:
    """Read a data root's removal list.

    Raise InputError if the list is damaged or entries are missing. Entries are missing if the list lacks the position
    of a comparison, or a key of `names_by_position` (see `applied_positions`).
    """
    positions = {comparison.position for comparison in read_comparisons(root).values()}
    listed = read_removal_list(root)  # after the positions, since another process may add entries and use them
    fix = "restore the folder from the newest backup"
    if positions.difference(listed.positions):
        raise InputError("the removal list lacks entries that artifacts were compared with", root / LIST_FILE, fix)
    if lost := [name for position, name in names_by_position.items() if position not in listed.positions]:
        what = f"the removal list is missing or lacks entries that {lost[0]} was built with"
        raise InputError(what, root / LIST_FILE, f"{fix}, or delete each artifact that this error names")
    return listed


def write_comparisons(root: Path, comparisons: dict[str, RemovalComparison]) -> None:
    durable.write_durably(root / _COMPARISONS_PATH, msgspec.json.encode(comparisons))
