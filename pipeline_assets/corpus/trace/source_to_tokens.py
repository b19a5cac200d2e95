"""From a row of a hub file to what became of it in every snapshot and in every split below a data root."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE
from pipeline_assets.corpus.megatron_split import REJECTS, SPLIT_STAGE
from pipeline_assets.corpus.sampling.split import split_rule
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import sealed_manifests
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.text_selection import selected_shards
from pipeline_assets.corpus.trace.snapshot_rows import DocumentLine, documents_of, rejects_of
from pipeline_assets.corpus.trace.source_row import SourceRow, hub_file
from pipeline_assets.corpus.trace.split_sequences import sequence_of_line, token_file

SplitOutcome = Literal["in_split", "other_split", "over_budget", "not_selected", "rejected", "unknown"]
RowOutcome = Literal["document", "rejected", "dropped", "not_read"]


@dataclass(frozen=True)
class SplitFate:
    """What became of a document in one split; sequence and token range (the last one included) where it is in it.

    `unknown` is the outcome where the split's own text manifest is gone, so that nobody can say what it read.
    """

    split: Path
    outcome: SplitOutcome
    detail: str = ""
    sequence: int | None = None
    first_token: int | None = None
    last_token: int | None = None


@dataclass(frozen=True)
class RowFate:
    """What became of a source row in one snapshot; doc_id, shard and splits where it became a document.

    Attributes:
        splits: every split below the root that was made from the snapshot, by folder.
    """

    snapshot: Path
    snapshot_digest: str
    outcome: RowOutcome
    detail: str = ""
    doc_id: str | None = None
    shard: str | None = None
    shard_row: int | None = None
    splits: tuple[SplitFate, ...] = ()


def trace_source(root: Path, source: SourceRow) -> list[RowFate]:
    """What became of a source row, in every snapshot below the data root that lists its file at that commit.

    Raises:
        InputError: no snapshot does, or an artifact is damaged.
    """
    manifests, unreadable = sealed_manifests(root)
    if unreadable:
        raise unreadable[0]
    snapshots = {
        folder: manifest
        for folder, manifest in manifests.items()
        if manifest.identity.stage.name == SNAPSHOT_STAGE.name
    }
    fates = [
        _row_fate(open_artifact(folder), source, manifests)
        for folder, manifest in snapshots.items()
        if any(entry["name"] == source.file for entry in manifest.identity.inputs)
    ]
    if not fates:
        known = sorted({str(entry["name"]).split(":")[0] for m in snapshots.values() for entry in m.identity.inputs})
        fix = f"the snapshots are of {', '.join(known)}" if known else "give the data root of a build with --data"
        raise InputError(f"no snapshot below {root} lists this file", source.file, fix)
    return fates


def _row_fate(snapshot: Artifact, source: SourceRow, manifests: Mapping[Path, Manifest]) -> RowFate:
    digest = snapshot.manifest.digest
    row_groups = hub_file(snapshot, source).get("row_groups")
    if row_groups is None:
        return RowFate(snapshot.folder, digest, "not_read", "no row group of the file was drawn")
    ranges = rows_read(row_groups)
    if not any(source.row in rows for rows in ranges):
        read = ", ".join(f"{rows.start:,} to {rows.stop - 1:,}" for rows in ranges) or "none"
        return RowFate(snapshot.folder, digest, "not_read", f"rows read of the file: {read}")
    for line, row in documents_of(snapshot, source.path):
        if row == source.row:
            splits = tuple(_split_fates(line, digest, manifests))
            return RowFate(snapshot.folder, digest, "document", "", line.doc_id, line.shard, line.row, splits)
    for reject in rejects_of(snapshot.path(REJECTS_FILE), source.path):
        if reject.row == source.row:
            return RowFate(snapshot.folder, digest, "rejected", _reason(reject))
    dropped = snapshot.manifest.identity.counts["ledger"]["dropped"]
    rules = " or ".join(f"`{rule}`" for rule in dropped) or "a rule that the ledger doesn't name"
    return RowFate(snapshot.folder, digest, "dropped", f"by {rules}")


def rows_read(row_groups: Sequence[Mapping[str, int]]) -> list[range]:
    """Rows of a hub file that were read, sorted; neighbouring row groups make one range, empty ones none.

    Args:
        row_groups: those of the manifest, any order: first_row, and how many rows were read from there on.
    """
    ranges: list[range] = []
    for group in sorted(row_groups, key=lambda group: group["first_row"]):
        start, stop = group["first_row"], group["first_row"] + group["rows"]
        if ranges and ranges[-1].stop == start:
            ranges[-1] = range(ranges[-1].start, stop)
        elif group["rows"]:
            ranges.append(range(start, stop))
    return ranges


def _split_fates(line: DocumentLine, snapshot_digest: str, manifests: Mapping[Path, Manifest]) -> Iterator[SplitFate]:
    by_digest = {manifest.digest: manifest for manifest in manifests.values()}
    for folder, manifest in manifests.items():
        if manifest.identity.stage.name != SPLIT_STAGE.name:
            continue
        wanted = manifest.identity.inputs[0]["digest"]
        selection = by_digest.get(wanted)
        if selection is None:
            yield SplitFate(folder, "unknown", f"its text manifest {wanted} is gone")
        elif selection.identity.inputs[0]["digest"] == snapshot_digest:
            yield _split_fate(line, open_artifact(folder), selection)


def _split_fate(line: DocumentLine, split: Artifact, selection: Manifest) -> SplitFate:
    identity = split.manifest.identity
    if line.shard not in {shard.path for shard in selected_shards(selection)}:
        return SplitFate(split.folder, "not_selected", f"{selection.name} leaves out {line.shard}")
    belongs_to = split_rule(identity.recipe["valid_fraction"])(line.doc_id)
    if belongs_to != identity.recipe["split"]:
        return SplitFate(split.folder, "other_split", f"it belongs to {belongs_to}")
    for reject in rejects_of(split.path(REJECTS), line.shard):
        if reject.row == line.row:
            return SplitFate(split.folder, "rejected", _reason(reject))
    number = sequence_of_line(split, line.shard, line.row)
    if number is None:
        budget = identity.decisions["token_budget"]
        return SplitFate(split.folder, "over_budget", f"it lies behind the cut at {budget:,} tokens")
    dataset = token_file(split)
    first = int(dataset.pointers[number]) // dataset.tokens.itemsize
    last = first + int(dataset.lengths[number]) - 1
    return SplitFate(split.folder, "in_split", "", number, first, last)


def _reason(reject: Reject) -> str:
    return reject.reason + (f" ({reject.detail})" if reject.detail else "")
