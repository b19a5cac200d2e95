"""Rows of an artifact as Arrow tables, shard by shard: Documents in one schema, other rows as their files have them.

text, source, domain, doc_id, license_tag, created_at   text
meta                                                     source_file, source_row, license_evidence, title, url,
                                                         language, extra
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.rows.conversations import ConversationRows
from pipeline_assets.corpus.rows.documents import DocumentRows
from pipeline_assets.corpus.rows.store import RowStore
from pipeline_assets.corpus.spine.errors import UsageError

_META = pa.struct(
    [
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_row", pa.int64(), nullable=False),
        *(
            pa.field(name, pa.string(), nullable=False)
            for name in ("license_evidence", "title", "url", "language", "extra")
        ),
    ]
)
_LABELS = ("source", "domain", "doc_id", "license_tag", "created_at")
DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("text", pa.large_string(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in _LABELS),
        pa.field("meta", _META, nullable=False),
    ]
)
_decoder = msgspec.json.Decoder(Document)


@dataclass(frozen=True)
class TableShard:
    """A shard of rows.

    Attributes:
        file: on disk.
        name: of the shard, without its ending.
        schema: of all shards of the artifact.
    """

    file: Path
    name: str
    schema: pa.Schema

    def tables(self) -> Iterator[pa.Table]:
        """Its rows, in order, in pieces that fit in memory.

        Raises:
            InputError: the file is damaged.
        """
        if self.file.name.endswith(SUFFIX):
            for block in read_line_blocks(self.file):
                documents = msgspec.to_builtins(_decoder.decode_lines(block))
                yield pa.Table.from_pylist(documents, schema=self.schema)
        else:
            with open_parquet(self.file) as parquet:
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group).cast(self.schema)


def table_shards(store: RowStore) -> list[TableShard]:
    """The shards of what has rows of text, in manifest order.

    Raises:
        UsageError: its rows are of another kind, tokens for instance.
    """
    folder = store.artifact.folder
    if isinstance(store, DocumentRows):
        return [
            TableShard(store.artifact.path(shard), Path(shard).name.removesuffix(SUFFIX), DOCUMENT_SCHEMA)
            for shard in store.shards
        ]
    if isinstance(store, ConversationRows):
        files = [store.artifact.path(name) for name in store.files]
        return [TableShard(file, file.stem, pq.read_schema(file).remove_metadata()) for file in files]
    fix = "give documents (normalized, filtered, deduplicated, …) or normalised rows"
    raise UsageError(f"this is {store.artifact.manifest.kind}, whose rows are no text", folder, fix)
