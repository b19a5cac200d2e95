"""Why a document is in or out: what became of one doc_id in every normalised and filtered source below a data root."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE, shard_rows
from pipeline_assets.corpus.filters.dropped import FILTER_STAGE, DroppedLine, read_dropped
from pipeline_assets.corpus.filters.judge import judge
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.normalize.converted import NORMALIZE_STAGE
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.lineage import sealed_manifests
from pipeline_assets.corpus.spine.rejects import Reject

Outcome = Literal["kept", "dropped", "rejected"]
_document_decoder = msgspec.json.Decoder(Document)
_reject_decoder = msgspec.json.Decoder(Reject)


@dataclass(frozen=True)
class FilterFate:
    """What a filtered source made of the document.

    Attributes:
        reason: why it was dropped, `few_words`; None where it is kept.
        measurements: all that the filters see in it, `words 12 < 50`.
        changes: what was removed or masked in it, `masked/email`.
    """

    folder: Path
    outcome: Outcome
    reason: str | None
    measurements: Sequence[str]
    changes: dict[str, int]


@dataclass(frozen=True)
class DocumentFate:
    """A document of the id in one normalised source.

    Attributes:
        shard, row: its line there.
        document: None for a row that was rejected because its id came before.
        rejects: rows of this id that were rejected.
        filtered: in every filtered source that was made of this one.
    """

    folder: Path
    shard: str
    row: int
    document: Document | None
    rejects: Sequence[Reject]
    filtered: Sequence[FilterFate]


def fates_of(root: Path, doc_id: str) -> Iterator[DocumentFate]:
    """Every place where the id is found below the data root.

    Raises:
        InputError: a source there is damaged.
    """
    manifests, _ = sealed_manifests(root)
    sources = {folder: manifest for folder, manifest in manifests.items() if _is_by(manifest.identity.stage.name)}
    for folder, manifest in sources.items():
        if manifest.identity.stage.name != NORMALIZE_STAGE.name:
            continue
        normalized = open_artifact(folder)
        rejects = list(_rejects_of(normalized, doc_id))
        found = next(_lines_of(normalized, doc_id), None)
        if found is None and not rejects:
            continue
        shard, row, document = found or ("", 0, None)
        filtered = [
            _filter_fate(open_artifact(place), doc_id, document)
            for place, other in sources.items()
            if document is not None
            and other.identity.stage.name == FILTER_STAGE.name
            and manifest.digest in {entry["digest"] for entry in other.identity.upstream}
        ]
        yield DocumentFate(folder, shard, row, document, rejects, filtered)


def _is_by(stage: str) -> bool:
    return stage in (NORMALIZE_STAGE.name, FILTER_STAGE.name)


def _lines_of(corpus: Artifact, doc_id: str) -> Iterator[tuple[str, int, Document]]:
    """(shard, row, document) of the id. A block that doesn't hold it is not decoded."""
    quoted = msgspec.json.encode(doc_id)
    for shard in shard_rows(corpus):
        row = 0
        for block in read_line_blocks(corpus.path(shard)):
            if quoted in block:
                for number, line in enumerate(block.splitlines(), row):
                    if quoted in line and (document := _document_decoder.decode(line)).doc_id == doc_id:
                        yield shard, number, document
            row += block.count(b"\n")


def _rejects_of(corpus: Artifact, doc_id: str) -> Iterator[Reject]:
    for block in read_line_blocks(corpus.path(REJECTS_FILE)):
        yield from (reject for reject in _reject_decoder.decode_lines(block) if reject.detail == doc_id)


def _filter_fate(filtered: Artifact, doc_id: str, document: Document) -> FilterFate:
    recipe = filtered.manifest.identity.recipe
    verdict = judge(document.text, document.meta, FilterRecipe.from_content(recipe["filters"]))
    measurements = [str(measurement) for measurement in verdict.measurements]
    dropped = _dropped_line(filtered, doc_id)
    if dropped is not None:
        if dropped.reason not in (measurement.reason for measurement in verdict.measurements):
            measurements = [f"{dropped.reason} {dropped.value}", *measurements]
        return FilterFate(filtered.folder, "dropped", dropped.reason, measurements, {})
    if next(_lines_of(filtered, doc_id), None) is None:
        return FilterFate(filtered.folder, "rejected", None, measurements, {})
    return FilterFate(filtered.folder, "kept", None, measurements, dict(verdict.changes))


def _dropped_line(filtered: Artifact, doc_id: str) -> DroppedLine | None:
    return next((line for line in read_dropped(filtered) if line.doc_id == doc_id), None)
