"""Areas: the folders of a data root that contain artifacts.

A scan reads 10,000 manifests per second. It checks the seal of each manifest: the line with a hash of all other lines.
Opening an artifact also checks the digest.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from pipeline_assets.spine.artifact import member_digests
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import MANIFEST_FILE, MANIFEST_FORMAT, Manifest, is_seal_intact

# Folders of a data root that contain artifacts. This layer cannot import systems, so the folders of the project's own
# systems are listed here; `Systems.add` adds folders of other systems.
AREAS = ["corpora", "selections", "megatron", "stage_a", "nemotron", "stage2", "parallel_text"]
MANIFEST_COPIES_FOLDER = "manifests"


def read_sealed_manifest(path: Path | str) -> Manifest:
    """Read a manifest file; compute the digest only if the manifest's seal is broken."""
    data = MANIFEST_FORMAT.read_raw(path)
    return (Manifest.from_sealed_bytes if is_seal_intact(data) else Manifest.from_bytes)(data, Path(path))


def scan_folders(folder: str) -> Iterator[tuple[str, Manifest | InputError]]:
    """Yield (folder, manifest or its error) for each manifest in a folder tree.

    Subfolders come in the order of their names; an artifact comes before its members. Hidden subfolders are skipped. In
    a folder with a readable manifest, only the artifact's members are scanned.
    """
    members: Collection[str] | None = None
    try:
        sealed = read_sealed_manifest(f"{folder}/{MANIFEST_FILE}")
        yield folder, sealed
        members = member_digests(sealed)
        if not members:
            return
    except InputError as error:
        yield folder, error
    except (FileNotFoundError, NotADirectoryError):
        pass
    for name in _folders_in(folder):
        if not name.startswith(".") and (members is None or name in members):
            yield from scan_folders(f"{folder}/{name}")  # creating Paths doubles the time


def scan_areas(root: Path) -> Iterator[tuple[str, Manifest | InputError]]:
    """Yield (folder, manifest or its error) for each manifest in a data root's areas."""
    for area in sorted(AREAS):
        yield from scan_folders(str(root / area))


def _folders_in(folder: str) -> list[str]:
    """Return the names of subfolders, sorted; empty if the folder does not exist."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
