"""The stage `encode`: a Document shard → the token runs of one split, ready to be merged in manifest order."""

import contextlib
import functools
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.formats.arrow import column_of, repeated, strings
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, count_lines, read_line_blocks, write_rows
from pipeline_assets.corpus.formats.parquet import write_table
from pipeline_assets.corpus.sampling.split import Split, split_rule
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Reject, count_rejects, dropped_key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import KILLED_WORKER, WHOLE, Window
from pipeline_assets.corpus.tokens.o200k_harmony import Driver, Encoder, load_encoder
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer, TokenRuns

BLANKS, SPECIAL_TOKENS = "blanks", "special_tokens"
OTHER_SPLIT = dropped_key("other_split")
_BLOCK_BYTES = 4 << 20
_SPOT_CHECK_BELOW = 2**64 // 1000
_SURELY_SAMPLED = 4000  # of so many documents one is spot-checked, at odds of 50 to 1
_decoder = msgspec.json.Decoder(DocumentText)
logger = logging.getLogger("corpusmill")


class OracleDisagrees(Exception):
    """The fast driver's ids of a document differ from the oracle's: nothing that it encoded can be trusted."""


@dataclass(frozen=True)
class EncodeShard:
    """One Document shard: `name` of the output, `path` in the corpus, `file` on disk, its rows."""

    name: str
    path: str
    file: Path
    rows: int


@dataclass
class EncodedBlock:
    """Documents from one block of lines: ids, rows in the shard, and runs, each closed by the end of the document."""

    doc_ids: list[str]
    license_tags: list[str]
    rows: list[int]
    runs: TokenRuns


@dataclass
class _Batch:
    """Documents from one block of lines."""

    doc_ids: list[str] = field(default_factory=list)
    license_tags: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def add(self, doc_id: str, license_tag: str, text: str, row: int) -> None:
        self.doc_ids.append(doc_id)
        self.license_tags.append(license_tag)
        self.texts.append(text)
        self.rows.append(row)


class ShardEncoding:
    """One shard on its way to ids.

    Attributes:
        counts: `rows` read, `documents`, `tokens` and `bytes` of text encoded, `spot_checked`,
            `dropped/other_split`: those that were not chosen.
        rejects: rows that kill their worker, texts that the library doesn't survive, or that give a special id.
    """

    def __init__(self, shard: EncodeShard, window: Window, tokenizer: Tokenizer) -> None:
        self._shard, self._window, self._tokenizer = shard, window, tokenizer
        self.counts = dict.fromkeys(("rows", "documents", "tokens", "bytes", "spot_checked"), 0)
        self.rejects: list[Reject] = []

    def blocks(self, is_chosen: Callable[[str], bool] = lambda doc_id: True) -> Iterator[EncodedBlock]:
        """The documents whose ids are chosen.

        Raises:
            InputError: a line that is no Document.
            OracleDisagrees: see there.
        """
        first_row = 0
        for block in read_line_blocks(self._shard.file, _BLOCK_BYTES):
            rows = count_lines(block)
            batch = self._read(block, rows, first_row, is_chosen)
            first_row += rows
            batch, runs = self._encode(batch)
            self.counts["spot_checked"] += self._spot_check(batch, runs)
            closed = runs.closed_by(self._tokenizer.end_of_document)
            self.counts["documents"] += len(batch.texts)
            self.counts["tokens"] += len(closed.ids)
            self.counts["bytes"] += runs.text_bytes
            yield EncodedBlock(batch.doc_ids, batch.license_tags, batch.rows, closed)

    def all_counts(self) -> dict[str, int]:
        """Counts, with `rejected/<reason>`."""
        return {**self.counts, **count_rejects(self.rejects)}

    def _read(self, block: bytes, rows: int, first_row: int, is_chosen: Callable[[str], bool]) -> _Batch:
        batch = _Batch()
        for row, document in _documents(block, rows, self._shard.file, first_row, self._window):
            self.counts["rows"] += 1
            if document is None:
                self.rejects.append(Reject(self._shard.path, row, KILLED_WORKER))
            elif not is_chosen(document.doc_id):
                self.counts[OTHER_SPLIT] = self.counts.get(OTHER_SPLIT, 0) + 1
            elif not self._tokenizer.can_encode(document.text):
                detail = "a million blanks in a row overflow the tokenizer"
                logger.warning("%s row %d: document %r is rejected: %s", self._shard.path, row, document.doc_id, detail)
                self.rejects.append(Reject(self._shard.path, row, BLANKS, detail))
            else:
                batch.add(document.doc_id, document.license_tag, document.text, row)
        return batch

    def _encode(self, batch: _Batch) -> tuple[_Batch, TokenRuns]:
        """The documents that give no special id, and their ids."""
        runs = self._tokenizer.encode(batch.texts)
        if not self._tokenizer.holds_special(runs.ids):
            return batch, runs
        kept = _Batch()
        columns = (batch.doc_ids, batch.license_tags, batch.texts, batch.rows)
        for doc_id, license_tag, text, row, ids in zip(*columns, _each(runs), strict=True):
            if not self._tokenizer.holds_special(ids):
                kept.add(doc_id, license_tag, text, row)
                continue
            self._hold_against_the_oracle(text, ids, row)
            detail = "its text gives an id that only a builder may write"
            self.rejects.append(Reject(self._shard.path, row, SPECIAL_TOKENS, detail))
        return kept, self._tokenizer.encode(kept.texts)

    def _spot_check(self, batch: _Batch, runs: TokenRuns) -> int:
        """Holds one document in a thousand, chosen by its id, against the oracle; how many were."""
        checked = 0
        for number, doc_id in enumerate(batch.doc_ids):
            if is_spot_checked(doc_id):
                ids = runs.ids[runs.starts[number] :][: runs.lengths[number]]
                checked += self._hold_against_the_oracle(batch.texts[number], ids, batch.rows[number])
        return checked

    def _hold_against_the_oracle(self, text: str, ids: NDArray[np.int32], row: int) -> bool:
        """Whether there is an oracle."""
        expected = self._tokenizer.oracle_ids(text)
        if expected is not None and not np.array_equal(ids, expected):
            place, driver = f"{self._shard.path} row {row}", self._tokenizer.driver
            raise OracleDisagrees(f"{place}: {driver} and tiktoken disagree")
        return expected is not None


def _each(runs: TokenRuns) -> list[NDArray[np.int32]]:
    return [runs.ids[start : start + length] for start, length in zip(runs.starts, runs.lengths, strict=True)]


def is_spot_checked(doc_id: str) -> bool:
    """Whether a document is among the one in a thousand whose ids are computed twice."""
    digest = hashlib.sha256(f"spot-check\0{doc_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < _SPOT_CHECK_BELOW


def _documents(
    block: bytes, rows: int, file: Path, first_row: int, window: Window
) -> Iterable[tuple[int, DocumentText | None]]:
    """(row, document) of the block's `rows` lines in the window; None for a fatal row, which is not read.

    Raises:
        InputError: a line that is no Document (says which).
    """
    if window == WHOLE:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # found again below, with its row
            documents = _decoder.decode_lines(block)
            if len(documents) == rows:
                return enumerate(documents, first_row)
    lines = window.of(block.splitlines(), first_row)
    return ((row, None if row in window.fatal else _decode(line, file, row)) for row, line in lines)


def _decode(line: bytes, file: Path, row: int) -> DocumentText:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"row {row} is no Document ({error})", file, "verify the corpus, then rebuild it") from None


ENCODED = f"{WORK}/encoded"
DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source_shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
    ]
)


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
    """Ids of the shard's documents of `split`, each closed by the end of text, and a table of the documents.

    Files, in this order: raw int32 ids; Parquet of DOCUMENTS_SCHEMA; rejects. Counts: see `ShardEncoding`, and
    `rejected/<reason>`.

    Raises:
        InputError: a line that is no Document.
        OracleDisagrees: see there.
    """
    encoder = cached_encoder(tokenizer_sha256, driver)
    split_of = split_rule(valid_fraction)
    encoding = ShardEncoding(shard, window, encoder)
    tables: list[pa.Table] = []
    stem = f"{ENCODED}/{driver}/{shard.name}"
    tokens_name, documents_name, rejects_name = f"{stem}.bin", f"{stem}.parquet", f"{stem}{SUFFIX}"
    with DurableFile(folder.path(tokens_name)) as output:
        for block in encoding.blocks(lambda doc_id: split_of(doc_id) == split):
            output.write(block.runs.ids.data)
            tables.append(_table(block, shard.path))
    counts = encoding.all_counts()
    tokens = OutputFile.plain(tokens_name, counts["tokens"], output)
    listed = write_table(folder.path(documents_name), documents_name, tables, DOCUMENTS_SCHEMA)
    rejects = [reject.to_json() for reject in encoding.rejects]
    rejected = write_rows(folder.path(rejects_name), rejects_name, rejects, zstd_level)
    return Receipt([tokens, listed, rejected], counts, {"driver": encoder.driver})


def load_tokenizers(tokenizer_sha256: str, driver: Driver, documents: int) -> None:
    """Loads what a process, and those forked from it, keep for life: the encoder, its tables, the oracle.

    Args:
        documents: about how many will be encoded. Of a few, the oracle waits for the first that is held against it.
    """
    encoder = cached_encoder(tokenizer_sha256, driver)
    encoder.encode([""])
    if documents > _SURELY_SAMPLED:
        encoder.oracle.encode_ordinary("")


@functools.lru_cache(maxsize=1)
def cached_encoder(tokenizer_sha256: str, driver: Driver) -> Encoder:
    """The encoder, loaded once in a process."""
    return load_encoder(tokenizer_sha256, driver=driver)


def _table(block: EncodedBlock, path: str) -> pa.Table:
    columns = [
        strings(block.doc_ids),
        repeated(path, len(block.rows)),
        column_of(np.array(block.rows, np.int64)),
        column_of(block.runs.lengths),
    ]
    return pa.Table.from_arrays(columns, schema=DOCUMENTS_SCHEMA)
