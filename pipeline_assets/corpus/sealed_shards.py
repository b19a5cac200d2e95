"""Sealed document shards of a corpus, which other artifacts read or link."""

from dataclasses import replace
from pathlib import Path

from pipeline_assets.corpus.document_shards import SHARDS_FOLDER, DocumentShard
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, repair_hint
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.reuse import sealed_files
from pipeline_assets.spine.staging import OutputFile, StagingView


def rows_by_shard(corpus: Artifact) -> dict[str, int]:
    """Map the path of each shard to its number of documents, in manifest order."""
    files = corpus.manifest.identity.files
    return {file.path: file.rows for file in files if file.path.startswith(f"{SHARDS_FOLDER}/")}


def document_shards(corpus: Artifact) -> list[DocumentShard]:
    """List the shards of a corpus in manifest order."""
    files = sealed_files(corpus)
    return [
        DocumentShard(Path(path).name.removesuffix(SUFFIX), path, corpus.path(path), rows, sealed_file=files[path])
        for path, rows in rows_by_shard(corpus).items()
    ]


def link_shard(shard: DocumentShard, folder: StagingView) -> OutputFile:
    """Link a sealed shard into a staging directory as an output shard of equal name.

    If linking fails, as across file systems, copy the file. Raise InputError if the sha256 of the linked or copied file
    is not the one in the manifest.
    """
    assert shard.sealed_file is not None
    linked = replace(shard.sealed_file, path=f"{SHARDS_FOLDER}/{shard.name}{SUFFIX}")
    durable.link(shard.file, folder.path(linked.path))
    if (sha256 := file_sha256(folder.path(linked.path))) != linked.sha256:
        what = f"sha256 is {sha256}, sealed with {linked.sha256}"
        raise InputError(what, shard.file, repair_hint(shard.file.parents[1]))
    return linked


def link_if_equal(output_shard: OutputFile, input_shard: DocumentShard, folder: StagingView) -> OutputFile:
    """Replace an output shard with a link to its input shard if no document differs.

    Return the resulting file: the link or the unchanged output shard.
    """
    is_equal = (file := input_shard.sealed_file) is not None and file.content_sha256 == output_shard.content_sha256
    return link_shard(input_shard, folder) if is_equal else output_shard
