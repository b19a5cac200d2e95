"""Files of a sealed artifact, linked into the staging directory of another one."""

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.staging import OutputFile, StagingDir


def link_files(building: StagingDir, artifact: Artifact) -> dict[str, OutputFile]:
    """Link every stored file of an artifact, labels included, by path."""
    contents, files = {file.path: file for file in artifact.manifest.identity.files}, dict[str, OutputFile]()
    for stored in artifact.manifest.storage:
        durable.link(artifact.folder / stored.path, building.path(stored.path))
        content = contents.get(stored.path)
        rows, digest = (1, stored.sha256) if content is None else (content.rows, content.content_sha256)
        files[stored.path] = OutputFile(stored.path, rows, stored.bytes, stored.sha256, digest)
    return files
