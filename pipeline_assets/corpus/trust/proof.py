"""What files say, worked out again: their contents, and some of their documents.

A manifest's `storage` is in no digest: whoever edits a compressed file and its line there leaves a manifest that fits.
Only reading the content of the file shows it; of a file that is stored as it is, the two hashes are one. What an
artifact says of its documents is worked out again from what it was made from, a Document shard at a time: documents of
a snapshot are held against the rows of the hub's files that they came from, as far as these are in the cache; those of
a corpus that was made of others against their lines, to which the rule that made it is applied again.

Memory: of each shard in hand, the drawn documents of one row group, or of the shard upstream.
"""

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.document import Document, DocumentText, Meta, derived_doc_id
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.formats.parquet import content_sha256
from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.held import covers, spans_of
from pipeline_assets.corpus.readers.hub_files import Span
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.lines import read_row
from pipeline_assets.corpus.readers.parquet import SpanFile, open_row_groups
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.rows.documents import DerivedRows
from pipeline_assets.corpus.snapshot.drawn_lines import SpanStream, row_lines
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import FileContent, Manifest
from pipeline_assets.corpus.spine.rehash import HashTask, Journal, Key, state_of
from pipeline_assets.corpus.spine.usage import Progress
from pipeline_assets.corpus.trust.result import Sample


@dataclass(frozen=True)
class ContentResult:
    """What came of a file's content: a complaint, or None where it is the one that the digest names."""

    task: HashTask
    complaint: str | None


def contents_of(tasks: Sequence[HashTask], manifests: Sequence[Manifest]) -> list[tuple[HashTask, FileContent]]:
    """The tasks of files whose content has a hash of its own, with it. Labels and raw files have none."""
    named = {(manifest.digest, file.path): file for manifest in manifests for file in manifest.identity.files}
    found = [(task, named.get((task.owner, task.name))) for task in tasks]
    return [(task, content) for task, content in found if content is not None and not content.is_raw]


def read_contents(
    contents: Sequence[tuple[HashTask, FileContent]], journal: Journal, threads: int, progress: Progress
) -> Iterator[ContentResult]:
    """A result for each, in their order; what an interrupted process found right is not read again."""
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for result in pool.map(lambda item: _read(item[0], item[1], journal), contents):
            progress.add(result.task.bytes)
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _read(task: HashTask, content: FileContent, journal: Journal) -> ContentResult:
    [path] = task.paths
    try:
        key: Key = ["content", content.content_sha256, state_of(path)]
        if journal.fact(key) is not None:
            return ContentResult(task, None)
        actual = content_sha256(path)
        if actual != content.content_sha256:
            return ContentResult(task, f"its content has {actual}, the digest names {content.content_sha256}")
        if key == ["content", content.content_sha256, state_of(path)]:
            journal.note(key, {"content": actual})
    except InputError as error:
        return ContentResult(task, error.what)
    except (pa.ArrowException, OSError) as error:
        return ContentResult(task, f"its content can't be read ({' '.join(str(error).split())})")
    return ContentResult(task, None)


_MAX_COMPLAINTS = 5  # of a shard: where the first lie matters, not how many follow


@dataclass
class ShardProof:
    """What came of the drawn documents of one Document shard.

    Attributes:
        documents: found to be as they should be.
        not_here: could not be looked at, since what they were made from isn't here.
        found_at: when a former process found all this, in seconds since 1970; None where this one did.
    """

    shard: str
    documents: int = 0
    not_here: int = 0
    complaints: list[str] = field(default_factory=list)
    found_at: int | None = None

    def complain(self, what: str) -> None:
        if len(self.complaints) < _MAX_COMPLAINTS:
            self.complaints.append(what)


D = TypeVar("D", Document, DocumentText, "_Document")


class Stopped(Exception):
    """The proof was called off."""


class Prover(Protocol):
    """How the documents of one kind of artifact are proven; `how` is that in a few words."""

    @property
    def how(self) -> str: ...

    @property
    def artifact(self) -> Artifact:
        """What is proven."""

    @property
    def shards(self) -> Sequence[str]:
        """Document shards whose documents are in it, in manifest order."""

    def files(self, shard: str) -> Sequence[Path]:
        """What is read for a shard: if one of these is touched, its proof counts no more."""

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        """Looks at the documents that `within` draws by their ids; right ones are counted, wrong ones are complaints.

        Raises:
            InputError, ArrowException, MsgspecError, OSError, ValueError: a file can't be read as what it should be.
            Stopped: `stop` was set.
        """


def proofs(prover: Prover, sample: Sample, journal: Journal, threads: int, log_every_s: float) -> Iterator[ShardProof]:
    """A proof for each shard that the sample draws, in manifest order; closing the iterator calls the rest off.

    What contradicted is looked at again, even if a former process did.
    """
    drawn, within = sample.shards_and_rows(prover.shards)
    progress = Progress(f"documents of {prover.artifact.manifest.name}", len(drawn), "shards", log_every_s, quiet_s=2.0)
    stop = threading.Event()
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for proof in pool.map(lambda shard: _proof(prover, shard, within, journal, stop), drawn):
            progress.add(1, {"documents": proof.documents})
            yield proof
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _proof(prover: Prover, shard: str, within: Sample, journal: Journal, stop: threading.Event) -> ShardProof:
    proof = ShardProof(shard)
    try:
        key = _key(prover, shard, within)
        known = journal.fact(key)
        if known is not None:
            return ShardProof(shard, known["documents"], known["not_here"], [], known["at"])
        prover.prove(proof, within, stop)
        if not proof.complaints and _key(prover, shard, within) == key:
            journal.note(key, {"documents": proof.documents, "not_here": proof.not_here})
    except InputError as error:
        proof.complain(f"{error.where}: {error.what}")
    except (pa.ArrowException, msgspec.MsgspecError, OSError, ValueError) as error:
        proof.complain(f"{shard} can't be looked at ({' '.join(str(error).split())})")
    return proof


def _key(prover: Prover, shard: str, within: Sample) -> Key:
    states = [state_of(path) for path in prover.files(shard)]
    return ["proof", prover.artifact.manifest.digest, shard, str(within.share), within.seed, states]


_decoder = msgspec.json.Decoder(Document)


@dataclass(frozen=True)
class DerivedProver:
    """Proves documents of one corpus.

    Attributes:
        made_from: the shard upstream that each own one is made from.
    """

    store: DerivedRows
    made_from: Mapping[str, CorpusShard]

    @property
    def how(self) -> str:
        return self.store.how

    @property
    def artifact(self) -> Artifact:
        return self.store.artifact

    @property
    def shards(self) -> Sequence[str]:
        return list(self.store.shards)

    def files(self, shard: str) -> Sequence[Path]:
        upstream = [self.made_from[shard].file] if shard in self.made_from else []
        return [self.artifact.folder / shard, *upstream]

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        if proof.shard not in self.made_from:
            proof.complain(f"no shard upstream is one that {proof.shard} was made from")
            return
        upstream = {one.doc_id: one for one in _drawn(_decoder, self.made_from[proof.shard].file, within, stop)}
        for document in _drawn(_decoder, self.artifact.folder / proof.shard, within, stop):
            what = self._contradiction(document, upstream.get(document.doc_id))
            if what is None:
                proof.documents += 1
            else:
                proof.complain(f"document {document.doc_id!r} {what}")

    def _contradiction(self, document: Document, upstream: Document | None) -> str | None:
        """What is wrong with a document beside the one that it was made from; None if nothing is."""
        if upstream is None:
            return "is not in the shard upstream"
        text = self.store.derived(upstream)
        if text is None:
            return "should have been dropped"
        if document.text != text:
            return "has another text than is made of that upstream"
        return None if msgspec.structs.replace(upstream, text=text) == document else "has other labels than upstream"


def drawn_documents(
    decoder: msgspec.json.Decoder[D], shard: Path, within: Sample, stop: threading.Event
) -> Iterator[list[tuple[int, D]]]:
    """(row, document) of the documents that are drawn by their ids, block by block.

    Raises:
        Stopped: `stop` was set.
    """
    first = 0
    for block in read_line_blocks(shard):
        if stop.is_set():
            raise Stopped
        documents = decoder.decode_lines(block)
        yield [(row, document) for row, document in enumerate(documents, first) if within.draws(document.doc_id)]
        first += len(documents)


def _drawn(decoder: msgspec.json.Decoder[D], shard: Path, within: Sample, stop: threading.Event) -> Iterator[D]:
    return (document for block in drawn_documents(decoder, shard, within, stop) for _, document in block)


_BATCH_ROWS = 1024
_Json = Mapping[str, Any]


class _Document(msgspec.Struct):
    """What a row must agree with."""

    text: str
    doc_id: str
    meta: Meta


_row_decoder = msgspec.json.Decoder(_Document)


@dataclass(frozen=True)
class RowProver:
    """Proves documents of one snapshot, below whose data root the cache is."""

    how: ClassVar[str] = "held against their rows of the hub's files"
    artifact: Artifact
    cache: Path

    @property
    def shards(self) -> Sequence[str]:
        return list(shard_rows(self.artifact))

    def files(self, shard: str) -> list[Path]:
        return [self.artifact.folder / shard]

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        entries = self._entries()
        drawn = _drawn(_row_decoder, self.artifact.folder / proof.shard, within, stop)
        for (file, number), documents in itertools.groupby(drawn, lambda document: _row_group_of(document, entries)):
            if number is None:
                for document in documents:
                    proof.complain(f"document {document.doc_id!r} is of {_place(document)}, which was not read")
            else:
                self._prove_row_group(entries[file], number, list(documents), proof)

    def _prove_row_group(self, entry: _Json, number: int, documents: Sequence[_Document], proof: ShardProof) -> None:
        """The documents of one row group; where its bytes or the footer aren't here, nothing is said of them."""
        recipe = self.artifact.manifest.identity.recipe
        group = next(group for group in entry["row_groups"] if group["number"] == number)
        spans = spans_of(self.cache, entry)
        has_schema = _is_lines(entry) or _has_footer(spans, entry["bytes"])
        if not covers(spans, group["start"], group["stop"]) or not has_schema:
            proof.not_here += len(documents)
            return
        by_row = {document.meta.source_row - group["first_row"]: document for document in documents}
        columns = [name for name in (recipe["columns"]["text"], recipe["columns"]["id"]) if name is not None]
        rows = _line_rows if _is_lines(entry) else _parquet_rows
        for row, values in rows(entry, number, spans, columns, frozenset(by_row)):
            what = self._contradiction(by_row.pop(row), values)
            if what is None:
                proof.documents += 1
            else:
                proof.complain(what)
        for document in by_row.values():
            proof.complain(f"document {document.doc_id!r} is of {_place(document)}, which the file doesn't have")

    def _contradiction(self, document: _Document, row: _Json) -> str | None:
        """What the row says otherwise; None if nothing. Of the text only NUL characters were ever removed."""
        recipe = self.artifact.manifest.identity.recipe
        if document.text != (row[recipe["columns"]["text"]] or "").replace("\0", ""):
            return f"document {document.doc_id!r} has another text than {_place(document)}"
        source_id = row[recipe["columns"]["id"]] if recipe["columns"]["id"] is not None else None
        expected = source_id or derived_doc_id(recipe["dataset"], recipe["config"], recipe["split"], document.text)
        if document.doc_id != expected and (source_id or document.doc_id.partition("#")[0] != expected):
            return f"document {document.doc_id!r} has another id than {_place(document)}, {expected!r}"
        return None

    def _entries(self) -> dict[str, _Json]:
        """The hub files that were read, by path."""
        identity = self.artifact.manifest.identity
        prefix = f"{identity.recipe['dataset']}@{identity.recipe['revision']}:"
        return {entry["name"].removeprefix(prefix): entry for entry in identity.inputs if "row_groups" in entry}


def _parquet_rows(
    entry: _Json, number: int, spans: Sequence[Span], columns: Sequence[str], wanted: Set[int]
) -> Iterator[tuple[int, _Json]]:
    file, first = HubFile(entry["name"], entry["bytes"], entry["digest"]), 0
    with open_row_groups(file, spans) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[number], columns=columns, use_threads=False):
            for row in sorted(wanted & set(range(first, first + batch.num_rows))):
                yield row, {name: batch.column(name)[row - first].as_py() for name in columns}
            first += batch.num_rows


def _line_rows(
    entry: _Json, number: int, spans: Sequence[Span], columns: Sequence[str], wanted: Set[int]
) -> Iterator[tuple[int, _Json]]:
    last = max(wanted, default=-1)
    with closing(SpanStream(spans)) as source:
        for row, line in enumerate(itertools.islice(row_lines(source, entry["name"]), last + 1)):
            values = read_row(line) if row in wanted else None
            if isinstance(values, dict):
                found = {name: find_column(values, name) for name in columns}
                yield row, {name: at and at.value for name, at in found.items()}


def _is_lines(entry: _Json) -> bool:
    return format_of(entry["name"]) == "lines"


def _has_footer(spans: Sequence[Span], size: int) -> bool:
    if not covers(spans, size - 8, size):
        return False
    with SpanFile(size, spans) as file:
        file.seek(size - 8)
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
    return covers(spans, size - footer_bytes, size)


def _row_group_of(document: _Document, entries: Mapping[str, _Json]) -> tuple[str, int | None]:
    """The file and the row group that a document came from; None for one that the manifest doesn't list as read."""
    origin = document.meta
    for group in entries[origin.source_file]["row_groups"] if origin.source_file in entries else ():
        if group["first_row"] <= origin.source_row < group["first_row"] + group["rows"]:
            return origin.source_file, group["number"]
    return origin.source_file, None


def _place(document: _Document) -> str:
    return f"{document.meta.source_file} row {document.meta.source_row}"
