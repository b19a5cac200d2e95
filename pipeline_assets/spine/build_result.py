"""What a build hands over to be sealed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import OutputFile, StagingDir


@dataclass(frozen=True)
class BuildResult:
    """What a build made, before it is sealed.

    Attributes:
        files: with their content hashes, in manifest order.
        counts, decisions: as in the manifest's identity.
        external_inputs: Input files outside the data root, on a hub or local, as in the manifest's identity.
        labels: files that carry a time or a path; not part of the digest.
        provenance: facts of the build that change no byte.
        page: writes one more label, which shows the content and what the manifest says of it.
    """

    files: Sequence[OutputFile]
    counts: Mapping[str, Any]
    decisions: Mapping[str, Any]
    external_inputs: Sequence[Mapping[str, Any]] = ()
    labels: Sequence[OutputFile] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    page: Callable[[StagingDir, Manifest], OutputFile] | None = None


Make = Callable[[StagingDir], BuildResult]
