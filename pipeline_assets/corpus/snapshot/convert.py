"""The stage `snapshot`: row groups of a source → one Document shard, its ids and its rejects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus import doc_ids
from pipeline_assets.corpus.document import Document, derived_doc_id
from pipeline_assets.corpus.filters.column_rules import first_failed
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.readers.column_values import column_values, faulty_rows
from pipeline_assets.corpus.readers.hub_parquet import open_row_groups
from pipeline_assets.corpus.readers.row_faults import text_fault
from pipeline_assets.corpus.snapshot.fetch import LocalPiece, SnapshotShard
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import KILLED_WORKER, Window

CONVERTED = f"{WORK}/converted"
IDS = f"{WORK}/ids"
REJECTS = f"{WORK}/rejects"
_BATCH_ROWS = 1024
_encoder = msgspec.json.Encoder()


@dataclass
class _Tally:
    """What one shard has so far, besides the documents written."""

    doc_ids: list[str] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, more: int = 1) -> None:
        if more:
            self.counts[name] = self.counts.get(name, 0) + more

    def reject(self, file: str, row: int, reason: str, detail: str = "") -> None:
        self.rejects.append(Reject(file, row, reason, detail))
        self.count(f"rejected/{reason}")


def convert_shard(
    shard: SnapshotShard, window: Window, folder: BuildFolder, recipe: SnapshotRecipe, zstd_level: int
) -> Receipt:
    """One shard: rows that pass the rules become Documents, bad rows become rejects, all are counted.

    Counts: `rows` read, `documents` and `bytes` of text written, `dropped/<rule>`, `rejected/<reason>`,
    `nul_documents`, `nul_characters_removed`.
    """
    tally = _Tally()
    name = f"{CONVERTED}/{shard.name}{SUFFIX}"
    first_row = 0
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for local in shard.pieces:
            _convert_piece(local, first_row, window, recipe, tally, writer)
            first_row += local.piece.rows
    ids_name, rejects_name = f"{IDS}/{shard.name}", f"{REJECTS}/{shard.name}{SUFFIX}"
    size, sha256 = doc_ids.write_ids(folder.path(ids_name), tally.doc_ids)
    ids = OutputFile(ids_name, len(tally.doc_ids), size, sha256, sha256)
    rejects = write_rows(
        folder.path(rejects_name), rejects_name, [reject.to_json() for reject in tally.rejects], zstd_level
    )
    return Receipt([writer.output(name), ids, rejects], tally.counts)


def _convert_piece(
    local: LocalPiece, first_row: int, window: Window, recipe: SnapshotRecipe, tally: _Tally, writer: JsonlZstWriter
) -> None:
    group = local.piece.group
    for seen, batch in _batches(local, f"{recipe.dataset}@{recipe.revision}:{group.file.path}"):
        rules = recipe.filters(batch.schema.names)
        numbers = np.arange(seen, seen + batch.num_rows)
        wanted = _in_window(numbers + first_row, window, group.file.path, group.first_row - first_row, tally)
        tally.count("rows", int(wanted.sum()))
        failed = first_failed(rules, batch)
        for number, rule in enumerate(rules):
            tally.count(f"dropped/{rule.text}", int((failed[wanted] == number).sum()))
        kept = wanted & (failed < 0)
        rows = (numbers[kept] + group.first_row).tolist()
        _write_documents(batch.filter(pa.array(kept)), rows, group.file.path, recipe, tally, writer)


def _batches(local: LocalPiece, where: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(rows before it in the row group, batch), cut at the piece's last row.

    Raises:
        InputError: the row group's bytes can't be read.
    """
    group, rows = local.piece.group, local.piece.rows
    try:
        with open_row_groups(group.file, local.spans) as parquet:
            seen = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group.number], use_threads=False):
                yield seen, batch.slice(0, rows - seen)
                seen += batch.num_rows
                if seen >= rows:
                    return
    except (pa.ArrowException, OSError) as error:
        for span in local.spans:  # damaged bytes must not be what the next try finds in the cache
            span.local.unlink(missing_ok=True)
        what = f"row group {group.number} can't be read ({' '.join(str(error).split())})"
        raise InputError(what, where, "the file is damaged: pin another commit, or leave it out of `files`") from None


def _in_window(
    rows: NDArray[np.int64], window: Window, file: str, to_file_row: int, tally: _Tally
) -> NDArray[np.bool_]:
    """Which rows of the shard are read; those known to kill a worker are rejected here, unread."""
    stop = np.iinfo(np.int64).max if window.stop is None else window.stop
    inside = (rows >= window.start) & (rows < stop)
    fatal = inside & np.isin(rows, sorted(window.fatal))
    for row in rows[fatal].tolist():
        tally.count("rows")
        tally.reject(file, row + to_file_row, KILLED_WORKER)
    return inside & ~fatal


def _write_documents(
    batch: pa.RecordBatch, rows: Sequence[int], file: str, recipe: SnapshotRecipe, tally: _Tally, writer: JsonlZstWriter
) -> None:
    """The rows of a batch that passed the rules, as lines; those without usable text, as rejects."""
    columns = recipe.columns
    values = {name: column_values(batch.column(name)) for name in batch.schema.names}
    damaged = faulty_rows(list(values.values()))
    texts = values.pop(columns.text)
    ids = values.pop(columns.id) if columns.id is not None else [None] * len(rows)
    created = values.pop(columns.created_at) if columns.created_at is not None else [None] * len(rows)
    values |= {"source_file": [file] * len(rows), "source_row": list(rows)}
    documents: list[Document] = []
    text_bytes = 0
    metas = zip(*values.values(), strict=True)
    for number, (row, text, doc_id, created_at, meta) in enumerate(zip(rows, texts, ids, created, metas, strict=True)):
        fault = damaged.get(number) or text_fault(text, doc_id)
        if fault is not None:
            tally.reject(file, row, fault.reason, fault.detail)
            continue
        if "\0" in text:
            nul_characters = text.count("\0")
            text = text.replace("\0", "")
            if not text:
                tally.reject(file, row, "empty_text", "nothing but NUL")
                continue
            tally.count("nul_documents")
            tally.count("nul_characters_removed", nul_characters)
        document = Document(
            text=text,
            source=recipe.source,
            domain=recipe.domain,
            doc_id=doc_id or derived_doc_id(recipe.dataset, recipe.config, recipe.split, text),
            license_tag=recipe.license_tag,
            created_at=None if created_at is None else str(created_at),
            meta=dict(zip(values, meta, strict=True)),
        )
        documents.append(document)
        text_bytes += len(text) if text.isascii() else len(text.encode("utf-8"))
    tally.doc_ids += [document.doc_id for document in documents]
    tally.count("documents", len(documents))
    tally.count("bytes", text_bytes)
    if documents:
        writer.write_lines(_encoder.encode_lines(documents), len(documents))
