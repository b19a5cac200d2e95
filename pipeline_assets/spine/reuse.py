"""Linking of a sealed artifact's files into a staging directory."""

import logging

from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, find_damage, repair_hint
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import FileContent
from pipeline_assets.spine.staging import OutputFile, StagingDir

logger = logging.getLogger("corpusmill")


def sealed_files(artifact: Artifact) -> dict[str, OutputFile]:
    """Return an artifact's stored files by path.

    A label, which is a file that the digest does not cover, has `rows` = 1.
    """
    contents, files = {file.path: file for file in artifact.manifest.identity.files}, dict[str, OutputFile]()
    for stored in artifact.manifest.storage:
        content = contents.get(stored.path) or FileContent(stored.path, 1, stored.sha256)
        files[stored.path] = OutputFile(stored.path, content.rows, stored.bytes, stored.sha256, content.content_sha256)
    return files


def link_content(staging: StagingDir, artifact: Artifact) -> BuildResult | None:
    """Link an artifact's files into a staging directory, as the result of a build.

    If a file is damaged, link nothing and return None.
    """
    if damage := next(find_damage(artifact.folder, artifact.manifest), None):
        what = f"{artifact.folder / damage.path} is damaged ({damage.what}); {repair_hint(artifact.folder)}"
        logger.warning("%s: built without the files of the version before: %s", staging.target, what)
        return None
    identity, files = artifact.manifest.identity, sealed_files(artifact)
    for path in files:
        durable.link(artifact.folder / path, staging.path(path))
    contents = [file.path for file in identity.files]
    return BuildResult(
        files=[files[path] for path in contents],
        counts=identity.counts,
        decisions=identity.decisions,
        external_inputs=[entry for entry in identity.inputs if entry not in identity.upstream],
        labels=[file for path, file in files.items() if path not in contents],
        provenance={"taken_over_from": artifact.manifest.name},
    )
