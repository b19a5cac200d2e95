"""Rows of an artifact as Arrow tables, shard by shard: of Documents the fields of their struct, of other rows those of
their files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.rows.conversations import ConversationRows
from pipeline_assets.corpus.rows.documents import DocumentRows
from pipeline_assets.corpus.rows.store import RowStore
from pipeline_assets.corpus.spine.errors import UsageError

_TYPES = {str: pa.string(), int: pa.int64()}


def _fields(struct: type[msgspec.Struct]) -> list[pa.Field]:
    return [
        pa.field(one.name, pa.struct(_fields(Meta)) if one.type is Meta else _TYPES[one.type], nullable=False)
        for one in msgspec.structs.fields(struct)
    ]


# Texts of more than 2 GiB may lie in one table.
DOCUMENT_SCHEMA = pa.schema(_fields(Document)).set(0, pa.field("text", pa.large_string(), nullable=False))
_decoder = msgspec.json.Decoder(Document)


@dataclass(frozen=True)
class TableShard:
    """A shard of rows, and the schema of all shards of the artifact."""

    file: Path
    schema: pa.Schema

    def tables(self) -> Iterator[pa.Table]:
        """Its rows, in order, in pieces that fit in memory. Raises InputError where the file is damaged."""
        if self.file.name.endswith(SUFFIX):
            for block in read_line_blocks(self.file):
                documents = msgspec.to_builtins(_decoder.decode_lines(block))
                yield pa.Table.from_pylist(documents, schema=self.schema)
        else:
            with open_parquet(self.file) as parquet:
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group).cast(self.schema)


def table_shards(store: RowStore) -> list[TableShard]:
    """The shards, in manifest order. Raises UsageError where the rows are no text, but tokens for instance."""
    folder = store.artifact.folder
    if isinstance(store, DocumentRows):
        return [TableShard(store.artifact.path(shard), DOCUMENT_SCHEMA) for shard in store.files]
    if isinstance(store, ConversationRows):
        files = [store.artifact.path(name) for name in store.files]
        return [TableShard(file, pq.read_schema(file).remove_metadata()) for file in files]
    fix = "give documents (normalized, filtered, deduplicated, …) or normalised rows"
    raise UsageError(f"this is {store.artifact.manifest.kind}, whose rows are no text", folder, fix)
