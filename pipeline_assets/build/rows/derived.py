"""Documents of corpora that were made of others: what became here of each document upstream."""

import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from pipeline_assets.build.rows.documents import OTHER_CHANGES, DocumentRows
from pipeline_assets.build.rows.store import Fate, Labels, Part, reject_summary
from pipeline_assets.corpus.decontamination import recipe
from pipeline_assets.corpus.dedup.decision import read_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import dropped_line, evaluate
from pipeline_assets.spine.errors import InputError


class DerivedRows(DocumentRows):
    """Documents of corpora upstream, as far as a rule keeps them, whole or changed."""

    def _kept(
        self,
        part: Part,
        lines: Sequence[str],
        told: Mapping[str, Any],
        shards: Sequence[str] | None = None,
        outcome: str = "kept",
    ) -> Fate | None:
        """The fate of a document that is here; None of one that isn't."""
        found = self.find_place({"doc_id": part.id, "source": part.source}, shards)
        return None if found is None else self.fate_at(*found, lines, told, outcome)


class FilteredRows(DerivedRows):
    """Documents that filters keep."""

    labels = Labels("filtered", "filtered", other_changes=OTHER_CHANGES)

    @cached_property
    def _rules(self) -> FilterRecipe:
        return FilterRecipe.from_content(self.artifact.manifest.identity.recipe["filters"])

    def fate(self, part: Part) -> Fate | None:
        document: Document = part.record
        verdict = evaluate(document.text, document.meta.columns(), self._rules)
        seen = [str(measurement) for measurement in verdict.measurements]
        told: dict[str, Any] = {"reason": None, "measurements": seen, "changes": dict(verdict.changes)}
        dropped = dropped_line(self.artifact, part.id)
        if dropped is not None:
            if dropped.reason not in (measurement.reason for measurement in verdict.measurements):
                seen.insert(0, str(dropped))
            lines = [f"dropped for {dropped.reason}", *(f"  {one}" for one in seen)]
            told |= {"reason": dropped.reason, "changes": {}}
            return Fate(self.artifact, "dropped", str(dropped), details=told, lines=lines)
        reject = self.find_reject_row(part.shard, part.shard_row)
        if reject is not None:
            lines = [f"rejected: {reject_summary(reject)}", *(f"  {one}" for one in seen)]
            return Fate(self.artifact, "rejected", reject_summary(reject), details=told, lines=lines)
        changed = [f"  changed: {name} {count:,}" for name, count in verdict.changes.items()]
        kept = self._kept(part, ["kept", *(f"  {one}" for one in seen), *changed], told, [part.shard])
        if kept is None:
            what = f"it neither holds document {part.id!r} nor says why not"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it, then rebuild it")
        return kept

    def missing_message(self, row_id: str) -> tuple[str, str]:
        line = dropped_line(self.artifact, row_id)
        if line is None:
            return super().missing_message(row_id)
        return f"document {row_id!r} was dropped here: {line}", "trace it in the corpus that was filtered"


class DeduplicatedRows(DerivedRows):
    """Documents that are nobody's duplicate."""

    labels = Labels("deduplicated", "deduplicated", other_changes=OTHER_CHANGES)

    def fate(self, part: Part) -> Fate | None:
        decision = next((one for one in read_decisions(self.artifact) if one.doc_id == part.id), None)
        if decision is None:
            return None
        word = decision.decision.replace("_", " ")
        seen = f", seen before in {decision.seen_in}" if decision.seen_in else ""
        lines = [f"{word}{f' of {decision.duplicate_of}' if decision.duplicate_of else ''}{seen}"]
        if decision.similarity is not None:
            show = shlex.join(["corpusmill", "dedup", "show", decision.doc_id, "--data", str(self.lineage.root)])
            lines.append(f"  similarity {decision.similarity:.4f}; side by side: {show}")
        told = {"decision": msgspec.to_builtins(decision)}
        if decision.decision != "kept":
            detail = lines[0].removeprefix(f"{word} ")
            if decision.decision == "near_duplicate":
                detail += f", similarity {decision.similarity:.4f}"
            return Fate(self.artifact, decision.decision, detail, details=told, lines=lines)
        return self._kept(part, lines, told)


class DecontaminatedRows(DerivedRows):
    """Documents that hold no item of an evaluation set, or no longer do."""

    labels = Labels("decontaminated", "decontaminated", other_changes=OTHER_CHANGES)

    def fate(self, part: Part) -> Fate | None:
        found = recipe.evidence_on(self.artifact, part.id)
        told = {"evidence": msgspec.to_builtins(found)}
        if found is None:
            return self._kept(part, ["kept: it holds no item of an evaluation set"], told)
        spans = ", ".join(f"{start:,}-{end:,}" for start, end in found.spans)
        lines = [f"{found.action} for {found.reason}", f"  {found}", f"  in characters {spans}: {found.excerpt}"]
        if found.action == "dropped":
            return Fate(self.artifact, found.action, str(found), details=told, lines=lines)
        return self._kept(part, lines, told, outcome=found.action)

    def missing_message(self, row_id: str) -> tuple[str, str]:
        evidence = recipe.evidence_on(self.artifact, row_id)
        if evidence is None or evidence.action != "dropped":
            return super().missing_message(row_id)
        what = f"document {row_id!r} was dropped here: it holds {evidence.evaluation_set} {evidence.item}"
        return what, "trace it in the corpus that was decontaminated"
