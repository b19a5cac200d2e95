"""Layout of a hub dataset."""

from collections.abc import Iterator, Sequence

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE
from pipeline_assets.corpus.readers.hub_configs import CARD
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import OutputFile, StagingDir

HF_LAYOUT_STAGE = StageVersion("nemotron_hf_layout", 2)
_SUMS = ("documents", "tokens", "completion_tokens", "tool_calls")


def lay_out(building: StagingDir, splits: Sequence[Artifact], card: str | None) -> BuildResult:
    """The folder above.

    Args:
        splits: their normalised rows.
        card: what README.md is to say; None for no such file.
    """
    files = [file for split in splits for file in _linked_files(split, building)]
    labels = [] if card is None else [write_text(building, CARD, card)]  # it has sizes as stored, which are no content
    of_splits = [split.manifest.identity.counts for split in splits]
    counts = {name: sum(counts[name] for counts in of_splits) for name in _SUMS}
    return BuildResult(files, {"splits": len(splits), **counts}, {}, labels=labels)


def _linked_files(split: Artifact, building: StagingDir) -> Iterator[OutputFile]:
    stored_at = {file.path: file for file in split.manifest.storage}
    for content in split.manifest.identity.files:
        if content.path not in (REJECTS_FILE, DROPPED_FILE):
            stored = stored_at[content.path]
            durable.link(split.path(content.path), building.path(content.path))
            yield OutputFile(content.path, content.rows, stored.bytes, stored.sha256, content.content_sha256)
