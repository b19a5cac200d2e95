"""Rows of corpora of Documents, `shards/*.jsonl.zst`, whatever made them; and what became of a line in each kind."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline_assets.corpus.decontamination.evidence import ContaminatedLine, evidence_on, read_contaminated
from pipeline_assets.corpus.decontamination.recipe import EVALUATION_STAGE
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.dedup.decision import SIGNATURES_STAGE, read_decisions
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS, shard_rows
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import Verdict, dropped_line
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks, read_structs
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.rows.store import (
    Content,
    Fate,
    Labels,
    Line,
    Part,
    Row,
    RowStore,
    Source,
    number_of,
    place_in,
    read_rejects,
    reason_of,
    reject_at,
)
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Lineage

if TYPE_CHECKING:
    from pipeline_assets.corpus.trust.proof import Prover

_THREADS = "stackexchange"
_BESIDE = re.compile(f"^[^/]+/({EVALUATION_STAGE.name}|{SIGNATURES_STAGE.name})(/|$)")  # inputs without documents
_BESIDES = "another source, domain, licence or date"


class _Answer(msgspec.Struct):
    source_row: int


class _Thread(msgspec.Struct):
    answers: list[_Answer]


class _Placed(msgspec.Struct):
    meta: Meta


class _Id(msgspec.Struct):
    doc_id: str
    source: str


class _Compared(msgspec.Struct):
    """What of a Document is compared: not its `meta`, which says on which row it was this time."""

    doc_id: str
    text: str
    source: str
    domain: str
    license_tag: str
    created_at: str


_document_decoder = msgspec.json.Decoder(Document)
_placed_decoder = msgspec.json.Decoder(_Placed)
_id_decoder = msgspec.json.Decoder(_Id)
_compared_decoder = msgspec.json.Decoder(_Compared)


class DocumentRows(RowStore):
    """The Documents of a corpus: the rules of all kinds of it, and what a kind adds is in those below."""

    labels = Labels("corpus", "corpora", besides=_BESIDES)

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        super().__init__(artifact, lineage)
        self.shards = shard_rows(artifact)

    def __len__(self) -> int:
        return sum(self.shards.values())

    def __iter__(self) -> Iterator[Content]:
        for shard in self.shards:
            for one in read_structs(self.artifact.path(shard), _compared_decoder):
                labels = msgspec.json.encode((one.source, one.domain, one.license_tag, one.created_at))
                yield Content(one.doc_id, one.text.encode("utf-8"), labels)

    def documents(self) -> Iterator[Document]:
        """All of them, in order; a block is in memory at a time."""
        for shard in self.shards:
            yield from read_structs(self.artifact.path(shard), _document_decoder)

    def at(self, number: int) -> Row:
        shard, row = place_in(self.shards, number, self.artifact.folder)
        document = self.document(shard, row)
        return Row(number, (Part(document.doc_id, document.source, shard, row, document.text),))

    def find(self, row_id: str) -> list[int]:
        found = self.line_of(row_id)
        return [] if found is None else [self.number(*found)]

    def number(self, shard: str, row: int) -> int:
        """The number of a Document over all shards."""
        return number_of(self.shards, shard, row, self.artifact.folder)

    def line(self, part: Part) -> Line:
        """The line that a part of what was made of this names.

        Raises:
            InputError: there is no such shard.
        """
        return Line(self, self.number(part.shard, part.shard_row))

    def document(self, shard: str, row: int) -> Document:
        """The Document in a line of a shard, from 0; the last one is kept.

        Raises:
            InputError: the shard is shorter, or the line is no Document.
        """
        if self._last is None or self._last[:2] != (shard, row):
            self._last = shard, row, read_document(self.artifact, shard, row)
        return self._last[2]

    _last: tuple[str, int, Document] | None = None

    def line_of(
        self, doc_id: str, source: str | None = None, shards: Sequence[str] | None = None
    ) -> tuple[str, int] | None:
        """(shard, row in it) of a Document; None where there is none.

        Args:
            source: of which; any where it is None.
            shards: where to look; None looks everywhere.
        """
        for shard in self.shards if shards is None else shards:
            for row, one in enumerate(read_structs(self.artifact.path(shard), _id_decoder)):
                if one.doc_id == doc_id and source in (None, one.source):
                    return shard, row
        return None

    def origin(self, part: Part) -> Line | Source:
        document = self.document(part.shard, part.shard_row)
        meta, listing = document.meta, self.listing(part.source)
        rows = tuple(listing.row(meta.source_file, row) for row in _rows_of(meta, _has_answers(listing.corpus)))
        digest = listing.entry(meta.source_file)["digest"]
        return Source(meta.source_file, rows, digest, document.license_tag, meta.license_evidence)

    def missing(self, row_id: str) -> tuple[str, str]:
        fix = "`corpusmill trace --source` tells what became of a source row"
        return f"no document has doc_id {row_id!r}", fix

    def _kept(
        self,
        part: Part,
        lines: Sequence[str],
        told: Mapping[str, Any],
        shards: Sequence[str] | None = None,
        outcome: str = "kept",
    ) -> Fate | None:
        """The fate of a document that is here; None of one that isn't."""
        found = self.line_of(part.id, part.source, shards)
        if found is None:
            return None
        place, number = {"shard": found[0], "shard_row": found[1]}, self.number(*found)
        return Fate(self.artifact, outcome, place=place, row=number, told=told, lines=lines)


class SourceRows(DocumentRows):
    """Documents that were read from files: a snapshot, a normalised source."""

    reads_sources = True

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        """Of a file of text, a row is all from the beginning of a document on."""
        number, has_answers, is_text = 0, _has_answers(self.artifact), format_of(file) == "text"
        around = None
        for shard in self.shards:
            for one in read_structs(self.artifact.path(shard), _placed_decoder):
                if one.meta.source_file == file and source_row in _rows_of(one.meta, has_answers):
                    return number, one.meta.source_row != source_row
                if is_text and one.meta.source_file == file and one.meta.source_row < source_row:
                    around = number, False
                number += 1
        return around


class SnapshotRows(SourceRows):
    """Documents of a snapshot, which lists the files that it was read from."""

    labels = Labels("snapshot", "snapshots", besides=_BESIDES)

    def prover(self) -> "Prover":
        from pipeline_assets.corpus.trust.proof import RowProver

        return RowProver(self.artifact, self.lineage.root / CACHE_FOLDER)


class DerivedRows(DocumentRows):
    """Documents of corpora upstream, as far as a rule keeps them, whole or changed."""

    how = "held against their lines upstream"

    def prover(self) -> "Prover":
        from pipeline_assets.corpus.trust.proof import DerivedProver

        return DerivedProver(self, self._made_from())

    def _made_from(self) -> dict[str, CorpusShard]:
        """The shard upstream that each own one is made from."""
        manifest = self.artifact.manifest
        inputs = [entry for entry in manifest.identity.upstream if _BESIDE.search(entry["name"]) is None]
        corpora = {entry["name"].split("/", 2)[-1]: self.lineage.locate(entry["digest"]) for entry in inputs}
        return {f"{SHARDS}/{shard.name}{SUFFIX}": shard for shard in corpus_shards(corpora)}

    def derived(self, document: Document) -> str | None:
        """The text that a document upstream has here; None where it should not be here."""
        return document.text


class FilteredRows(DerivedRows):
    """Documents that filters keep."""

    labels = Labels("filtered", "filtered", besides=_BESIDES)
    how = "filtered again"

    def _made_from(self) -> dict[str, CorpusShard]:
        """Its shards have the names of those upstream."""
        return {shard.path: shard for shard in super()._made_from().values()}

    @cached_property
    def _rules(self) -> FilterRecipe:
        return FilterRecipe.from_content(self.artifact.manifest.identity.recipe["filters"])

    def derived(self, document: Document) -> str | None:
        if document.license_tag in self.artifact.manifest.identity.recipe["refuse_licences"]:
            return None
        verdict = self._judged(document)
        return verdict.text if verdict.reason is None else None

    def _judged(self, document: Document) -> Verdict:
        # Compiled code is loaded only where it is needed.
        from pipeline_assets.corpus.filters.judge import judge

        return judge(document.text, document.meta.columns(), self._rules)

    def fate(self, line: Line, part: Part) -> Fate | None:
        assert isinstance(line.store, DocumentRows)
        document = line.store.document(part.shard, part.shard_row)
        verdict = self._judged(document)
        seen = [str(measurement) for measurement in verdict.measurements]
        dropped = dropped_line(self.artifact, part.id)
        if dropped is not None:
            if dropped.reason not in (measurement.reason for measurement in verdict.measurements):
                seen = [f"{dropped.reason} {dropped.value}", *seen]
            told: dict[str, Any] = {"reason": dropped.reason, "measurements": seen, "changes": {}}
            lines = [f"dropped for {dropped.reason}", *(f"  {one}" for one in seen)]
            return Fate(self.artifact, "dropped", str(dropped), told=told, lines=lines)
        reject = reject_at(read_rejects(self.artifact.path(REJECTS_FILE)), part.shard, part.shard_row)
        told = {"reason": None, "measurements": seen, "changes": dict(verdict.changes)}
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

    labels = Labels("deduplicated", "deduplicated", besides=_BESIDES)

    def fate(self, line: Line, part: Part) -> Fate | None:
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
            return Fate(self.artifact, decision.decision, detail, told=told, lines=lines)
        return self._kept(part, lines, told)


class DecontaminatedRows(DerivedRows):
    """Documents that hold no item of an evaluation set, or no longer do."""

    labels = Labels("decontaminated", "decontaminated", besides=_BESIDES)

    @cached_property
    def _contaminated(self) -> dict[tuple[str, str], ContaminatedLine]:
        return {(line.source, line.doc_id): line for line in read_contaminated(self.artifact)}

    def derived(self, document: Document) -> str | None:
        found = self._contaminated.get((document.source, document.doc_id))
        if found is not None and found.action == "dropped":
            return None
        edges = [0, *(edge for span in found.spans for edge in span), len(document.text)] if found is not None else []
        kept = zip(edges[::2], edges[1::2], strict=True)
        return "".join(document.text[start:stop] for start, stop in kept) if edges else document.text

    def fate(self, line: Line, part: Part) -> Fate | None:
        found = evidence_on(self.artifact, part.id)
        told = {"evidence": msgspec.to_builtins(found)}
        if found is None:
            return self._kept(part, ["kept: it holds no item of an evaluation set"], told)
        spans = ", ".join(f"{start:,}-{end:,}" for start, end in found.spans)
        lines = [f"{found.action} for {found.reason}", f"  {found}", f"  in characters {spans}: {found.excerpt}"]
        if found.action == "dropped":
            return Fate(self.artifact, found.action, str(found), told=told, lines=lines)
        return self._kept(part, lines, told, outcome=found.action)

    def missing(self, row_id: str) -> tuple[str, str]:
        evidence = evidence_on(self.artifact, row_id)
        if evidence is None or evidence.action != "dropped":
            return super().missing(row_id)
        what = f"document {row_id!r} was dropped here: it holds {evidence.evaluation_set} {evidence.item}"
        return what, "trace it in the corpus that was decontaminated"


def read_document(corpus: Artifact, shard: str, row: int) -> Document:
    """The Document in a line of a shard, from 0.

    Raises:
        InputError: the shard is shorter, or the line is no Document.
    """
    path, first_row = corpus.path(shard), 0
    for block in read_line_blocks(path):
        rows = block.count(b"\n")
        if row < first_row + rows:
            try:
                return _document_decoder.decode(block.split(b"\n", row - first_row + 1)[row - first_row])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"row {row} is no Document ({error})", path, "verify the snapshot") from None
        first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", path, "run `corpusmill verify` on its folder")


def _has_answers(corpus: Artifact) -> bool:
    return corpus.manifest.identity.recipe.get("kind") == _THREADS


def _rows_of(meta: Meta, has_answers: bool) -> list[int]:
    """The rows of its file that a Document came from: its own, and those of a thread's answers."""
    answers = msgspec.json.decode(meta.extra, type=_Thread).answers if has_answers else []
    return [meta.source_row, *(answer.source_row for answer in answers)]
