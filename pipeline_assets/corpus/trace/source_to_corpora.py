"""From a row of a source, of a hub or of this machine, to what became of it in normalised corpora and in what was
filtered of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.filters.filter_corpus import FILTER_STAGE, dropped_line
from pipeline_assets.corpus.normalize.converted import NORMALIZE_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import place_of
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.trace.missing_rows import dropped_by, reason_of, why_not_read
from pipeline_assets.corpus.trace.origin import file_of
from pipeline_assets.corpus.trace.snapshot_rows import DocumentLine, line_of_doc_id, line_of_source, rejects_of
from pipeline_assets.corpus.trace.source_row import AnyRow, SourceRow, listed_file

CorpusOutcome = Literal["document", "merged", "rejected", "dropped", "not_read", "no_row"]
FilterOutcome = Literal["kept", "dropped", "rejected"]


@dataclass(frozen=True)
class FilterFate:
    """What became of a document in one filtered corpus; where it lies in it if it was kept."""

    corpus: Path
    outcome: FilterOutcome
    detail: str = ""
    shard: str | None = None
    shard_row: int | None = None


@dataclass(frozen=True)
class CorpusFate:
    """What became of a source row in one normalised corpus.

    Attributes:
        outcome: `merged` where it is an answer in the document of its question; `no_row` where nothing begins there.
        doc_id, shard, shard_row: where it became a document, or a part of one.
        filtered: what of the corpus was filtered, by folder.
    """

    corpus: Path
    corpus_digest: str
    outcome: CorpusOutcome
    detail: str = ""
    doc_id: str | None = None
    shard: str | None = None
    shard_row: int | None = None
    filtered: tuple[FilterFate, ...] = ()


def corpus_fates(manifests: Mapping[Path, Manifest], source: AnyRow, root: Path) -> Iterator[CorpusFate]:
    """What became of a source row in each normalised corpus whose raw source lists its file.

    Args:
        manifests: all that is sealed below the data root, by folder.
    Raises:
        InputError: an artifact is damaged, or two of them contradict each other.
    """
    for folder, manifest in manifests.items():
        if manifest.identity.stage.name != NORMALIZE_STAGE.name:
            continue
        place = place_of(manifests, manifest.identity.inputs[0]["digest"], manifest.name)
        file = file_of(manifests[place], source, root) if place is not None else None
        if place is not None and file is not None:
            yield _corpus_fate(open_artifact(folder), open_artifact(place), file, source, manifests)


def _corpus_fate(
    corpus: Artifact, raw: Artifact, file: str, source: AnyRow, manifests: Mapping[Path, Manifest]
) -> CorpusFate:
    digest = corpus.manifest.digest
    if isinstance(source, SourceRow):
        unread = why_not_read(listed_file(raw, source.file), source.row)
        if unread is not None:
            return CorpusFate(corpus.folder, digest, "not_read", unread)
    found = line_of_source(corpus, file, source.row)
    if found is not None:
        line, is_part = found
        filtered = tuple(_filter_fates(line, corpus, manifests))
        outcome: CorpusOutcome = "merged" if is_part else "document"
        return CorpusFate(corpus.folder, digest, outcome, "", line.doc_id, line.shard, line.row, filtered)
    for reject in rejects_of(corpus.path(REJECTS_FILE), file):
        if reject.row == source.row:
            return CorpusFate(corpus.folder, digest, "rejected", reason_of(reject))
    ledger = corpus.manifest.identity.counts["ledger"]
    if isinstance(source, SourceRow) or (ledger["dropped"] and source.row < ledger["in"]):
        return CorpusFate(corpus.folder, digest, "dropped", dropped_by(corpus))
    if ledger["dropped"]:
        return CorpusFate(corpus.folder, digest, "no_row", f"the file has rows 0 to {ledger['in'] - 1:,}")
    place = "a row is named by its `source_row`: in files of lines the bytes before it"
    return CorpusFate(corpus.folder, digest, "no_row", f"none begins there; {place}")


def _filter_fates(line: DocumentLine, corpus: Artifact, manifests: Mapping[Path, Manifest]) -> Iterator[FilterFate]:
    for folder, manifest in manifests.items():
        if manifest.identity.stage.name != FILTER_STAGE.name:
            continue
        wanted = manifest.identity.inputs[0]["digest"]
        if wanted == corpus.manifest.digest and place_of(manifests, wanted, manifest.name) == corpus.folder:
            yield _filter_fate(line, open_artifact(folder))


def _filter_fate(line: DocumentLine, filtered: Artifact) -> FilterFate:
    dropped = dropped_line(filtered, line.doc_id)
    if dropped is not None:
        return FilterFate(filtered.folder, "dropped", str(dropped))
    for reject in rejects_of(filtered.path(REJECTS_FILE), line.shard):
        if reject.row == line.row:
            return FilterFate(filtered.folder, "rejected", reason_of(reject))
    kept = line_of_doc_id(filtered, line.doc_id, [line.shard])
    if kept is None:
        what = f"it neither holds document {line.doc_id!r} nor says why not"
        raise InputError(what, filtered.folder, "run `corpusmill verify` on it, then rebuild it")
    return FilterFate(filtered.folder, "kept", "", kept.shard, kept.row)
