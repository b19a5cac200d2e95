"""Parquet files written from a stream of Arrow tables."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from pipeline_assets.corpus.formats.parquet import HASH_BLOCK_ROWS, ParquetOutput
from pipeline_assets.spine.staging import OutputFile


def regroup_rows(
    tables: Iterable[pa.Table], schema: pa.Schema, rows_per_table: int = HASH_BLOCK_ROWS
) -> Iterator[pa.Table]:
    """Regroup rows into tables of `rows_per_table` rows; the last may be smaller.

    No table is empty, because `datasets` cannot read a file whose first row group is empty.
    """
    pending = pa.Table.from_batches([], schema)
    for table in tables:
        pending = pa.concat_tables([pending, table])
        while pending.num_rows >= rows_per_table:
            yield pending.slice(0, rows_per_table).combine_chunks()
            pending = pending.slice(rows_per_table)
    if pending.num_rows:
        yield pending.combine_chunks()


def write_table(path: Path, name: str, tables: Iterable[pa.Table], schema: pa.Schema) -> OutputFile:
    """Write tables of one schema, one after another, to one file."""
    with ParquetOutput(path, schema) as output:
        for table in tables:
            output.write(table)
    return output.output(name)
