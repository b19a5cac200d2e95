"""What filters dropped: a line for each document, in a file of the filtered artifact. To read it compiles nothing."""

from collections.abc import Iterator

import msgspec

from pipeline_assets.corpus.filters.column_rules import Measurement, Value
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import StageVersion

FILTER_STAGE = StageVersion("filter", 2)
DROPPED_FILE = f"dropped{SUFFIX}"


class DroppedLine(msgspec.Struct, frozen=True):
    """A document that a filter dropped: which, why, what was measured and beyond which threshold (null where there is
    none), and its place in the corpus that was filtered.
    """

    doc_id: str
    reason: str
    value: Value
    threshold: Value
    shard: str
    row: int

    def __str__(self) -> str:
        return str(Measurement(self.reason, self.value, self.threshold, is_failed=True))


_decoder = msgspec.json.Decoder(DroppedLine)


def read_dropped(filtered: Artifact) -> Iterator[DroppedLine]:
    """What was dropped, in the order of the corpus."""
    yield from read_structs(filtered.path(DROPPED_FILE), _decoder)


def dropped_line(filtered: Artifact, doc_id: str) -> DroppedLine | None:
    """What a filtered corpus says of a document that it dropped; None if it dropped no such one."""
    return next((line for line in read_dropped(filtered) if line.doc_id == doc_id), None)
