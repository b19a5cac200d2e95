"""The folder of a source on this machine: which of its files are read, and whether they are still those."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.readers.source_files import SourceFile, list_files
from pipeline_assets.corpus.spine import reads
from pipeline_assets.corpus.spine.errors import InputError, Obstacle
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.reads import Promise

_FOLDER, _MODIFIED, _SHA256 = "folder", "modified_ns", "sha256:"
_CHANGED = "its bytes changed since they were hashed: give them back, or touch the file and run the recipe again"


@dataclass(frozen=True)
class SourceFolder:
    """Files below a folder. Where it lies changes no digest: the manifest has names, sizes and hashes.

    Attributes:
        path: absolute, or below the data root.
        patterns: see `list_files`.
    """

    path: Path
    patterns: tuple[str, ...]

    def below(self, root: Path) -> "SourceFolder":
        """The folder, its path absolute."""
        return SourceFolder((root / self.path).absolute(), self.patterns)

    def files(self) -> list[SourceFile]:
        """What the patterns match, sorted by name.

        Raises:
            UsageError: from `list_files`.
        """
        return list_files(self.path, self.patterns)

    def changed(self, root: Path, manifest: Manifest) -> str | None:
        """What is not as it was when the manifest was sealed, by names, sizes and times of change; None if all is.

        A folder that is gone has not changed: what was read of it stays.
        """
        here = self.below(root)
        if not here.path.is_dir():
            return None
        try:
            listing = here.files()
        except InputError as error:
            return error.what
        listed = {entry["name"]: entry["bytes"] for entry in manifest.identity.inputs}
        names = {file.name: file.bytes for file in listing}
        different = sorted(name for name in listed.keys() | names.keys() if listed.get(name) != names.get(name))
        if not different and manifest.provenance.get(_MODIFIED) != modified_ns(listing):
            return f"files in {here.path} were written again"
        if not different:
            return None
        return f"{len(different):,} of the files in {here.path} changed, the first is {different[0]}"


def modified_ns(files: Sequence[SourceFile]) -> list[int]:
    """When each file was last changed."""
    return [file.path.stat().st_mtime_ns for file in files]


def as_provenance(folder: SourceFolder, files: Sequence[SourceFile], root: Path) -> dict[str, Any]:
    """Where the files lie, as `folder_of` reads it back: below the data root relative to it, since both may move."""
    path = folder.path.relative_to(root) if folder.path.is_relative_to(root) else folder.path
    return {_FOLDER: str(path), _MODIFIED: modified_ns(files)}


def folder_of(manifest: Manifest, root: Path) -> SourceFolder | None:
    """The folder that a manifest's inputs were read from, its path absolute; None where it names none.

    Args:
        root: the data root that the artifact lies in.
    """
    path, patterns = folder_path(manifest, root), manifest.identity.recipe.get("files")
    return SourceFolder(path, tuple(patterns)) if path is not None and patterns else None


def folder_path(manifest: Manifest, root: Path) -> Path | None:
    """Where the files of a manifest's inputs lie, absolute; None where it names no folder."""
    path = manifest.provenance.get(_FOLDER)
    return (root / path).absolute() if isinstance(path, str) else None


def is_of_folder(manifest: Manifest) -> bool:
    """Whether a manifest's inputs were read from a folder of this machine."""
    return _FOLDER in manifest.provenance


def files_of(folder: SourceFolder, manifest: Manifest) -> list[SourceFile]:
    """The files that a manifest lists, in the folder where they lie now; its path is absolute. A build that asks for
    them reads them, so they are held against the manifest's hashes.

    Raises:
        InputError: they are gone, or not as they were.
    """
    if not folder.path.is_dir():
        what = "the folder that its files were read from is gone"
        fix = "give it back, or leave a link there to where it is now, or correct the source's path"
        raise Obstacle(what, folder.path, fix)
    reason = folder.changed(Path(), manifest)
    if reason is not None:
        fix = "let nothing write there, and run the recipe again"
        raise InputError(f"{reason} since they were hashed", folder.path, fix)
    entries = manifest.identity.inputs
    files = [SourceFile(folder.path / entry["name"], entry["name"], entry["bytes"]) for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        promise = Promise(entry["digest"].removeprefix(_SHA256), f"{manifest.name} lists", _CHANGED)
        reads.promise(file.path, promise, is_streamed=True)
    return files
