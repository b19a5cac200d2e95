"""From a Document of a corpus to the rows of the files that it came from."""

from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.decontamination.evidence import DECONTAMINATION_STAGE, evidence_on
from pipeline_assets.corpus.filters.filter_corpus import FILTER_STAGE, dropped_line
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.trace.origin import listing_of
from pipeline_assets.corpus.trace.snapshot_rows import (
    line_of_doc_id,
    line_of_row,
    origin_in,
    read_document,
    rows_of,
)
from pipeline_assets.corpus.trace.source_row import AnyRow

_BEGINNING = 160  # characters


@dataclass(frozen=True)
class DocumentTrace:
    """A Document back to its source.

    Attributes:
        shard, shard_row: its line, from 0, of a file in the corpus' folder.
        source: the row that it came from; of a thread, that of its question.
        answers: rows of its answers, in the order of its text; empty where it is no thread.
        source_digest: of the file of all these rows, as it was listed when it was read.
        license_evidence: what the tag rests on: `recipe`, `row: license`, `date: 2018-05-02`.
        beginning: of its text.
    """

    corpus: Path
    corpus_digest: str
    doc_id: str
    shard: str
    shard_row: int
    source: AnyRow
    answers: tuple[AnyRow, ...]
    source_digest: str
    license_tag: str
    license_evidence: str
    beginning: str


def trace_document(corpus: Artifact, root: Path, doc_id: str | None, row: int | None) -> DocumentTrace:
    """Where a Document came from.

    Args:
        root: the data root below which lies what the corpus was made from.
        doc_id, row: the one of them that is not None says which; rows are counted over shards in manifest order.
    Raises:
        UsageError: there is no such document.
        InputError: what the corpus was made from is gone, or a file damaged.
    """
    if doc_id is None:
        shard, shard_row = line_of_row(corpus, row or 0)
    else:
        line = line_of_doc_id(corpus, doc_id)
        if line is None:
            raise _not_there(corpus, doc_id)
        shard, shard_row = line.shard, line.row
    return trace_line(corpus, root, shard, shard_row)


def trace_line(corpus: Artifact, root: Path, shard: str, shard_row: int) -> DocumentTrace:
    """Where the Document in a line of a shard came from. Errors as `trace_document`."""
    document = read_document(corpus.path(shard), shard_row)
    listing = listing_of(root, corpus, document.source)
    origin = origin_in(document, listing.corpus)
    source, *answers = (listing.row(origin.source_file, row) for row in rows_of(origin))
    return DocumentTrace(
        corpus=corpus.folder,
        corpus_digest=corpus.manifest.digest,
        doc_id=document.doc_id,
        shard=shard,
        shard_row=shard_row,
        source=source,
        answers=tuple(answers),
        source_digest=listing.entry(origin.source_file)["digest"],
        license_tag=document.license_tag,
        license_evidence=str(document.meta.get("license_evidence", "recipe")),
        beginning=document.text[:_BEGINNING],
    )


def _not_there(corpus: Artifact, doc_id: str) -> UsageError:
    fix = "`corpusmill trace --source` tells what became of a source row"
    if corpus.manifest.identity.stage.name == FILTER_STAGE.name:
        line = dropped_line(corpus, doc_id)
        if line is not None:
            what = f"document {doc_id!r} was dropped here: {line}"
            return UsageError(what, corpus.folder, "trace it in the corpus that was filtered")
    if corpus.manifest.identity.stage.name == DECONTAMINATION_STAGE.name:
        evidence = evidence_on(corpus, doc_id)
        if evidence is not None:
            what = f"document {doc_id!r} was dropped here: it holds {evidence.evaluation_set} {evidence.item}"
            return UsageError(what, corpus.folder, "trace it in the corpus that was decontaminated")
    return UsageError(f"no document has doc_id {doc_id!r}", corpus.folder, fix)
