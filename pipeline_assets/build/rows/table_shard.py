"""Shards of text rows as Arrow tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks
from pipeline_assets.corpus.formats.parquet import StoredParquet, read_footer
from pipeline_assets.corpus.formats.python_columns import rows_to_table
from pipeline_assets.spine.damage import errors_as_damage

_ARROW_TYPES = {str: pa.string(), int: pa.int64()}


def _arrow_fields(struct: type[msgspec.Struct]) -> list[pa.Field]:
    fields = []
    for column in msgspec.structs.fields(struct):
        arrow_type = pa.struct(_arrow_fields(Meta)) if column.type is Meta else _ARROW_TYPES[column.type]
        fields.append(pa.field(column.name, arrow_type, nullable=False))
    return fields


# large_string: the texts of one table may exceed 2 GiB.
DOCUMENT_SCHEMA = pa.schema(_arrow_fields(Document)).set(0, pa.field("text", pa.large_string(), nullable=False))
DOCUMENT_DECODER = msgspec.json.Decoder(Document)


@dataclass(frozen=True)
class TableShard:
    """Shard of text rows: compressed JSON lines of Documents, or a Parquet file."""

    file: Path

    @cached_property
    def schema(self) -> pa.Schema:
        is_lines = self.file.name.endswith(SUFFIX)
        return DOCUMENT_SCHEMA if is_lines else read_footer(self.file).schema.to_arrow_schema().remove_metadata()

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows in order, as tables that fit in memory."""
        if self.file.name.endswith(SUFFIX):
            for block in read_line_blocks(self.file):
                with errors_as_damage(self.file, "shard of documents"):
                    documents = msgspec.to_builtins(DOCUMENT_DECODER.decode_lines(block))
                yield rows_to_table(documents, self.schema)
        else:
            with StoredParquet(self.file) as parquet:
                for table in parquet.iter_row_groups():
                    yield table.cast(self.schema)
