"""Row schema for JSON lines and for Parquet files."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal

from pipeline_assets.build.rows.file_rows import RowSchema
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.spine.errors import InputError


class Place(msgspec.Struct):
    file: str
    row: int = 0


class Line(msgspec.Struct):
    name: str
    text: str
    place: Place
    split: str = "train"


LINES = RowSchema("", Line, ("split", "name"), "split", "text", file_column="place.file", row_column="place.row")
TABLE = RowSchema("", None, ("split", "name"), "split", "text", file_column="file", row_column="row")
ROWS = [
    {"name": f"n{number}", "text": "é" * number, "split": "train", "file": "f", "row": number} for number in range(5)
]
NESTED = [
    {"name": row["name"], "text": row["text"], "place": {"file": "f", **({"row": row["row"]} if row["row"] else {})}}
    for row in ROWS
]


@pytest.fixture(params=["lines", "table"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[RowSchema, Path]:
    """Write the rows in either format; lines omit default values."""
    if request.param == "lines":
        write_rows(tmp_path / f"rows{SUFFIX}", "rows", NESTED, zstd_level=3)
        return LINES, tmp_path / f"rows{SUFFIX}"
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet", row_group_size=2)
    return TABLE, tmp_path / "rows.parquet"


def test_columns_are_read_in_order(stored: tuple[RowSchema, Path]) -> None:
    schema, path = stored

    rows = list(schema.read(path, [*schema.key_columns, schema.file_column, schema.row_column]))

    assert rows == [("train", f"n{number}", "f", number) for number in range(5)]


def test_first_row_with_matching_values_is_found(stored: tuple[RowSchema, Path]) -> None:
    schema, path = stored

    sought = {schema.id_column: "n3"}, {schema.file_column: "f", schema.row_column: 3}, {schema.source_column: "train"}
    assert [schema.find(path, values) for values in sought] == [3, 3, 0]
    assert schema.find(path, {schema.id_column: "n3", schema.row_column: 4}) is None


def test_single_row_is_read(stored: tuple[RowSchema, Path]) -> None:
    schema, path = stored

    record = schema.record_at(path, 4)

    assert schema.read_columns(record, schema.id_column, schema.text_column, schema.row_column) == ("n4", "éééé", 4)
    assert "row 5 not found, because the file has 5 rows; run `corpusmill verify`" in refusal(
        lambda: schema.record_at(path, 5), InputError
    )
