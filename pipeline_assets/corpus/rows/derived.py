"""Documents of corpora that were made of others: what the rule of each kind keeps, and what became of each document.

They are proven against their lines upstream, to which the rule is applied again. Memory: of each shard in hand, the
drawn documents of the shard upstream.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.decontamination import recipe
from pipeline_assets.corpus.dedup.decision import SIGNATURES_STAGE, read_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import Verdict, dropped_line, judge
from pipeline_assets.corpus.formats.compression import SUFFIX, read_structs
from pipeline_assets.corpus.rows.documents import BESIDES, DocumentRows
from pipeline_assets.corpus.rows.store import DOCUMENT_DECODER, Fate, Labels, Part, Seen, reason_of
from pipeline_assets.corpus.spine.errors import InputError, UsageError

_BESIDE = re.compile(
    f"^[^/]+/({recipe.EVALUATION_STAGE.name}|{SIGNATURES_STAGE.name})(/|$)"
)  # inputs without documents


class DerivedRows(DocumentRows):
    """Documents of corpora upstream, as far as a rule keeps them, whole or changed."""

    @property
    def how_proven(self) -> str:
        return "held against their lines upstream"

    @cached_property
    def _made_from(self) -> dict[str, CorpusShard]:
        """The shard upstream that each own one is made from."""
        inputs = [one for one in self.artifact.manifest.identity.upstream if _BESIDE.search(one["name"]) is None]
        corpora = {entry["name"].split("/", 2)[-1]: self.lineage.locate(entry["digest"]) for entry in inputs}
        return {self._shard_of(shard): shard for shard in corpus_shards(corpora)}

    def _shard_of(self, upstream: CorpusShard) -> str:
        """The own shard that is made of one upstream."""
        return f"{SHARDS}/{upstream.name}{SUFFIX}"

    def derived(self, document: Document) -> str | None:
        """The text that a document upstream has here; None where it should not be here."""
        return document.text

    def proof_files(self) -> dict[str, Sequence[Path]]:
        made_from = self._made_from
        return {
            shard: [self.artifact.folder / shard, *([made_from[shard].file] if shard in made_from else [])]
            for shard in self.files
        }

    def prove(self, shard: str, draws: Callable[[str], bool]) -> Iterator[Seen | str]:
        if shard not in self._made_from:
            yield f"no shard upstream is one that {shard} was made from"
            return

        def drawn(file: Path) -> Iterator[Document]:
            return (document for document in read_structs(file, DOCUMENT_DECODER) if draws(document.doc_id))

        upstream = {document.doc_id: document for document in drawn(self._made_from[shard].file)}
        for document in drawn(self.artifact.folder / shard):
            what = self._contradiction(document, upstream.get(document.doc_id))
            yield Seen.RIGHT if what is None else f"document {document.doc_id!r} {what}"

    def _contradiction(self, document: Document, upstream: Document | None) -> str | None:
        """What is wrong with a document beside the one that it was made from; None if nothing is."""
        if upstream is None:
            return "is not in the shard upstream"
        text = self.derived(upstream)
        if text is None:
            return "should have been dropped"
        if document.text != text:
            return "has another text than is made of that upstream"
        return None if msgspec.structs.replace(upstream, text=text) == document else "has other labels than upstream"

    def _kept(
        self,
        part: Part,
        lines: Sequence[str],
        told: Mapping[str, Any],
        shards: Sequence[str] | None = None,
        outcome: str = "kept",
    ) -> Fate | None:
        """The fate of a document that is here; None of one that isn't."""
        found = self.place_with({"doc_id": part.id, "source": part.source}, shards)
        return None if found is None else self.fate_at(*found, lines, told, outcome)


class FilteredRows(DerivedRows):
    """Documents that filters keep."""

    labels = Labels("filtered", "filtered", besides=BESIDES)

    @property
    def how_proven(self) -> str:
        """One document doesn't tell whether earlier ones have its windows."""
        return "filtered again" + (", but for repeated windows" if self._rules.windows is not None else "")

    def _shard_of(self, upstream: CorpusShard) -> str:
        return upstream.path

    @cached_property
    def _rules(self) -> FilterRecipe:
        return FilterRecipe.from_content(self.artifact.manifest.identity.recipe["filters"])

    def proof_files(self) -> dict[str, Sequence[Path]]:
        """Raises UsageError where languages would be told otherwise than they were."""
        asked, told = self._rules.language, self.artifact.manifest.identity.decisions.get("language")
        if asked is not None and (here := asked.detection()) != told:
            was, now = (" ".join(str(said.get(part)) for part in here) for said in (told or {}, here))
            what = f"languages were told by {was}, here they would be by {now}"
            raise UsageError(what, self.artifact.folder, "use the versions that made it")
        return super().proof_files()

    def derived(self, document: Document) -> str | None:
        if document.license_tag in self.artifact.manifest.identity.recipe["refuse_licences"]:
            return None
        verdict = self._judged(document)
        return verdict.text if verdict.reason is None else None

    def _judged(self, document: Document) -> Verdict:
        return judge(document.text, document.meta.columns(), self._rules)

    def fate(self, part: Part) -> Fate | None:
        verdict = self._judged(part.record)
        seen = [str(measurement) for measurement in verdict.measurements]
        told: dict[str, Any] = {"reason": None, "measurements": seen, "changes": dict(verdict.changes)}
        dropped = dropped_line(self.artifact, part.id)
        if dropped is not None:
            if dropped.reason not in (measurement.reason for measurement in verdict.measurements):
                seen.insert(0, str(dropped))
            lines = [f"dropped for {dropped.reason}", *(f"  {one}" for one in seen)]
            told |= {"reason": dropped.reason, "changes": {}}
            return Fate(self.artifact, "dropped", str(dropped), told=told, lines=lines)
        reject = self.reject_of(part.shard, part.shard_row)
        if reject is not None:
            lines = [f"rejected: {reason_of(reject)}", *(f"  {one}" for one in seen)]
            return Fate(self.artifact, "rejected", reason_of(reject), told=told, lines=lines)
        changed = [f"  changed: {name} {count:,}" for name, count in verdict.changes.items()]
        kept = self._kept(part, ["kept", *(f"  {one}" for one in seen), *changed], told, [part.shard])
        if kept is None:
            what = f"it neither holds document {part.id!r} nor says why not"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it, then rebuild it")
        return kept

    def missing(self, row_id: str) -> tuple[str, str]:
        line = dropped_line(self.artifact, row_id)
        if line is None:
            return super().missing(row_id)
        return f"document {row_id!r} was dropped here: {line}", "trace it in the corpus that was filtered"


class DeduplicatedRows(DerivedRows):
    """Documents that are nobody's duplicate."""

    labels = Labels("deduplicated", "deduplicated", besides=BESIDES)

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
            return Fate(self.artifact, decision.decision, detail, told=told, lines=lines)
        return self._kept(part, lines, told)


class DecontaminatedRows(DerivedRows):
    """Documents that hold no item of an evaluation set, or no longer do."""

    labels = Labels("decontaminated", "decontaminated", besides=BESIDES)

    @cached_property
    def _contaminated(self) -> dict[tuple[str, str], recipe.ContaminatedLine]:
        return {(line.source, line.doc_id): line for line in recipe.read_contaminated(self.artifact)}

    def derived(self, document: Document) -> str | None:
        found = self._contaminated.get((document.source, document.doc_id))
        if found is not None and found.action == "dropped":
            return None
        edges = [0, *(edge for span in found.spans for edge in span), len(document.text)] if found is not None else []
        kept = zip(edges[::2], edges[1::2], strict=True)
        return "".join(document.text[start:stop] for start, stop in kept) if edges else document.text

    def fate(self, part: Part) -> Fate | None:
        found = recipe.evidence_on(self.artifact, part.id)
        told = {"evidence": msgspec.to_builtins(found)}
        if found is None:
            return self._kept(part, ["kept: it holds no item of an evaluation set"], told)
        spans = ", ".join(f"{start:,}-{end:,}" for start, end in found.spans)
        lines = [f"{found.action} for {found.reason}", f"  {found}", f"  in characters {spans}: {found.excerpt}"]
        if found.action == "dropped":
            return Fate(self.artifact, found.action, str(found), told=told, lines=lines)
        return self._kept(part, lines, told, outcome=found.action)

    def missing(self, row_id: str) -> tuple[str, str]:
        evidence = recipe.evidence_on(self.artifact, row_id)
        if evidence is None or evidence.action != "dropped":
            return super().missing(row_id)
        what = f"document {row_id!r} was dropped here: it holds {evidence.evaluation_set} {evidence.item}"
        return what, "trace it in the corpus that was decontaminated"
