"""What deduplication decided of a document, as it is written down and read again."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import StageVersion

DEDUP_STAGE = StageVersion("dedup", 1)
RULE = f"{DEDUP_STAGE.name}/{DEDUP_STAGE.version}"
DECISIONS_FILE, EDGES_FILE, GROUPS_FILE = f"decisions{SUFFIX}", "edges.parquet", "groups.json"
Outcome = Literal["kept", "exact_duplicate", "near_duplicate"]


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a document.

    Attributes:
        rule: name and version of the rule.
        shard, row: its place in its source.
        duplicate_of: the document that stays in its place, which is itself kept.
        similarity: Jaccard similarity of their sets of shingles; 1 for exact duplicates.
        containment: the share of its own shingles that the other one has.
        copy_of: the first document with the same normalised text, where that is another one.
    """

    doc_id: str
    source: str
    decision: Outcome
    rule: str
    shard: str
    row: int
    duplicate_of: str | None = None
    similarity: float | None = None
    containment: float | None = None
    copy_of: str | None = None


_decoder = msgspec.json.Decoder(Decision)


class Sample(msgspec.Struct, frozen=True):
    """A document of a group, and how its text begins."""

    doc_id: str
    source: str
    beginning: str


class Group(msgspec.Struct, frozen=True):
    """One of the largest groups: what stays, how many documents went for it, the first of those."""

    gone: int
    kept: Sample
    samples: tuple[Sample, ...]


def read_groups(deduplicated: Artifact) -> tuple[Group, ...]:
    """The largest groups, the largest first."""
    return msgspec.json.decode(deduplicated.path(GROUPS_FILE).read_bytes(), type=tuple[Group, ...])


def read_decisions(deduplicated: Artifact) -> Iterator[Decision]:
    """A decision for each document, in the order of the corpus."""
    for block in read_line_blocks(deduplicated.path(DECISIONS_FILE)):
        yield from _decoder.decode_lines(block)
