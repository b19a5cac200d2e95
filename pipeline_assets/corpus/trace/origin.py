"""Which files the Documents of a corpus were made from: those of a hub at a commit, or of a folder of this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.readers.raw_pin import RAW_STAGE
from pipeline_assets.corpus.readers.source_folder import folder_of
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import locate
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.trace.source_row import AnyRow, FileRow, SourceRow, listed_file

READS_SOURCES = (SNAPSHOT_STAGE.name, RAW_STAGE.name)


@dataclass(frozen=True)
class SourceListing:
    """What lists the files of a source.

    Attributes:
        artifact: a raw source; a snapshot lists its own.
        corpus: the Documents that were made from it, whatever filtered them since.
        root: the data root of both.
    """

    artifact: Artifact
    corpus: Artifact
    root: Path

    def row(self, file: str, row: int) -> AnyRow:
        """A row, of a file as `source_file` in a Document's `meta` names it."""
        return source_row(self.artifact.manifest, file, row, self.root)

    def entry(self, file: str) -> Mapping[str, Any]:
        """The file's entry in the manifest.

        Raises:
            InputError: there is none.
        """
        row = self.row(file, 0)
        return listed_file(self.artifact, row.file if isinstance(row, SourceRow) else file)


def listing_of(root: Path, corpus: Artifact, source: str) -> SourceListing:
    """What lists the files that the Documents of a source in a corpus came from, found below the data root.

    Raises:
        InputError: what the corpus was made from is gone.
    """
    reader = corpus
    while reader.manifest.identity.stage.name not in READS_SOURCES:
        corpus = reader
        if not reader.manifest.identity.inputs:
            what = f"it is {reader.manifest.kind}, made from nothing"
            raise InputError(what, reader.folder, "give a corpus that was made from a source")
        reader = locate(root, came_by(reader.manifest, source)["digest"], reader.manifest.name)
    return SourceListing(reader, corpus, root)


def came_by(corpus: Manifest, source: str) -> Mapping[str, Any]:
    """The input that the Documents of a source are in: of several the one that is named after it, else the first."""
    inputs = [entry for entry in corpus.identity.inputs if f"/{EVALUATION_STAGE.name}/" not in entry["name"]]
    return next((entry for entry in inputs if entry["name"].endswith(f"/{source}")), inputs[0])


def source_row(reader: Manifest, file: str, row: int, root: Path) -> AnyRow:
    """A row of a file that the manifest of a raw source or of a snapshot lists."""
    folder = folder_of(reader, root)
    if folder is not None:
        return FileRow(folder.path / file, row)
    recipe = reader.identity.recipe
    return SourceRow(recipe["dataset"], recipe["revision"], file, row)


def file_of(reader: Manifest, source: AnyRow, root: Path) -> str | None:
    """The name that `source_file` has in Documents of the row's file; None where the manifest lists no such file."""
    folder = folder_of(reader, root)
    if isinstance(source, SourceRow):
        is_listed = folder is None and any(entry["name"] == source.file for entry in reader.identity.inputs)
        return source.path if is_listed else None
    if folder is None:
        return None
    names = (entry["name"] for entry in reader.identity.inputs)
    return next((name for name in names if (folder.path / name).resolve() == source.path.resolve()), None)
