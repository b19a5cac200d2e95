"""Dropped and rejected rows of an artifact of any kind, with their reasons."""

from collections.abc import Iterator

import msgspec

from pipeline_assets.corpus.decontamination.recipe import CONTAMINATED_FILE, read_contaminated
from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, read_decisions
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.filters.verdict import DROPPED_FILE, FILTER_STAGE, read_dropped
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.rejects import Reject


class DroppedRow(msgspec.Struct, frozen=True):
    """Input row that an artifact dropped or rejected.

    Attributes:
        detail: For a dropped document: the measurement, kept duplicate or evaluation item. Otherwise `Reject.detail`.
        file, row: Position of the row: in a source file if the artifact is a conversion, otherwise in a shard of the
            upstream corpus. For a reject of a deduplication, `file` is `SOURCE/SHARD`.
        doc_id: Id of a dropped document; empty for a reject, and for a row that a conversion dropped.
        source: Source of a dropped document in a corpus of several sources; otherwise empty.
    """

    reason: str
    detail: str
    file: str
    row: int
    doc_id: str = ""
    source: str = ""


def dropped_rows(artifact: Artifact) -> Iterator[DroppedRow]:
    """Yield the dropped rows that an artifact lists, then the rejected rows."""
    files = {file.path for file in artifact.manifest.identity.files}
    is_filtered = artifact.manifest.identity.stage.name == FILTER_STAGE.name
    for dropped in read_dropped(artifact) if is_filtered else ():
        yield DroppedRow(dropped.reason, str(dropped), dropped.shard, dropped.row, dropped.doc_id)
    for entry in read_decisions(artifact) if DECISIONS_FILE in files else ():
        if entry.decision != "kept":
            seen = f", seen before in {entry.seen_in}" if entry.seen_in else ""
            detail = f"of {entry.duplicate_of}{seen}, similarity {entry.similarity or 1:.4f}"
            yield DroppedRow(entry.decision, detail, entry.shard, entry.row, entry.doc_id, entry.source)
    for line in read_contaminated(artifact) if CONTAMINATED_FILE in files else ():
        if line.action == "dropped":
            yield DroppedRow(line.reason, str(line), line.shard, line.row, line.doc_id, line.source)
    for name in (() if is_filtered else (DROPPED_FILE,)) + (REJECTS_FILE,):
        for reject in read_structs(artifact.path(name), Reject) if name in files else ():
            yield DroppedRow(reject.reason, reject.detail, reject.file, reject.row)
