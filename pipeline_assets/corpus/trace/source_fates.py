"""What became of a row of a source in all that is sealed below a data root."""

from pathlib import Path

from pipeline_assets.corpus.readers.source_folder import folder_of
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import sealed_manifests
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.trace.origin import READS_SOURCES, file_of
from pipeline_assets.corpus.trace.source_row import AnyRow
from pipeline_assets.corpus.trace.source_to_corpora import CorpusFate, corpus_fates
from pipeline_assets.corpus.trace.source_to_tokens import RowFate, snapshot_fates


def trace_source(root: Path, source: AnyRow) -> list[RowFate | CorpusFate]:
    """What became of a source row, in every snapshot and in every normalised corpus below the data root whose source
    lists its file.

    Raises:
        InputError: no source does, or none that something was made from; an artifact is damaged.
    """
    manifests, unreadable = sealed_manifests(root)
    if unreadable:
        raise unreadable[0]
    fates: list[RowFate | CorpusFate] = [
        *snapshot_fates(manifests, source, root),
        *corpus_fates(manifests, source, root),
    ]
    if fates:
        return fates
    readers = {folder: one for folder, one in manifests.items() if one.identity.stage.name in READS_SOURCES}
    for folder, reader in readers.items():
        if file_of(reader, source, root) is not None:
            what = f"{folder} lists this file, and no documents were made from it yet"
            raise InputError(what, source.file, "build its recipe with `corpusmill run`")
    known = sorted({_name_of(reader, root) for reader in readers.values()})
    fix = f"those there are of {', '.join(known)}" if known else "give the data root of a build with --data"
    raise InputError(f"no source below {root} lists this file", source.file, fix)


def _name_of(reader: Manifest, root: Path) -> str:
    """What people call a source: repo@commit, or its folder."""
    folder = folder_of(reader, root)
    recipe = reader.identity.recipe
    return str(folder.path) if folder is not None else f"{recipe['dataset']}@{recipe['revision']}"
