"""The stage `encode`: a Document shard → the token runs of one split, ready to be merged in manifest order."""

import contextlib
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks, write_rows
from pipeline_assets.corpus.formats.parquet import write_table
from pipeline_assets.corpus.sampling.split import Split, split_rule
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import KILLED_WORKER, WHOLE, Window
from pipeline_assets.corpus.tokens.o200k_harmony import (
    END_OF_TEXT,
    RANKS,
    Driver,
    Encoder,
    TokenRuns,
    load_encoder,
)

ENCODED = f"{WORK}/encoded"
DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source_shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
    ]
)
_BLOCK_BYTES = 4 << 20
_SPOT_CHECK_BELOW = 2**64 // 1000
_decoder = msgspec.json.Decoder(DocumentText)


class OracleDisagrees(Exception):
    """The fast driver's ids of a document differ from tiktoken's: nothing that it encoded can be trusted."""


@dataclass(frozen=True)
class EncodeShard:
    """One Document shard: `name` of the output, `path` in the corpus, `file` on disk, its rows."""

    name: str
    path: str
    file: Path
    rows: int


@dataclass
class _Batch:
    """Documents of the split from one block of lines."""

    doc_ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


def encode_shard(
    shard: EncodeShard,
    window: Window,
    folder: BuildFolder,
    tokenizer_sha256: str,
    driver: Driver,
    split: Split,
    valid_fraction: str,
    zstd_level: int,
) -> Receipt:
    """Ids of the shard's documents of `split`, each closed by END_OF_TEXT, and a table of the documents.

    Files, in this order: raw int32 ids; Parquet of DOCUMENTS_SCHEMA; rejects. Counts: `rows` read, `documents`,
    `tokens` and `bytes` of text encoded, `dropped/other_split`, `rejected/<reason>`, `spot_checked`.

    Raises:
        InputError: a line that is no Document.
        OracleDisagrees: see there.
    """
    encoder = _encoder(tokenizer_sha256, driver)
    split_of = split_rule(valid_fraction)
    counts = dict.fromkeys(("rows", "documents", "tokens", "bytes", "spot_checked"), 0)
    rejects: list[Reject] = []
    tables: list[pa.Table] = []
    stem = f"{ENCODED}/{driver}/{shard.name}"
    tokens_name, documents_name, rejects_name = f"{stem}.bin", f"{stem}.parquet", f"{stem}{SUFFIX}"
    first_row = 0
    with DurableFile(folder.path(tokens_name), is_hashed=False) as output:
        for block in read_line_blocks(shard.file, _BLOCK_BYTES):
            batch, rows = _Batch(), block.count(b"\n")
            for row, document in _documents(block, rows, shard.file, first_row, window):
                counts["rows"] += 1
                if document is None:
                    rejects.append(Reject(shard.path, row, KILLED_WORKER))
                elif split_of(document.doc_id) != split:
                    _count(counts, "dropped/other_split")
                elif not encoder.can_encode(document.text):
                    detail = "a million blanks in a row overflow the tokenizer"
                    rejects.append(Reject(shard.path, row, "blanks", detail))
                else:
                    batch.doc_ids.append(document.doc_id)
                    batch.texts.append(document.text)
                    batch.rows.append(row)
            first_row += rows
            runs = encoder.encode(batch.texts)
            counts["spot_checked"] += _spot_check(encoder, batch, runs, shard)
            closed = runs.closed_by(END_OF_TEXT)
            output.write(closed.ids.data)
            tables.append(_table(batch, closed.lengths, shard.path))
            counts["documents"] += len(batch.texts)
            counts["tokens"] += len(closed.ids)
            counts["bytes"] += runs.text_bytes
    for reject in rejects:
        _count(counts, f"rejected/{reject.reason}")
    tokens = OutputFile(tokens_name, counts["tokens"], output.bytes_written, sha256="", content_sha256="")
    listed = write_table(folder.path(documents_name), documents_name, tables, DOCUMENTS_SCHEMA)
    rejected = write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level)
    return Receipt([tokens, listed, rejected], counts, {"driver": encoder.driver})


def load_tokenizers(tokenizer_sha256: str, driver: Driver) -> None:
    """Loads what `encode_shard` keeps for the life of its process: the encoder, its tables, and the oracle."""
    encoder = _encoder(tokenizer_sha256, driver)
    encoder.encode(["the first text builds the tables"])
    encoder.oracle.encode_ordinary("")


@functools.lru_cache(maxsize=1)
def _encoder(tokenizer_sha256: str, driver: Driver) -> Encoder:
    return load_encoder(tokenizer_sha256, driver=driver)


def _documents(
    block: bytes, rows: int, file: Path, first_row: int, window: Window
) -> Iterable[tuple[int, DocumentText | None]]:
    """(row, document) of the block's `rows` lines in the window; None for a fatal row, which is not read.

    Raises:
        InputError: a line that is no Document (says which).
    """
    if window == WHOLE:
        with contextlib.suppress(msgspec.DecodeError):  # found again below, with its row
            documents = _decoder.decode_lines(block)
            if len(documents) == rows:
                return enumerate(documents, first_row)
    lines = window.of(block.splitlines(), first_row)
    return ((row, None if row in window.fatal else _decode(line, file, row)) for row, line in lines)


def _decode(line: bytes, file: Path, row: int) -> DocumentText:
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise InputError(f"row {row} is no Document ({error})", file, "verify the corpus, then rebuild it") from None


def _spot_check(encoder: Encoder, batch: _Batch, runs: TokenRuns, shard: EncodeShard) -> int:
    """Holds one document in a thousand, chosen by its id, against the oracle; how many were."""
    checked = 0
    starts = np.cumsum(runs.lengths, dtype=np.int64) - runs.lengths
    if len(runs.ids) and not 0 <= int(runs.ids.min()) <= int(runs.ids.max()) < RANKS:
        raise OracleDisagrees(f"{shard.path}: an id outside the vocabulary")
    for number, doc_id in enumerate(batch.doc_ids):
        if not is_spot_checked(doc_id):
            continue
        start = int(starts[number])
        ids = runs.ids[start : start + int(runs.lengths[number])]
        if ids.tolist() != encoder.oracle.encode_ordinary(batch.texts[number]):
            raise OracleDisagrees(f"{shard.path} row {batch.rows[number]}: {encoder.driver} and tiktoken disagree")
        checked += 1
    return checked


def is_spot_checked(doc_id: str) -> bool:
    """Whether a document is among the one in a thousand whose ids are computed twice."""
    digest = hashlib.sha256(f"spot-check\0{doc_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < _SPOT_CHECK_BELOW


def _table(batch: _Batch, lengths: NDArray[np.int32], path: str) -> pa.Table:
    """The documents as rows. Arrays are laid out here: pa.array would import pandas, half a second a worker."""
    count = len(batch.rows)
    columns = [
        _strings([doc_id.encode("utf-8") for doc_id in batch.doc_ids]),
        _strings([path.encode("utf-8")] * count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(np.array(batch.rows, np.int64))]),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(lengths)]),
    ]
    return pa.Table.from_arrays(columns, schema=DOCUMENTS_SCHEMA)


def _strings(values: list[bytes]) -> pa.StringArray:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(values)))


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
