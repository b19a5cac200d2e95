"""Stage `encode`, which converts Documents to token ids and document tables.

The ids of o200k Harmony are checked with an oracle: tiktoken, a second library, also encodes 0.1 % of the documents.
"""

import hashlib
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_arrow, to_numpy
from pipeline_assets.corpus.formats.checked_table import map_checked_table, write_checked_table
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.token_runs import TokenRuns
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.corpus.training_set import Split, split_rule
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.ledger import count_rejects, dropped_key
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView

_BLANKS_REASON, _SPECIAL_REASON = "blanks", "special_tokens"
OTHER_SPLIT_KEY = dropped_key("other_split")
_BLOCK_BYTES = 4 << 20
_SPOT_CHECK_LIMIT = (2**64 // 1000).to_bytes(8, "big")
_MIN_ORACLE_DOCUMENTS = 4000  # at least one of so many documents is spot-checked, at odds of 50 to 1
TABLE_SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("license_tag", pa.string()),
        ("row", pa.int64()),
        ("start", pa.int64()),
        ("tokens", pa.int32()),
        ("crc32", pa.uint32()),
    ]
)
_TABLE_NOUN = "table of documents"
_decoder = msgspec.json.Decoder(DocumentText)
logger = logging.getLogger("corpusmill")
T = TypeVar("T")
NumberedDocuments = list[tuple[int, DocumentText]]
"""Documents with their rows in the shard."""


class OracleMismatchError(Exception):
    """Error if the fast library and the oracle encode a document differently.

    After this error, no output of the fast library can be trusted. See `o200k_harmony` for the oracle.
    """


def with_oracle_fallback(tokenizer_file: TokenizerFile, encode: Callable[[TokenizerFile], T]) -> T:
    """Call `encode`; if it raises OracleMismatchError, call it again with tiktoken."""
    try:
        return encode(tokenizer_file)
    except OracleMismatchError as disagreement:
        logger.error("%s; tiktoken encodes everything again", disagreement)
        return encode(replace(tokenizer_file, driver="tiktoken"))


def encode_shard(
    shard: DocumentShard,
    window: Window,
    folder: StagingView,
    tokenizer: TokenizerFile,
    zstd_level: int,
    split: Split | None = None,
    valid_fraction: str = "0",
) -> Receipt:
    """Encode the documents of a shard; add the end-of-document token to each.

    With `split`, only documents that `split_rule(valid_fraction)` assigns to this split are encoded. Raise
    OracleMismatchError if the fast library and the oracle encode a document differently.

    Returns:
        A receipt of three files: raw int32 ids, the table for `DocumentTable`, and rejects. The rejects are poison
        rows, texts that would crash the library, and texts that encode to a special id. The counts are `rows`
        (read), the encoded `documents`, `bytes` and `tokens` (with end tokens), `spot_checked` (documents that the
        oracle checked), `dropped/other_split`, `rejected/<reason>`, and the fields of `Losses` as `encoded/<field>`.
    """
    library = load_tokenizer(tokenizer)
    get_split = split_rule(valid_fraction)
    encoding = _ShardEncoder(shard.path, library, lambda doc_id: split is None or get_split(doc_id) == split)
    stem = f"{WORK_FOLDER}/encoded/{library.driver}/{shard.name}"
    tokens_name, documents_name, rejects_name = f"{stem}.tokens", f"{stem}.arrow", f"{stem}{SUFFIX}"
    doc_ids, license_tags, rows, lengths = list[str](), list[str](), list[int](), [np.empty(0, np.int32)]
    checksums: list[int] = []
    with DurableFile(folder.path(tokens_name)) as output:
        for rows_read, poison_rows in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            documents, runs = encoding.encode_block(rows_read, poison_rows)
            output.write(runs.ids.data)
            doc_ids += [document.doc_id for _, document in documents]
            license_tags += [document.license_tag for _, document in documents]
            rows += [row for row, _ in documents]
            lengths.append(runs.lengths)
            checksums += [zlib.crc32(ids.data) for ids in runs.split()]
    tokens = np.concatenate(lengths)
    starts = np.cumsum(tokens, dtype=np.int64) - tokens
    texts = [string_column(doc_ids), string_column(license_tags)]
    numbers = [np.array(rows, np.int64), starts, tokens, np.array(checksums, np.uint32)]
    table = pa.Table.from_arrays([*texts, *map(to_arrow, numbers)], schema=TABLE_SCHEMA)
    rejects = [reject.to_json() for reject in encoding.rejects]
    files = [
        OutputFile.uncompressed(tokens_name, encoding.counts["tokens"], output),
        write_checked_table(folder, documents_name, table),
        write_rows(folder.path(rejects_name), rejects_name, rejects, zstd_level),
    ]
    return Receipt(files, {**encoding.counts, **count_rejects(encoding.rejects)}, {"driver": library.driver})


class _ShardEncoder:
    """Encoder of one shard, which collects counts and rejects."""

    def __init__(self, path: str, tokenizer: Tokenizer, is_chosen: Callable[[str], bool]) -> None:
        self._path, self._tokenizer, self._is_chosen = path, tokenizer, is_chosen
        self.counts = Counter(dict.fromkeys(("rows", "documents", "tokens", "bytes", "spot_checked"), 0))
        self.rejects: list[Reject] = []

    def encode_block(self, rows: NumberedDocuments, poison_rows: Sequence[int]) -> tuple[NumberedDocuments, TokenRuns]:
        """Encode a block; return the encoded documents and their token ids with end ids.

        `poison_rows` become rejects. Documents that are not in the requested split are counted, but not encoded.
        """
        self.rejects += [Reject(self._path, row, KILLED_WORKER) for row in poison_rows]
        documents, runs = self._encode([*self._encodable(rows)])
        for (row, document), ids in zip(documents, runs.split(), strict=True):
            if is_spot_checked(document.doc_id):
                self.counts["spot_checked"] += self._compare_with_oracle(document.text, ids, row)
        closed = runs.with_ends(self._tokenizer.end_of_document_id)
        self.counts.update(
            rows=len(rows) + len(poison_rows), documents=len(documents), tokens=len(closed.ids), bytes=runs.text_bytes
        )
        self.counts.update(runs.losses.to_counts())
        return documents, closed

    def _encodable(self, rows: NumberedDocuments) -> Iterator[tuple[int, DocumentText]]:
        for row, document in rows:
            if not self._is_chosen(document.doc_id):
                self.counts[OTHER_SPLIT_KEY] += 1
            elif not self._tokenizer.can_encode(document.text):
                detail = "a million blanks in a row overflow the tokenizer"
                logger.warning("%s row %d: document %r is rejected: %s", self._path, row, document.doc_id, detail)
                self.rejects.append(Reject(self._path, row, _BLANKS_REASON, detail))
            else:
                yield row, document

    def _encode(self, documents: NumberedDocuments) -> tuple[NumberedDocuments, TokenRuns]:
        """Encode documents; reject each document whose ids include a special id."""
        runs = self._tokenizer.encode([document.text for _, document in documents])
        if not self._tokenizer.contains_special(runs.ids):
            return documents, runs
        kept: NumberedDocuments = []
        for (row, document), ids in zip(documents, runs.split(), strict=True):
            if not self._tokenizer.contains_special(ids):
                kept.append((row, document))
                continue
            self._compare_with_oracle(document.text, ids, row)
            detail = "its text gives an id that only a builder may write"
            self.rejects.append(Reject(self._path, row, _SPECIAL_REASON, detail))
        return kept, self._tokenizer.encode([document.text for _, document in kept])

    def _compare_with_oracle(self, text: str, ids: NDArray[np.int32], row: int) -> bool:
        """Compare `ids` with the oracle's; return False if the tokenizer has no oracle.

        Raise OracleMismatchError if the ids differ.
        """
        expected = self._tokenizer.oracle_ids(text)
        if expected is not None and not np.array_equal(ids, expected):
            raise OracleMismatchError(f"{self._path} row {row}: {self._tokenizer.driver} and tiktoken disagree")
        return expected is not None


def is_spot_checked(doc_id: str) -> bool:
    """Check whether the oracle encodes a document; the doc_id's hash selects 0.1 %."""
    return hashlib.sha256(b"spot-check\0" + doc_id.encode()).digest() < _SPOT_CHECK_LIMIT


class DocumentTable:
    """Memory-mapped table of an encoded shard; all arrays have shape (documents,).

    Attributes:
        rows: Row number of each document in the shard.
        starts: Position of each document's first token in the shard's file of token ids.
        tokens: Number of tokens of each document, with its end-of-document token.
        checksums: CRC-32 of the stored bytes of each document's token ids.
    """

    def __init__(self, path: Path) -> None:
        table = map_checked_table(path, _TABLE_NOUN)
        with errors_as_damage(path, _TABLE_NOUN):
            table = table.cast(TABLE_SCHEMA)
        self.doc_ids: pa.ChunkedArray = table["doc_id"]
        self.license_tags: pa.ChunkedArray = table["license_tag"]
        self.rows: NDArray[np.int64] = to_numpy(table["row"])
        self.starts: NDArray[np.int64] = to_numpy(table["start"])
        self.tokens: NDArray[np.int32] = to_numpy(table["tokens"])
        self.checksums: NDArray[np.uint32] = to_numpy(table["crc32"])


def warm_up_tokenizer(tokenizer_file: TokenizerFile, documents: int, controls: Sequence[str] = ()) -> None:
    """Load a tokenizer and its tables before a process encodes texts.

    The oracle is loaded only for more than 4,000 `documents`. `controls` are the names of control tokens in the texts.
    """
    library = load_tokenizer(tokenizer_file)
    first = "the first text builds the tables"
    if controls:
        library.encode_controlled([first.encode()], controls)
    else:
        library.encode([first])
    if documents > _MIN_ORACLE_DOCUMENTS:
        library.oracle_ids("")
