"""From a row of a hub file to what became of it in a snapshot and in the splits made from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.megatron_split import REJECTS, SPLIT_STAGE
from pipeline_assets.corpus.sampling.split import split_rule
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.text_selection import selected_shards
from pipeline_assets.corpus.trace.missing_rows import dropped_by, reason_of, why_not_read
from pipeline_assets.corpus.trace.origin import file_of
from pipeline_assets.corpus.trace.snapshot_rows import DocumentLine, line_of_source, rejects_of
from pipeline_assets.corpus.trace.source_row import AnyRow, listed_file
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


def snapshot_fates(manifests: Mapping[Path, Manifest], source: AnyRow, root: Path) -> Iterator[RowFate]:
    """What became of a source row in each snapshot that lists its file.

    Args:
        manifests: all that is sealed below the data root, by folder.
    Raises:
        InputError: an artifact is damaged.
    """
    for folder, manifest in manifests.items():
        if manifest.identity.stage.name == SNAPSHOT_STAGE.name:
            path = file_of(manifest, source, root)
            if path is not None:
                yield _row_fate(open_artifact(folder), path, source, manifests)


def _row_fate(snapshot: Artifact, path: str, source: AnyRow, manifests: Mapping[Path, Manifest]) -> RowFate:
    digest = snapshot.manifest.digest
    unread = why_not_read(listed_file(snapshot, source.file), source.row)
    if unread is not None:
        return RowFate(snapshot.folder, digest, "not_read", unread)
    found = line_of_source(snapshot, path, source.row)
    if found is not None:
        line, _ = found
        splits = tuple(_split_fates(line, digest, manifests))
        return RowFate(snapshot.folder, digest, "document", "", line.doc_id, line.shard, line.row, splits)
    for reject in rejects_of(snapshot.path(REJECTS_FILE), path):
        if reject.row == source.row:
            return RowFate(snapshot.folder, digest, "rejected", reason_of(reject))
    return RowFate(snapshot.folder, digest, "dropped", dropped_by(snapshot))


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
            return SplitFate(split.folder, "rejected", reason_of(reject))
    number = sequence_of_line(split, line.shard, line.row)
    if number is None:
        budget = identity.decisions["token_budget"]
        return SplitFate(split.folder, "over_budget", f"it lies behind the cut at {budget:,} tokens")
    dataset = token_file(split)
    first = int(dataset.pointers[number]) // dataset.tokens.itemsize
    last = first + int(dataset.lengths[number]) - 1
    return SplitFate(split.folder, "in_split", "", number, first, last)
