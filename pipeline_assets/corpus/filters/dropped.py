"""What filters dropped: a line for each document, in a file of the filtered artifact."""

from collections.abc import Iterator

import msgspec

from pipeline_assets.corpus.filters.verdict import Value
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import StageVersion

FILTER_STAGE = StageVersion("filter", 1)
DROPPED_FILE = f"dropped{SUFFIX}"


class DroppedLine(msgspec.Struct, frozen=True):
    """A document that a filter dropped: which, why, what was measured and beyond which threshold, and its place in the
    corpus that was filtered.
    """

    doc_id: str
    reason: str
    value: Value
    threshold: Value
    shard: str
    row: int


_decoder = msgspec.json.Decoder(DroppedLine)


def read_dropped(filtered: Artifact) -> Iterator[DroppedLine]:
    """What was dropped, in the order of the corpus."""
    for block in read_line_blocks(filtered.path(DROPPED_FILE)):
        yield from _decoder.decode_lines(block)
