"""Every column is told of, in the schema's order."""

from pipeline_assets.corpus.nemotron.schema import COLUMNS, SCHEMA


def test_each_column_of_the_schema_has_a_line() -> None:
    assert list(COLUMNS) == SCHEMA.names
    assert all(line == line.strip() and line.endswith((".", "…")) and "|" not in line for line in COLUMNS.values())
