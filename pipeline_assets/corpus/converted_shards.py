"""Document shards that are converted from a source and given unique doc_ids."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from pipeline_assets.corpus.doc_ids import IdsWriter, read_occurrences, write_repeats
from pipeline_assets.corpus.document import DeriveId, Document, utf8_size
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS_FOLDER
from pipeline_assets.corpus.document_sizes import SIZES_NOTE, DocumentSizes
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks, read_structs
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import rejected_key
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingDir, StagingView

_CONVERTED_FOLDER = f"{WORK_FOLDER}/converted"
IDS_FOLDER = f"{WORK_FOLDER}/ids"
REJECTS_FOLDER = f"{WORK_FOLDER}/rejects"
DUPLICATE_ID = "duplicate_doc_id"
NORMALIZATION_NOTE = "text stays as it came; only its NUL characters (U+0000) are removed"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Document)


class ShardWriter:
    """Writer of one shard: documents, ids and rejects.

    `counts` has the number of written `documents`, the `bytes` of their texts, the number of rejects for each reason as
    `rejected/<reason>`, and counts that the caller adds.
    """

    def __init__(self, folder: StagingView, name: str, zstd_level: int) -> None:
        self.counts: dict[str, int] = {}
        self.notes: dict[str, Any] = {}  # of the caller, for the receipt
        self._sizes = DocumentSizes()
        self._names = f"{_CONVERTED_FOLDER}/{name}{SUFFIX}", f"{IDS_FOLDER}/{name}", f"{REJECTS_FOLDER}/{name}{SUFFIX}"
        documents, ids, rejects = map(folder.path, self._names)
        self._documents, self._ids = JsonlZstWriter(documents, zstd_level), IdsWriter(ids)
        self._rejects = JsonlZstWriter(rejects, zstd_level)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for writer in (self._rejects, self._ids, self._documents):
            self._open.enter_context(writer)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._open.__exit__(*failure)

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the count of a name; 0 does not create a count."""
        if amount:
            self.counts[name] = self.counts.get(name, 0) + amount

    def reject(self, reject: Reject) -> None:
        """Write a reject, and count it under its reason."""
        self._rejects.write_rows([reject])
        self.count(rejected_key(reject.reason))

    def write(self, documents: Sequence[Document]) -> None:
        """Write the next documents, in order."""
        sizes = [utf8_size(document.text) for document in documents]
        self.count("documents", len(documents))
        self.count("bytes", sum(sizes))
        self._ids.add(document.doc_id for document in documents)
        self._sizes.add(documents, sizes)
        self._documents.write_rows(documents)

    def receipt(self) -> Receipt:
        """Return the receipt of all files; call this only after the `with` block."""
        documents, ids, rejects = self._names
        files = [self._documents.output(documents), self._ids.output(ids), self._rejects.output(rejects)]
        return Receipt(files, self.counts, {**self.notes, SIZES_NOTE: self._sizes.to_json()})


def concatenate_lines(staging: StagingDir, files: Iterable[OutputFile], name: str, zstd_level: int) -> OutputFile:
    """Write the lines of staged `.jsonl.zst` files to one staged file, `name`."""
    with JsonlZstWriter(staging.path(name), zstd_level) as writer:
        for file in files:
            for block in read_line_blocks(staging.path(file.path)):
                writer.write_lines(block, block.count(b"\n"))
    return writer.output(name)


@dataclass(frozen=True)
class ConvertedShard:
    """Converted shard with repeated doc_ids; `write_repeats` wrote `repeats_file`."""

    name: str
    documents_file: OutputFile
    counts: Mapping[str, int]
    repeats_file: Path

    @property
    def rows(self) -> int:
        return self.documents_file.rows


def finalize_shards(
    staging: StagingDir, converted_receipts: Mapping[str, Receipt], derive_id: DeriveId, settings: RunSettings
) -> list[Receipt]:
    """Write converted shards to `shards/NAME.jsonl.zst`, with unique doc_ids.

    Only shards with a repeated doc_id are rewritten; the others get a hard link. `converted_receipts` maps shard
    names to the receipts of `ShardWriter`, in manifest order. The new receipts have the same order.
    """
    repeats = write_repeats([staging.path(receipt.files[1].path) for receipt in converted_receipts.values()], staging)
    shards = [
        ConvertedShard(name, receipt.files[0], receipt.counts, path)
        for (name, receipt), path in zip(converted_receipts.items(), repeats, strict=True)
        if path is not None
    ]
    work = functools.partial(finalize_shard, derive_id=derive_id, zstd_level=settings.zstd_level)
    settings = limit_workers(staging, settings, [shard.documents_file.bytes for shard in shards])
    receipts = run_stage("unique_ids", work, shards, staging, settings) if shards else ()
    rewritten = {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}
    return [
        rewritten.get(name)
        or Receipt([receipt.files[0].link_as(f"{SHARDS_FOLDER}/{name}{SUFFIX}", staging)], receipt.counts)
        for name, receipt in converted_receipts.items()
    ]


def gather_rejects(
    staging: StagingDir, converted_receipts: Sequence[Receipt], finalized_receipts: Sequence[Receipt], zstd_level: int
) -> OutputFile:
    """Write the rejects of all shards to one file, in shard order.

    `converted_receipts` are from `ShardWriter`, and `finalized_receipts` from `finalize_shards`. The rejects in a
    shard's converted receipt come before the rejects in its finalized receipt.
    """
    receipts = itertools.chain.from_iterable(zip(converted_receipts, finalized_receipts, strict=True))
    return concatenate_lines(staging, _reject_files(receipts), REJECTS_FILE, zstd_level)


def read_rejects(staging: StagingDir, receipts: Sequence[Receipt]) -> Iterator[Reject]:
    """Yield the rejects in the files of receipts, in order."""
    for file in _reject_files(receipts):
        yield from read_structs(staging.path(file.path), Reject)


def _reject_files(receipts: Iterable[Receipt]) -> Iterator[OutputFile]:
    return (file for receipt in receipts for file in receipt.files if file.path.startswith(REJECTS_FOLDER))


def finalize_shard(
    shard: ConvertedShard, window: Window, folder: StagingView, derive_id: DeriveId, zstd_level: int
) -> Receipt:
    """Write a shard to `shards/NAME.jsonl.zst`, so that no id occurs twice.

    A row that repeats an id from the source is rejected. A repeated id that was derived from the text gets the suffix
    `#2`, `#3` and so on. Poison rows are rejected, too. The receipt has the counts of `shard`, corrected for the new
    rejects: each counts as `rejected/REASON` and no longer as a document.
    """
    name, rejects_name = f"{SHARDS_FOLDER}/{shard.name}{SUFFIX}", f"{REJECTS_FOLDER}/{shard.name}.repeats{SUFFIX}"
    counts, first_row = Counter(shard.counts), 0
    occurrences = read_occurrences(shard.repeats_file, shard.rows)
    with (
        JsonlZstWriter(folder.path(name), zstd_level) as writer,
        JsonlZstWriter(folder.path(rejects_name), zstd_level) as rejects,
    ):
        for block in read_line_blocks(folder.path(shard.documents_file.path)):
            lines, kept = [*zip(block.splitlines(keepends=True), occurrences, strict=False)], list[bytes]()
            for row, (line, nth) in window.enumerate_rows(lines, first_row):
                outcome = _finalize_line(line, row, nth, shard, window, derive_id)
                if isinstance(outcome, bytes):
                    kept.append(outcome)
                    continue
                rejects.write_rows([outcome])
                text_bytes = 0 if row in window.poison_rows else utf8_size(_decoder.decode(line).text)
                counts.update({rejected_key(outcome.reason): 1, "documents": -1, "bytes": -text_bytes})
            first_row += len(lines)
            writer.write_lines(b"".join(kept), len(kept))
    return Receipt([writer.output(name), rejects.output(rejects_name)], dict(counts))


def _finalize_line(
    line: bytes, row: int, occurrence: int, shard: ConvertedShard, window: Window, derive_id: DeriveId
) -> bytes | Reject:
    """Return the line with a unique id, or a reject.

    `occurrence` is a value of `read_occurrences`: 0 if the id is new.
    """
    if row in window.poison_rows:
        return Reject(shard.documents_file.path, row, KILLED_WORKER)
    if not occurrence:
        return line
    document = _decoder.decode(line)
    if document.doc_id == derive_id(document.text):
        numbered = msgspec.structs.replace(document, doc_id=f"{document.doc_id}#{occurrence}")
        return _encoder.encode(numbered) + b"\n"
    return Reject(document.meta.source_file, document.meta.source_row, DUPLICATE_ID, document.doc_id)
