"""The stage `nemotron_hf_layout`: the normalised rows of a dataset's splits in one folder, as a hub has them.

    data/<split>-00000-of-0000N.parquet   of every split
    <split>__tools_catalog.json
    README.md                             the dataset's card, if asked for

Nothing is copied: the files are those of the splits under a second name. Their rejects stay where they are.
"""

from collections.abc import Iterator, Sequence

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.readers.hub_configs import CARD
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building, OutputFile
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.target import Content

HF_LAYOUT_STAGE = StageVersion("nemotron_hf_layout", 1)
_SUMS = ("documents", "tokens", "completion_tokens", "tool_calls")


def lay_out(building: Building, splits: Sequence[Artifact], card: str | None) -> Content:
    """The folder above.

    Args:
        splits: their normalised rows.
        card: what README.md is to say; None for no such file.
    """
    files = [file for split in splits for file in _linked(split, building)]
    labels = [] if card is None else [write_text(building, CARD, card)]  # it has sizes as stored, which are no content
    of_splits = [split.manifest.identity.counts for split in splits]
    counts = {name: sum(counts[name] for counts in of_splits) for name in _SUMS}
    return Content(files, {"splits": len(splits), **counts}, {}, labels=labels)


def _linked(split: Artifact, building: Building) -> Iterator[OutputFile]:
    stored_at = {file.path: file for file in split.manifest.storage}
    for content in split.manifest.identity.files:
        if content.path != REJECTS_FILE:
            stored = stored_at[content.path]
            durable.link(split.path(content.path), building.path(content.path))
            yield OutputFile(content.path, content.rows, stored.bytes, stored.sha256, content.content_sha256)
