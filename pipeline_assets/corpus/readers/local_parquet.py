"""Local Parquet files, read in runs of consecutive row groups."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
from pipeline_assets.corpus.readers.columns import check_columns, convert_batch
from pipeline_assets.corpus.readers.faults import Row
from pipeline_assets.corpus.readers.source_folder import SourceFile, open_source
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.stage import group_by_size

_BATCH_ROWS = 1024
_FIX = "fetch or write the file again, or exclude it"


@dataclass(frozen=True)
class RowGroupRun:
    """Consecutive row groups of a Parquet file, numbered from 0."""

    file: SourceFile
    first_group: int
    stop_group: int  # exclusive
    first_row: int  # number in the file
    rows: int
    bytes: int  # uncompressed, according to the footer


def row_group_runs(file: SourceFile, columns: LicensedColumns | None, run_bytes: int) -> list[RowGroupRun]:
    """Divide the row groups of a file into runs.

    A run ends with the row group that reaches `run_bytes` uncompressed bytes. Raise UsageError if the file lacks the
    only column that `columns` names for a field; alternative columns of a field are not checked.
    """
    metadata = read_local_footer(file)
    check_columns(metadata.schema.to_arrow_schema(), columns or (), file.path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    runs: list[RowGroupRun] = []
    first = first_row = 0
    for run in group_by_size(groups, lambda group: group.total_byte_size, run_bytes):
        rows = sum(group.num_rows for group in run)
        size = sum(group.total_byte_size for group in run)
        runs.append(RowGroupRun(file, first, first + len(run), first_row, rows, size))
        first, first_row = first + len(run), first_row + rows
    return runs


def read_local_footer(file: SourceFile) -> pq.FileMetaData:
    """Read the footer of a file; raise InputError if the footer is not readable."""
    with open_source(file) as opened:
        try:
            return pq.read_metadata(opened)
        except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a column's name is not UTF-8
            what = f"the Parquet footer cannot be read ({one_line(error)})"
            raise InputError(what, file.path, _FIX) from None


def parquet_rows(run: RowGroupRun, batch_rows: int = _BATCH_ROWS) -> Iterator[tuple[int, Row]]:
    """Yield each row's number in the file, and the row or its fault.

    InputError is raised if the file cannot be read.
    """
    try:
        # With pre_buffer, or with all groups in one call, memory would grow with the run.
        with (
            open_source(run.file) as opened,
            pq.ParquetFile(opened, pre_buffer=False, page_checksum_verification=True) as parquet,
        ):
            number = run.first_row
            for group in range(run.first_group, run.stop_group):
                for batch in parquet.iter_batches(batch_rows, row_groups=[group], use_threads=False):
                    yield from enumerate(convert_batch(batch), number)
                    number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"row groups {run.first_group} to {run.stop_group - 1} cannot be read ({one_line(error)})"
        raise InputError(what, run.file.path, _FIX) from None
