"""Result of a build, from which the artifact is sealed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import OutputFile, StagingDir


@dataclass(frozen=True)
class BuildResult:
    """Files and facts of a finished build, for the artifact's manifest.

    Attributes:
        files: Output files with their content hashes, in manifest order.
        external_inputs: Input files from a hub or a local folder, not from an artifact.
        labels: Stored files that the digest does not cover, since they contain a time or a path.
        provenance: Facts about the build that do not affect the content.
        write_page: Function that writes a page about the artifact, and returns the page as a label; None for no page.
    """

    files: Sequence[OutputFile]
    counts: Mapping[str, Any]
    decisions: Mapping[str, Any]
    external_inputs: Sequence[Mapping[str, Any]] = ()
    labels: Sequence[OutputFile] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    write_page: Callable[[StagingDir, Manifest], OutputFile] | None = None


BuildFunction = Callable[[StagingDir], BuildResult]
