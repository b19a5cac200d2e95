"""The manifest of a group of shards, under the group's name, beside its folder: `<name>.manifest.json`."""

from pathlib import Path

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import FILE_NAME, MANIFEST_FILE


def group_manifest(folder: Path) -> Path:
    """Where the manifest of the group in a folder lies."""
    return folder.with_name(f"{folder.name}.{FILE_NAME}")


def write_group_manifest(artifact: Artifact) -> Path:
    """A copy of the artifact's manifest, to the byte."""
    path = group_manifest(artifact.folder)
    data = MANIFEST_FILE.bytes_of(artifact.folder / FILE_NAME)
    if not path.exists() or path.read_bytes() != data:
        durable.write_durably(path, data)
    return path
