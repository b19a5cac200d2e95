"""The stage `encode`: a Document shard → its tokens as one run, and where in it each document lies."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.formats.arrow_columns import numbers, strings, to_array
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.sampling import Split, split_rule
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer, TokenRuns
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.ledger import Reject, count_rejects, dropped_key
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

BLANKS, SPECIAL_TOKENS = "blanks", "special_tokens"
OTHER_SPLIT = dropped_key("other_split")
_BLOCK_BYTES = 4 << 20
_SPOT_CHECK_BELOW = 2**64 // 1000
_SURELY_SAMPLED = 4000  # of so many documents one is spot-checked, at odds of 50 to 1
TABLE_SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("license_tag", pa.string()),
        ("row", pa.int64()),
        ("start", pa.int64()),
        ("tokens", pa.int32()),
    ]
)
_decoder = msgspec.json.Decoder(DocumentText)
logger = logging.getLogger("corpusmill")
T = TypeVar("T")
Rows = list[tuple[int, DocumentText]]
"""Documents with their rows in the shard."""


class OracleDisagrees(Exception):
    """The fast driver's ids of a document differ from the oracle's: nothing that it encoded can be trusted."""


def with_oracle_fallback(tokenizer: TokenizerFile, encode: Callable[[TokenizerFile], T]) -> T:
    """What is made with a tokenizer; with the oracle, if its fast driver ever disagrees with that: all of it again."""
    try:
        return encode(tokenizer)
    except OracleDisagrees as disagreement:
        logger.error("%s; tiktoken encodes everything again", disagreement)
        return encode(replace(tokenizer, driver="tiktoken"))


def encode_shard(
    shard: DocumentShard,
    window: Window,
    folder: StagingView,
    tokenizer: TokenizerFile,
    zstd_level: int,
    split: Split | None = None,
    valid_fraction: str = "0",
) -> Receipt:
    """Ids of the shard's documents, each closed by the end of the document.

    Files, in this order: raw int32 ids; what `DocumentTable` reads; rejects: rows that kill their worker, texts that
    the library doesn't survive, or that give a special id. Counts: `rows` read, `documents`, `tokens` and `bytes` of
    text encoded, `spot_checked`, `dropped/other_split`, `rejected/<reason>`, `encoded/<loss>` as `Losses` has them.

    Args:
        split: whose documents are encoded, by `split_rule`; None for all.
    Raises:
        InputError: a line that is no Document, or a tokenizer that can't be loaded.
        OracleDisagrees: see there.
    """
    library = load_tokenizer(tokenizer)
    split_of = split_rule(valid_fraction)
    encoding = _Encoding(shard.path, library, lambda doc_id: split is None or split_of(doc_id) == split)
    stem = f"{WORK}/encoded/{library.driver}/{shard.name}"
    tokens_name, documents_name, rejects_name = f"{stem}.tokens", f"{stem}.arrow", f"{stem}{SUFFIX}"
    doc_ids, license_tags, rows, lengths = list[str](), list[str](), list[int](), [np.empty(0, np.int32)]
    with DurableFile(folder.path(tokens_name)) as output:
        for read, fatal in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            documents, runs = encoding.encode_block(read, fatal)
            output.write(runs.ids.data)
            doc_ids += [document.doc_id for _, document in documents]
            license_tags += [document.license_tag for _, document in documents]
            rows += [row for row, _ in documents]
            lengths.append(runs.lengths)
    tokens = np.concatenate(lengths)
    starts = np.cumsum(tokens, dtype=np.int64) - tokens
    texts = [strings(doc_ids), strings(license_tags)]
    columns = [*texts, to_array(np.array(rows, np.int64)), to_array(starts), to_array(tokens)]
    with DurableFile(folder.path(documents_name)) as file, pa.ipc.new_file(file, TABLE_SCHEMA) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=TABLE_SCHEMA))
    rejects = [reject.to_json() for reject in encoding.rejects]
    files = [
        OutputFile.plain(tokens_name, encoding.counts["tokens"], output),
        OutputFile.plain(documents_name, len(rows), file),
        write_rows(folder.path(rejects_name), rejects_name, rejects, zstd_level),
    ]
    return Receipt(files, {**encoding.counts, **count_rejects(encoding.rejects)}, {"driver": library.driver})


class _Encoding:
    """A shard on its way to ids: what was counted and rejected so far."""

    def __init__(self, path: str, tokenizer: Tokenizer, is_chosen: Callable[[str], bool]) -> None:
        self._path, self._tokenizer, self._is_chosen = path, tokenizer, is_chosen
        self.counts = Counter(dict.fromkeys(("rows", "documents", "tokens", "bytes", "spot_checked"), 0))
        self.rejects: list[Reject] = []

    def encode_block(self, read: Rows, fatal: Sequence[int]) -> tuple[Rows, TokenRuns]:
        """Of the next block the documents that are encoded, and their ids, each closed by the end of the document."""
        self.rejects += [Reject(self._path, row, KILLED_WORKER) for row in fatal]
        documents, runs = self._encoded([*self._encodable(read)])
        self.counts["spot_checked"] += self._spot_check(documents, runs)
        closed = runs.closed_by(self._tokenizer.end_of_document)
        self.counts.update(
            rows=len(read) + len(fatal), documents=len(documents), tokens=len(closed.ids), bytes=runs.text_bytes
        )
        self.counts.update(runs.losses.to_counts())
        return documents, closed

    def _encodable(self, read: Rows) -> Iterator[tuple[int, DocumentText]]:
        for row, document in read:
            if not self._is_chosen(document.doc_id):
                self.counts[OTHER_SPLIT] += 1
            elif not self._tokenizer.can_encode(document.text):
                detail = "a million blanks in a row overflow the tokenizer"
                logger.warning("%s row %d: document %r is rejected: %s", self._path, row, document.doc_id, detail)
                self.rejects.append(Reject(self._path, row, BLANKS, detail))
            else:
                yield row, document

    def _encoded(self, documents: Rows) -> tuple[Rows, TokenRuns]:
        """The documents that give no special id, and their ids."""
        runs = self._tokenizer.encode([document.text for _, document in documents])
        if not self._tokenizer.holds_special(runs.ids):
            return documents, runs
        kept: Rows = []
        for (row, document), ids in zip(documents, runs.each(), strict=True):
            if not self._tokenizer.holds_special(ids):
                kept.append((row, document))
                continue
            self._hold_against_the_oracle(document.text, ids, row)
            detail = "its text gives an id that only a builder may write"
            self.rejects.append(Reject(self._path, row, SPECIAL_TOKENS, detail))
        return kept, self._tokenizer.encode([document.text for _, document in kept])

    def _spot_check(self, documents: Rows, runs: TokenRuns) -> int:
        """Holds one document in a thousand, chosen by its id, against the oracle; how many were."""
        chosen = [number for number, (_, document) in enumerate(documents) if is_spot_checked(document.doc_id)]
        ids = [*runs.each()] if chosen else []
        return sum(self._hold_against_the_oracle(documents[one][1].text, ids[one], documents[one][0]) for one in chosen)

    def _hold_against_the_oracle(self, text: str, ids: NDArray[np.int32], row: int) -> bool:
        """Whether there is an oracle."""
        expected = self._tokenizer.oracle_ids(text)
        if expected is not None and not np.array_equal(ids, expected):
            raise OracleDisagrees(f"{self._path} row {row}: {self._tokenizer.driver} and tiktoken disagree")
        return expected is not None


def is_spot_checked(doc_id: str) -> bool:
    """Whether a document is among the one in a thousand whose ids are computed twice."""
    digest = hashlib.sha256(f"spot-check\0{doc_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < _SPOT_CHECK_BELOW


class DocumentTable:
    """The documents of an encoded shard, mapped: what isn't asked for isn't read.

    Attributes:
        doc_ids, license_tags: of each document.
        rows: of the shard, shape (documents,).
        starts: first token in the run, shape (documents,).
        tokens: how many, with the end of the document, shape (documents,).
    """

    def __init__(self, path: Path) -> None:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        self.doc_ids: pa.ChunkedArray = table["doc_id"]
        self.license_tags: pa.ChunkedArray = table["license_tag"]
        self.rows: NDArray[np.int64] = numbers(table["row"])
        self.starts: NDArray[np.int64] = numbers(table["start"])
        self.tokens: NDArray[np.int32] = numbers(table["tokens"])


def load_tables(tokenizer: TokenizerFile, documents: int, controls: Sequence[str] = ()) -> None:
    """Load what encoding keeps for the life of its process: the tokenizer, its tables, its oracle.

    Args:
        documents: about how many will be encoded. Of a few, the oracle waits for the first that is held against it.
        controls: control tokens of their own in the texts.
    """
    library = load_tokenizer(tokenizer)
    first = "the first text builds the tables"
    if controls:
        library.encode_controlled([first.encode()], controls)
    else:
        library.encode([first])
    if documents > _SURELY_SAMPLED:
        library.oracle_ids("")
