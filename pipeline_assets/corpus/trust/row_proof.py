"""Proof of a snapshot: documents are held against the rows of the hub's files that they came from, as far as these are
in the cache.

Memory: of each shard in hand, the drawn documents of one row group.
"""

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from pipeline_assets.corpus.document import derived_doc_id
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.held import covers, spans_of
from pipeline_assets.corpus.readers.hub_files import HubFile, Span
from pipeline_assets.corpus.readers.lines import read_row
from pipeline_assets.corpus.readers.parquet import SpanFile, open_row_groups
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.rows.documents import Origin
from pipeline_assets.corpus.snapshot.drawn_lines import SpanStream, row_lines
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.trust.proof import ShardProof, Stopped
from pipeline_assets.corpus.trust.result import Sample

_BATCH_ROWS = 1024
_Json = Mapping[str, Any]


class _Document(msgspec.Struct):
    """What a row must agree with."""

    text: str
    doc_id: str
    meta: Origin


_decoder = msgspec.json.Decoder(_Document)


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
        drawn = _drawn_documents(self.artifact.folder / proof.shard, within, stop)
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
                yield row, {name: at and at[0][at[1]] for name, at in found.items()}


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


def _drawn_documents(shard: Path, within: Sample, stop: threading.Event) -> Iterator[_Document]:
    for block in read_line_blocks(shard):
        if stop.is_set():
            raise Stopped
        documents: Iterable[_Document] = _decoder.decode_lines(block)
        yield from (document for document in documents if within.draws(document.doc_id))
