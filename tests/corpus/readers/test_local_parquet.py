"""Local Parquet: runs of row groups from the footer, row numbers and faults."""

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal

from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
from pipeline_assets.corpus.readers.local_parquet import parquet_rows, row_group_runs
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import InputError

Source = Callable[..., SourceFile]


def build_columns(**names: str) -> LicensedColumns:
    return LicensedColumns(**{"text": "text", "id": None, "created_at": None, "license": None} | names)  # type: ignore[arg-type]


TEXT = build_columns()


def write_parquet(table: pa.Table, rows_per_group: int = 2) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows_per_group, use_dictionary=False)
    return sink.getvalue()


def build_pages(rows: int) -> pa.Table:
    meta = [{"url": f"https://{row}", "n": row} for row in range(rows)]
    return pa.table({"text": [f"Text of page {row}." for row in range(rows)], "meta": meta})


@pytest.mark.parametrize("columns", [TEXT, build_columns(id="meta.url"), build_columns(id="meta")])
def test_row_groups_are_planned_in_runs_with_their_rows(source: Source, columns: LicensedColumns) -> None:
    file = source(write_parquet(build_pages(7)), "a.parquet")
    group_bytes = pq.read_metadata(file.path).row_group(0).total_byte_size

    runs = row_group_runs(file, columns, 2 * group_bytes)

    assert [(run.first_group, run.stop_group, run.first_row, run.rows) for run in runs] == [(0, 2, 0, 4), (2, 4, 4, 3)]
    assert runs[0].bytes == 2 * group_bytes
    assert [len(row_group_runs(file, columns, size)) for size in (1, 1 << 30)] == [4, 1]


def test_rows_of_a_group_longer_than_a_batch_keep_their_numbers(source: Source) -> None:
    file = source(write_parquet(build_pages(3000), rows_per_group=3000), "a.parquet")

    numbers = [number for run in row_group_runs(file, TEXT, 1) for number, _ in parquet_rows(run)]

    assert numbers == list(range(3000))


@pytest.mark.parametrize(
    ("field", "name", "fix"),
    [("text", "body", "the column that holds the text"), ("id", "meta.uid", "an existing column, or leave it out")],
)
def test_an_unknown_column_stops_the_plan(source: Source, field: str, name: str, fix: str) -> None:
    file = source(write_parquet(build_pages(1)), "a.parquet")

    assert refusal(lambda: row_group_runs(file, build_columns(**{field: name}), 1)) == (
        f"{file.path}: column `{name}` not found; the columns are text, meta.url, meta.n; "
        f"set `columns.{field}` in the recipe to {fix}"
    )


@pytest.mark.parametrize("names", [TEXT, None])
def test_two_columns_with_the_same_name_are_refused(source: Source, names: LicensedColumns | None) -> None:
    table = pa.Table.from_arrays([pa.array(["one"]), pa.array(["two"])], ["text", "text"])
    file = source(write_parquet(table), "a.parquet")

    assert refusal(lambda: row_group_runs(file, names, 1)) == (
        f"{file.path}: two columns have the name `text`; rename one of them"
    )


def test_damaged_rows_are_an_error(source: Source) -> None:
    content = bytearray(write_parquet(build_pages(1000), rows_per_group=1000))
    content[40:400] = bytes(360)
    (run,) = row_group_runs(source(bytes(content), "a.parquet"), TEXT, 1 << 30)

    with pytest.raises(InputError, match=r"row groups 0 to 0 cannot be read \("):
        list(parquet_rows(run))
