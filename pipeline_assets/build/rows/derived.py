"""Documents of filtered, deduplicated and decontaminated corpora."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from pipeline_assets.build.rows.documents import OTHER_PROPERTIES, DocumentRows
from pipeline_assets.build.rows.row_values import DisplayNames, Fate, Part, reject_summary
from pipeline_assets.corpus.decontamination import recipe
from pipeline_assets.corpus.dedup.decision import Decision, read_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters.pinned_files import FilterFiles
from pipeline_assets.corpus.filters.recipe import WITHOUT_URL, FilterRecipe, resolve_filters
from pipeline_assets.corpus.filters.verdict import evaluate, find_dropped_document
from pipeline_assets.spine.errors import InputError

_Entry = TypeVar("_Entry", Decision, recipe.ContaminatedLine)


def _find_entry(entries: Iterable[_Entry], part: Part) -> _Entry | None:
    """Return the first entry about the upstream document `part`; None if missing."""
    place = part.id, part.source, part.shard, part.shard_row
    # Sources and corpora may repeat ids, so more than the id is compared.
    return next((entry for entry in entries if (entry.doc_id, entry.source, entry.shard, entry.row) == place), None)


class DerivedRows(DocumentRows):
    """Documents that a stage kept from its upstream corpus, some with changed texts."""

    def _kept_fate(
        self,
        part: Part,
        lines: Sequence[str],
        facts: Mapping[str, Any],
        shards: Sequence[str] | None = None,
        outcome: str = "kept",
    ) -> Fate | None:
        """Return a part's fate; None if its document is not in `shards` (default: all)."""
        place = self.find_place({"doc_id": part.id, "source": part.source}, shards)
        return None if place is None else self.fate_at(*place, lines, facts, outcome)


class FilteredRows(DerivedRows):
    """Documents that the filters keep."""

    display_names = DisplayNames("filtered", "filtered", other_properties=OTHER_PROPERTIES)

    @cached_property
    def _recipe(self) -> FilterRecipe:
        manifest, root = self.artifact.manifest, self.lineage.root
        return resolve_filters(manifest.identity.recipe["filters"], FilterFiles.from_manifest(manifest, root), root)

    def fate(self, part: Part) -> Fate | None:
        document: Document = part.record
        reasons, changes, ran = set[str](), dict[str, int](), list[str]()
        try:
            verdict = evaluate(document.text, document.meta.columns(), self._recipe)
            measurements = [str(measurement) for measurement in verdict.measurements]
            reasons = {measurement.reason for measurement in verdict.measurements}
            changes = {name: count for name, count in verdict.changes.items() if name != WITHOUT_URL}
            if (step := self._recipe.python) is not None:
                ran = [f"  python: kept by {step.function} in {step.file}"]
        except InputError as error:  # a list has changed since, or a package is missing
            measurements = [f"not measured: {error}"]
        facts: dict[str, Any] = {"reason": None, "measurements": measurements, "changes": changes}
        dropped = find_dropped_document(self.artifact, part.id)
        if dropped is not None:
            if dropped.reason not in reasons:
                measurements.insert(0, str(dropped))
            lines = [f"dropped for {dropped.reason}", *(f"  {line}" for line in measurements)]
            facts |= {"reason": dropped.reason, "changes": {}}
            return Fate(self.artifact, "dropped", str(dropped), facts=facts, lines=lines)
        reject = self.find_in_reject_file(part.shard, part.shard_row)
        if reject is not None:
            lines = [f"rejected: {reject_summary(reject)}", *(f"  {line}" for line in measurements)]
            return Fate(self.artifact, "rejected", reject_summary(reject), facts=facts, lines=lines)
        changed = [f"  changed: {name} {count:,}" for name, count in changes.items()]
        lines = ["kept", *(f"  {line}" for line in measurements), *changed, *ran]
        kept = self._kept_fate(part, lines, facts, [part.shard])
        if kept is None:
            what = f"document {part.id!r} is neither kept nor dropped with a reason"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify`, then rebuild the artifact")
        return kept

    def missing_message(self, row_id: str) -> tuple[str, str]:
        line = find_dropped_document(self.artifact, row_id)
        if line is None:
            return super().missing_message(row_id)
        return f"document {row_id!r} was dropped here: {line}", "trace it in the upstream corpus"


class DeduplicatedRows(DerivedRows):
    """Documents that are not copies or near duplicates of kept documents."""

    display_names = DisplayNames("deduplicated", "deduplicated", other_properties=OTHER_PROPERTIES)

    def fate(self, part: Part) -> Fate | None:
        decision = _find_entry(read_decisions(self.artifact), part)
        if decision is None:
            return None
        word = decision.decision.replace("_", " ")
        seen = f", seen before in {decision.seen_in}" if decision.seen_in else ""
        lines = [f"{word}{f' of {decision.duplicate_of}' if decision.duplicate_of else ''}{seen}"]
        if decision.similarity is not None:
            show = shlex.join(["corpusmill", "dedup", "show", decision.doc_id, "--data", str(self.lineage.root)])
            lines.append(f"  similarity {decision.similarity:.4f}; side by side: {show}")
        facts = {"decision": msgspec.to_builtins(decision)}
        if decision.decision != "kept":
            detail = lines[0].removeprefix(f"{word} ")
            if decision.decision == "near_duplicate":
                detail += f", similarity {decision.similarity:.4f}"
            return Fate(self.artifact, decision.decision, detail, facts=facts, lines=lines)
        return self._kept_fate(part, lines, facts)


class DecontaminatedRows(DerivedRows):
    """Documents that contain no items of evaluation sets; some had items cut out."""

    display_names = DisplayNames("decontaminated", "decontaminated", other_properties=OTHER_PROPERTIES)

    def fate(self, part: Part) -> Fate | None:
        evidence = _find_entry(recipe.read_contaminated(self.artifact), part)
        facts = {"evidence": msgspec.to_builtins(evidence)}
        if evidence is None:
            return self._kept_fate(part, ["kept: contains no item of an evaluation set"], facts)
        spans = ", ".join(f"{start:,}-{end:,}" for start, end in evidence.spans)
        excerpt = f"  in characters {spans}: {evidence.excerpt}"
        lines = [f"{evidence.action} for {evidence.reason}", f"  {evidence}", excerpt]
        if evidence.action == "dropped":
            return Fate(self.artifact, evidence.action, str(evidence), facts=facts, lines=lines)
        return self._kept_fate(part, lines, facts, outcome=evidence.action)

    def find(self, row_id: str) -> list[int]:
        """Return row numbers: in each source, only the first row with this id."""
        sources = self.artifact.manifest.identity.recipe.get("sources")
        if sources is None:  # prompts of conversations, whose ids begin with their split
            return super().find(row_id)
        numbers = []
        for source in sources:
            shards = [name for name in self.rows_by_file if f"/{source}-" in name]
            if (place := self.find_place({"doc_id": row_id, "source": source}, shards)) is not None:
                numbers.append(self.row_number(*place))
        return numbers

    def missing_message(self, row_id: str) -> tuple[str, str]:
        evidence = recipe.find_evidence(self.artifact, row_id)
        if evidence is None or evidence.action != "dropped":
            return super().missing_message(row_id)
        what = f"document {row_id!r} was dropped here: it contains {evidence.evaluation_set} {evidence.item}"
        return what, "trace it in the upstream corpus"
