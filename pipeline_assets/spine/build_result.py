"""Result of a build, to be sealed."""

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
        external_inputs: Input files outside the data root, on a hub or local.
        labels: Files with a time or a path, not covered by the digest.
        provenance: Facts about the build that change no byte.
        page: Function that writes one more label: a page that shows the content and its manifest.
    """

    files: Sequence[OutputFile]
    counts: Mapping[str, Any]
    decisions: Mapping[str, Any]
    external_inputs: Sequence[Mapping[str, Any]] = ()
    labels: Sequence[OutputFile] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    page: Callable[[StagingDir, Manifest], OutputFile] | None = None


BuildFunction = Callable[[StagingDir], BuildResult]
