"""Result of a build, from which its artifact is sealed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import OutputFile, StagingDir


@dataclass(frozen=True)
class BuildResult:
    """Files and facts of a finished build, which its manifest will contain.

    Attributes:
        files: Output files with their content hashes, in manifest order.
        external_inputs: Input files that are in no artifact, from a hub or a local folder.
        labels: Stored files that the digest does not cover, since they contain a time or a path.
        provenance: Facts about the build that do not affect the content.
        write_page: Function that writes a page about the content and its manifest, as one more label; None for no page.
    """

    files: Sequence[OutputFile]
    counts: Mapping[str, Any]
    decisions: Mapping[str, Any]
    external_inputs: Sequence[Mapping[str, Any]] = ()
    labels: Sequence[OutputFile] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    write_page: Callable[[StagingDir, Manifest], OutputFile] | None = None


BuildFunction = Callable[[StagingDir], BuildResult]
