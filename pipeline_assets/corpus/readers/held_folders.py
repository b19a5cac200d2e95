"""What the folders of this machine hold of the files that manifests name, as hash tasks. Only read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.readers.source_folder import folder_path
from pipeline_assets.corpus.spine.chain import Finding
from pipeline_assets.corpus.spine.hashes import unreadable
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.rehash import HashTask

CHANGED = "it is not the file that was read: give that back, or build again"
_SHA256 = "sha256:"


@dataclass
class HeldOfFolders:
    """How the files of source folders stand to the manifests that name them.

    Attributes:
        listed: files that manifests name, each once.
        not_here: those whose folder is gone, or was never on this machine; nothing is said of them.
        gone: these folders.
        tasks: what the files that are here in their sizes should hash to.
        findings: what is no more as it was: files that are gone from a folder that is here, or have another size; those
            of another hash are added when they are read.
    """

    listed: int = 0
    not_here: list[str] = field(default_factory=list)
    gone: list[Path] = field(default_factory=list)
    tasks: list[HashTask] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def held_of_folders(
    manifests: Iterable[Manifest], outside: Mapping[str, Sequence[Mapping[str, Any]]], root: Path
) -> tuple[HeldOfFolders, dict[str, Sequence[Mapping[str, Any]]]]:
    """
    Args:
        manifests: of the artifacts of a chain.
        outside: the files that artifacts were made from, as their manifests list them, by digest of the artifact.
        root: the data root of the chain.
    Returns:
        what the folders hold; and of `outside` the rest, which was read from elsewhere.
    """
    held, rest = HeldOfFolders(), dict(outside)
    seen: set[tuple[Path, str]] = set()
    for manifest in manifests:
        folder = folder_path(manifest, root)
        if folder is None or manifest.digest not in rest:
            continue
        is_here = folder.is_dir()
        if not is_here and folder not in held.gone:
            held.gone.append(folder)
        for entry in rest.pop(manifest.digest):
            path = folder / entry["name"]
            if (path, entry["digest"]) not in seen:
                seen.add((path, entry["digest"]))
                held.listed += 1
                _look_at(path, entry, is_here, held)
    return held, rest


def _look_at(path: Path, entry: Mapping[str, Any], is_here: bool, held: HeldOfFolders) -> None:
    if not is_here:
        held.not_here.append(str(path))
        return
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        held.findings.append(Finding(path, f"the file is gone; {CHANGED}", entry["digest"]))
        return
    except OSError as error:
        held.findings.append(Finding(path, f"{unreadable(error)}; {CHANGED}", entry["digest"]))
        return
    if size != entry["bytes"]:
        what = f"has {size:,} bytes, the manifest lists {entry['bytes']:,}; {CHANGED}"
        held.findings.append(Finding(path, what, entry["digest"]))
        return
    expected = entry["digest"].removeprefix(_SHA256)
    held.tasks.append(HashTask(entry["digest"], str(path), (path,), size, "sha256", expected, "the manifest lists"))
