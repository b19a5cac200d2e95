"""The stage `encode`: a Document shard → its tokens as one run, and where in it each document lies.

Documents of a corpus are numbered: sources by name, their shards, their rows.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow import column_of, numbers, strings
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window
from pipeline_assets.corpus.tokens.encode import EncodeShard, ShardEncoding
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer

SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("license_tag", pa.string()),
        ("row", pa.int64()),
        ("start", pa.int64()),
        ("tokens", pa.int32()),
    ]
)


@dataclass(frozen=True)
class EncodedShard:
    """What became of a shard.

    Attributes:
        path: of the shard, in its artifact.
        token_file: int32 ids, document after document, each with its end.
        document_file: of `documents` lines, see `DocumentTable`.
        rejected: texts that were not encoded.
    """

    source: str
    path: str
    token_file: Path
    document_file: Path
    documents: int
    rejected: int = 0


class DocumentTable:
    """The documents of an encoded shard, mapped: what isn't asked for isn't read.

    Attributes:
        rows: of the shard, shape (documents,).
        starts: first token in the run, shape (documents,).
        tokens: how many, shape (documents,).
    """

    @classmethod
    def of(cls, shard: EncodedShard) -> "DocumentTable":
        """That of a shard; the last ones are kept open, since every range of rows asks for all of them."""
        written = shard.document_file.stat()
        return _kept_open(shard.document_file, written.st_ino, written.st_mtime_ns)

    def __init__(self, path: Path) -> None:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        self._doc_ids: pa.ChunkedArray = table["doc_id"]
        self._license_tags: pa.ChunkedArray = table["license_tag"]
        self.rows: NDArray[np.int64] = numbers(table["row"])
        self.starts: NDArray[np.int64] = numbers(table["start"])
        self.tokens: NDArray[np.int32] = numbers(table["tokens"])

    def doc_ids(self, documents: NDArray[np.int64]) -> pa.ChunkedArray:
        """The ids of some documents, in this order."""
        return self._doc_ids.take(column_of(documents))

    def license_tags(self, documents: NDArray[np.int64]) -> pa.ChunkedArray:
        """The licences of some documents, in this order."""
        return self._license_tags.take(column_of(documents))


@functools.lru_cache(maxsize=128)
def _kept_open(path: Path, inode: int, modified_ns: int) -> DocumentTable:
    return DocumentTable(path)


def encode_to_run(
    shard: EncodeShard, window: Window, folder: BuildFolder, tokenizer: TokenizerFile, zstd_level: int
) -> Receipt:
    """Files: the token run; its documents; rejects. Counts: see `ShardEncoding`, and `rejected/<reason>`.

    Raises:
        InputError: a line that is no Document, or a tokenizer that can't be loaded.
        OracleDisagrees: see there.
    """
    library = load_tokenizer(tokenizer)
    encoding = ShardEncoding(shard, window, library)
    stem = f"{WORK}/encoded/{library.driver}/{shard.name}"
    tokens_name, documents_name, rejects_name = f"{stem}.tokens", f"{stem}.arrow", f"{stem}{SUFFIX}"
    doc_ids: list[str] = []
    license_tags: list[str] = []
    rows: list[int] = []
    lengths = [np.empty(0, np.int32)]
    with DurableFile(folder.path(tokens_name)) as output:
        for block in encoding.blocks():
            output.write(block.runs.ids.data)
            doc_ids += block.doc_ids
            license_tags += block.license_tags
            rows += block.rows
            lengths.append(block.runs.lengths)
    tokens = np.concatenate(lengths)
    starts = np.cumsum(tokens, dtype=np.int64) - tokens
    texts = [strings(doc_ids), strings(license_tags)]
    columns = [*texts, column_of(np.array(rows, np.int64)), column_of(starts), column_of(tokens)]
    with DurableFile(folder.path(documents_name)) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
    counts, rejects = encoding.all_counts(), [reject.to_json() for reject in encoding.rejects]
    files = [
        OutputFile.plain(tokens_name, counts["tokens"], output),
        OutputFile.plain(documents_name, len(rows), file),
        write_rows(folder.path(rejects_name), rejects_name, rejects, zstd_level),
    ]
    return Receipt(files, counts, {"driver": library.driver})


def load_tables(tokenizer: TokenizerFile) -> None:
    """Loads what `encode_to_run` keeps for the life of its process: the tokenizer, its tables, its oracle."""
    library = load_tokenizer(tokenizer)
    library.encode(["the first text builds the tables"])
    library.oracle_ids("")


@dataclass(frozen=True)
class SourceRange:
    """The numbers of a source's documents: from `first` to before `stop`; `rejected` others were not encoded."""

    name: str
    first: int
    stop: int
    rejected: int = 0


def first_documents(shards: Sequence[EncodedShard]) -> NDArray[np.int64]:
    """The number of each shard's first document, and how many there are, shape (shards + 1,)."""
    return np.cumsum([0, *(shard.documents for shard in shards)], dtype=np.int64)


def source_ranges(shards: Sequence[EncodedShard]) -> list[SourceRange]:
    """The sources, in the order of their names as the shards are."""
    firsts = first_documents(shards).tolist()
    stops: dict[str, int] = {}
    rejected: dict[str, int] = {}
    for shard, stop in zip(shards, firsts[1:], strict=True):
        stops[shard.source] = stop
        rejected[shard.source] = rejected.get(shard.source, 0) + shard.rejected
    return [
        SourceRange(source, first, stop, rejected[source])
        for (source, stop), first in zip(stops.items(), [0, *stops.values()], strict=False)
    ]


def document_lengths(shards: Sequence[EncodedShard]) -> NDArray[np.int32]:
    """Tokens of each document with its end, shape (documents,): 4 bytes a document."""
    firsts = first_documents(shards)
    lengths = np.empty(firsts[-1], np.int32)
    for shard, first in zip(shards, firsts.tolist(), strict=False):
        lengths[first : first + shard.documents] = DocumentTable(shard.document_file).tokens
    return lengths
