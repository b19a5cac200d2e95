"""Why a document is in or out: what became of one doc_id in every source, and in every deduplicated or decontaminated
corpus and every packed set, below a data root.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.decontamination.evidence import DECONTAMINATION_STAGE, ContaminatedLine, evidence_on
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, Decision, read_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE
from pipeline_assets.corpus.filters.dropped import FILTER_STAGE, dropped_line
from pipeline_assets.corpus.filters.judge import judge
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.normalize.converted import NORMALIZE_STAGE
from pipeline_assets.corpus.packing.recipe import PACK_STAGE
from pipeline_assets.corpus.packing.summary import DrawnLine, drawn_lines
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.lineage import sealed_manifests
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.trace.snapshot_rows import line_of_doc_id, read_document, read_rejects, rejects_of

Outcome = Literal["kept", "dropped", "rejected"]


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
class PackedFate:
    """What a packed set made of the document.

    Attributes:
        draws: one for each epoch that it is in.
        reject: why it was not encoded; None where it was, though it may not be drawn.
    """

    folder: Path
    draws: Sequence[DrawnLine]
    reject: Reject | None


@dataclass(frozen=True)
class DocumentFate:
    """A document of the id in one normalised source.

    Attributes:
        shard, row: its line there.
        document: None for a row that was rejected because its id came before.
        rejects: rows of this id that were rejected.
        filtered: in every filtered source that was made of this one.
        deduplicated: folder and decision of every deduplicated corpus that was made of this one or of those.
        decontaminated: folder of every decontaminated corpus that was made of any of these and had the document, and
            which items it holds; None where it holds none.
        packed: in every packed set that was made of any of these and could draw it.
    """

    folder: Path
    shard: str
    row: int
    document: Document | None
    rejects: Sequence[Reject]
    filtered: Sequence[FilterFate]
    deduplicated: Sequence[tuple[Path, Decision]]
    decontaminated: Sequence[tuple[Path, ContaminatedLine | None]]
    packed: Sequence[PackedFate]


def fates_of(root: Path, doc_id: str) -> Iterator[DocumentFate]:
    """Every place where the id is found below the data root.

    Raises:
        InputError: a source there is damaged.
    """
    manifests, _ = sealed_manifests(root)
    for folder, manifest in manifests.items():
        if manifest.identity.stage.name != NORMALIZE_STAGE.name:
            continue
        normalized = open_artifact(folder)
        rejects = list(_rejects_of(normalized, doc_id))
        found = line_of_doc_id(normalized, doc_id)
        if found is None and not rejects:
            continue
        shard, row = (found.shard, found.row) if found else ("", 0)
        document = read_document(normalized.path(shard), row) if found else None
        if document is None:
            yield DocumentFate(folder, shard, row, None, rejects, (), (), (), ())
            continue
        of_this = _made_of({manifest.digest}, FILTER_STAGE, manifests)
        filtered = [_filter_fate(open_artifact(place), doc_id, document) for place in of_this]
        sources = {manifest.digest, *(other.digest for other in of_this.values())}
        deduplicated = _made_of(sources, DEDUP_STAGE, manifests)
        decisions = [
            (place, decision)
            for place in deduplicated
            for decision in read_decisions(open_artifact(place))
            if decision.doc_id == doc_id
        ]
        sources |= {one.digest for one in deduplicated.values()}
        corpora = _made_of(sources, DECONTAMINATION_STAGE, manifests)
        evidence = {place: evidence_on(open_artifact(place), doc_id) for place in corpora}
        had_it = [
            (place, line)
            for place, line in evidence.items()
            if line is not None or line_of_doc_id(open_artifact(place), doc_id) is not None
        ]
        sources |= {one.digest for one in corpora.values()}
        holding = {place: one for place, one in manifests.items() if one.digest in sources}
        packed = [
            fate
            for place in _made_of(sources, PACK_STAGE, manifests)
            for fate in _packed_fates(open_artifact(place), document, holding)
        ]
        yield DocumentFate(folder, shard, row, document, rejects, filtered, decisions, had_it, packed)


def _made_of(digests: Collection[str], stage: StageVersion, manifests: Mapping[Path, Manifest]) -> dict[Path, Manifest]:
    """The artifacts of a stage that were made of one of these."""
    return {
        place: manifest
        for place, manifest in manifests.items()
        if manifest.identity.stage.name == stage.name
        and any(entry["digest"] in digests for entry in manifest.identity.upstream)
    }


def _packed_fates(packed: Artifact, document: Document, corpora: Mapping[Path, Manifest]) -> Iterator[PackedFate]:
    """One where the set was made of a corpus that has the document, else none."""
    draws = [line for line in drawn_lines(packed, [document.doc_id]) if line.source == document.source]
    if draws:
        yield PackedFate(packed.folder, draws, None)
        return
    upstream = {entry["digest"] for entry in packed.manifest.identity.upstream}
    for place in (place for place, manifest in corpora.items() if manifest.digest in upstream):
        line = line_of_doc_id(open_artifact(place), document.doc_id)
        if line is not None:
            rejects = rejects_of(packed.path(REJECTS_FILE), f"{document.source}/{line.shard}")
            reject = next((one for one in rejects if one.row == line.row), None)
            yield PackedFate(packed.folder, (), reject)
            return


def _rejects_of(corpus: Artifact, doc_id: str) -> Iterator[Reject]:
    return (reject for reject in read_rejects(corpus.path(REJECTS_FILE)) if reject.detail == doc_id)


def _filter_fate(filtered: Artifact, doc_id: str, document: Document) -> FilterFate:
    recipe = filtered.manifest.identity.recipe
    verdict = judge(document.text, document.meta, FilterRecipe.from_content(recipe["filters"]))
    measurements = [str(measurement) for measurement in verdict.measurements]
    dropped = dropped_line(filtered, doc_id)
    if dropped is not None:
        if dropped.reason not in (measurement.reason for measurement in verdict.measurements):
            measurements = [f"{dropped.reason} {dropped.value}", *measurements]
        return FilterFate(filtered.folder, "dropped", dropped.reason, measurements, {})
    if line_of_doc_id(filtered, doc_id) is None:
        return FilterFate(filtered.folder, "rejected", None, measurements, {})
    return FilterFate(filtered.folder, "kept", None, measurements, dict(verdict.changes))
