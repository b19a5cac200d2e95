"""Rows of corpora of Documents, `shards/*.jsonl.zst`; those of what was made of other corpora are in `derived.py`.

Documents of a snapshot are proven beside the rows of the hub's files that they came from, as far as the cache has
these. Memory of a proof: of each shard in hand, the drawn documents of one row group.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.document import Document, Meta, derived_doc_id
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.compression import read_structs
from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFile, Span
from pipeline_assets.corpus.readers.lines import read_row
from pipeline_assets.corpus.readers.parquet import SpanFile, open_row_groups
from pipeline_assets.corpus.readers.raw_pin import covers, spans_of
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.rows.file_rows import FileRows, RowSchema
from pipeline_assets.corpus.rows.store import DOCUMENT_DECODER, Labels, Line, Part, Seen, Source, source_in
from pipeline_assets.corpus.snapshot.draw import SpanStream, row_lines
from pipeline_assets.corpus.spine.artifact import Artifact

_Json = Mapping[str, Any]
_THREADS = "stackexchange"
_BATCH_ROWS = 1024
BESIDES = "another source, domain, licence or date"


class _Answer(msgspec.Struct):
    source_row: int


class _Thread(msgspec.Struct):
    answers: list[_Answer]


class DocumentRows(FileRows):
    """The Documents of a corpus."""

    labels = Labels("corpus", "corpora", besides=BESIDES)
    schema = RowSchema(
        folder=f"{SHARDS}/",
        struct=Document,
        key=("doc_id",),
        source="source",
        text="text",
        file="meta.source_file",
        row="meta.source_row",
        labels=("source", "domain", "license_tag", "created_at"),  # not `meta`: on which row it was this time
    )

    def documents(self) -> Iterator[Document]:
        """All of them, in order; a block is in memory at a time."""
        return itertools.chain.from_iterable(
            read_structs(self.artifact.path(shard), DOCUMENT_DECODER) for shard in self.files
        )

    def origin(self, part: Part) -> Line | Source:
        document: Document = part.record
        meta, listing = document.meta, self.listing(part.source)
        rows = _rows_of(meta, _has_answers(listing.corpus))
        return source_in(listing, meta.source_file, rows, document.license_tag, meta.license_evidence)

    def missing(self, row_id: str) -> tuple[str, str]:
        fix = "`corpusmill trace --source` tells what became of a source row"
        return f"no document has doc_id {row_id!r}", fix


class SourceRows(DocumentRows):
    """Documents that were read from files: a snapshot, a normalised source."""

    reads_sources = True

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        """Of a file of text, a row is all from the beginning of a document on."""
        endings = self.artifact.manifest.identity.recipe.get("text_endings", ())
        around, has_answers, is_text = None, _has_answers(self.artifact), format_of(file, endings) == "text"
        for number, (meta,) in enumerate(self.read("meta")):
            if meta.source_file == file:
                if source_row in _rows_of(meta, has_answers):
                    return number, meta.source_row != source_row
                if is_text and meta.source_row < source_row:
                    around = number, False
        return around


class SnapshotRows(SourceRows):
    """Documents of a snapshot, which lists the files that it was read from."""

    labels = Labels("snapshot", "snapshots", besides=BESIDES)
    how_proven = "held against their rows of the hub's files"

    def proof_files(self) -> dict[str, Sequence[Path]]:
        return {shard: [self.artifact.folder / shard] for shard in self.files}

    def prove(self, shard: str, draws: Callable[[str], bool]) -> Iterator[Seen | str]:
        identity = self.artifact.manifest.identity
        prefix = f"{identity.recipe['dataset']}@{identity.recipe['revision']}:"
        entries = {entry["name"].removeprefix(prefix): entry for entry in identity.inputs if "row_groups" in entry}
        documents = read_structs(self.artifact.folder / shard, DOCUMENT_DECODER)
        drawn = (document for document in documents if draws(document.doc_id))
        for (file, number), group in itertools.groupby(drawn, lambda document: _row_group_of(document, entries)):
            if number is not None:
                yield from self._prove_row_group(entries[file], number, list(group))
            else:
                for document in group:
                    yield f"document {document.doc_id!r} is of {_place_of(document)}, which was not read"

    def _prove_row_group(self, entry: _Json, number: int, documents: Sequence[Document]) -> Iterator[Seen | str]:
        """The documents of one row group; where its bytes or the footer aren't here, nothing is said of them."""
        recipe = self.artifact.manifest.identity.recipe
        group = next(group for group in entry["row_groups"] if group["number"] == number)
        spans = spans_of(self.lineage.root / CACHE_FOLDER, entry)
        is_lines = format_of(entry["name"]) == "lines"
        if not covers(spans, group["start"], group["stop"]) or not (is_lines or _has_footer(spans, entry["bytes"])):
            yield from [Seen.NOT_HERE] * len(documents)
            return
        by_row = {document.meta.source_row - group["first_row"]: document for document in documents}
        columns = [name for name in (recipe["columns"]["text"], recipe["columns"]["id"]) if name is not None]
        rows = _line_rows if is_lines else _parquet_rows
        for row, values in rows(entry, number, spans, columns, frozenset(by_row)):
            yield self._contradiction(by_row.pop(row), values) or Seen.RIGHT
        for document in by_row.values():
            yield f"document {document.doc_id!r} is of {_place_of(document)}, which the file doesn't have"

    def _contradiction(self, document: Document, row: _Json) -> str | None:
        """What the row says otherwise; None if nothing. Of the text only NUL characters were ever removed."""
        recipe = self.artifact.manifest.identity.recipe
        if document.text != (row[recipe["columns"]["text"]] or "").replace("\0", ""):
            return f"document {document.doc_id!r} has another text than {_place_of(document)}"
        source_id = row[recipe["columns"]["id"]] if recipe["columns"]["id"] is not None else None
        expected = source_id or derived_doc_id(recipe["dataset"], recipe["config"], recipe["split"], document.text)
        if document.doc_id != expected and (source_id or document.doc_id.partition("#")[0] != expected):
            return f"document {document.doc_id!r} has another id than {_place_of(document)}, {expected!r}"
        return None


def _place_of(document: Document) -> str:
    return f"{document.meta.source_file} row {document.meta.source_row}"


def _has_answers(corpus: Artifact) -> bool:
    return corpus.manifest.identity.recipe.get("kind") == _THREADS


def _rows_of(meta: Meta, has_answers: bool) -> list[int]:
    """The rows of its file that a Document came from: its own, and those of a thread's answers."""
    answers = msgspec.json.decode(meta.extra, type=_Thread).answers if has_answers else []
    return [meta.source_row, *(answer.source_row for answer in answers)]


def _row_group_of(document: Document, entries: Mapping[str, _Json]) -> tuple[str, int | None]:
    """The file and the row group that a document came from; None for one that the manifest doesn't list as read."""
    origin = document.meta
    for group in entries[origin.source_file]["row_groups"] if origin.source_file in entries else ():
        if group["first_row"] <= origin.source_row < group["first_row"] + group["rows"]:
            return origin.source_file, group["number"]
    return origin.source_file, None


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
    with closing(SpanStream(spans)) as source:
        for row, line in enumerate(itertools.islice(row_lines(source, entry["name"]), max(wanted) + 1)):
            values = read_row(line) if row in wanted else None
            if isinstance(values, dict):
                found = {name: find_column(values, name) for name in columns}
                yield row, {name: at and at.value for name, at in found.items()}


def _has_footer(spans: Sequence[Span], size: int) -> bool:
    if not covers(spans, size - 8, size):
        return False
    with SpanFile(size, spans) as file:
        file.seek(size - 8)
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
    return covers(spans, size - footer_bytes, size)
