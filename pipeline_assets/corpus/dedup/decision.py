"""What deduplication decided of a document, as it is written down and read again."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.own_files import REBUILD, OwnFile

DEDUP_STAGE, SIGNATURES_STAGE = StageVersion("dedup", 3), StageVersion("signatures", 2)
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
        seen_in: the signature store that `duplicate_of` stands in; None where it is one of this corpus.
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
    seen_in: str | None = None


_decoder = msgspec.json.Decoder(Decision)


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document of a group, and how its text begins; of one in a signature store no text is there."""

    doc_id: str
    source: str
    beginning: str
    seen_in: str | None = None


class Group(msgspec.Struct, frozen=True):
    """One of the largest groups: what stays, how many documents went for it, the first of those."""

    gone: int
    kept: Sample
    samples: tuple[Sample, ...]


_GROUPS_FILE = OwnFile("list of groups", 256 << 20, REBUILD, tuple[Group, ...])


def read_groups(deduplicated: Artifact) -> tuple[Group, ...]:
    """The largest groups, the largest first."""
    return _GROUPS_FILE.read(deduplicated.path(GROUPS_FILE))


def read_decisions(deduplicated: Artifact) -> Iterator[Decision]:
    """A decision for each document, in the order of the corpus."""
    for block in read_line_blocks(deduplicated.path(DECISIONS_FILE)):
        yield from _decoder.decode_lines(block)


def compared_inputs(deduplicated: Artifact) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the sources of a deduplicated corpus, and of the signature stores of what was seen before; by name."""
    sources, stores = dict[str, str](), dict[str, str]()
    for entry in deduplicated.manifest.identity.upstream:
        _, kind, name = entry["name"].split("/", 2)
        (stores if kind == SIGNATURES_STAGE.name else sources)[name] = entry["digest"]
    return sources, stores
