"""Content hash of a Parquet file: schema, row order and values, nothing else."""

import datetime
import errno
import gc
import hashlib
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.formats.parquet import ContentHash, ParquetOutput
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.spine import durable
from pipeline_assets.trust.verify import content_sha256

WORDS = pa.table(
    {
        "text": pa.array(["one", None, "", "två", "one"], pa.string()),
        "count": pa.array([1, 2, None, 4, 5], pa.int64()),
        "score": pa.array([0.5, None, -1.0, 2.5, 0.0], pa.float64()),
        "kept": pa.array([True, None, False, True, True], pa.bool_()),
        "tags": pa.array([["a", "b"], None, [], [None], ["c"]], pa.list_(pa.string())),
        "meta": pa.array([{"n": 1, "w": "x"}, None, {"n": None, "w": "y"}, {"n": 3, "w": None}, {"n": 5, "w": ""}]),
    }
)
reuse_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.parquet"


def hash_rows(*tables: pa.Table) -> str:
    content = ContentHash(tables[0].schema)
    for table in tables:
        content.update(table)
    return content.hexdigest()


def column(values: Sequence[Any] | pa.Array, kind: pa.DataType | None = None, nullable: bool = True) -> pa.Table:
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.table([array], pa.schema([pa.field("x", array.type, nullable)]))


def split_table(table: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


# Properties without effect


@pytest.mark.parametrize(
    "options",
    [
        {"row_group_size": 1},
        {"row_group_size": 2},
        {"compression": "none"},
        {"compression": "snappy"},
        {"use_dictionary": False},
        {"data_page_version": "2.0"},
        {"write_statistics": False},
        {"store_schema": False},
        {"use_dictionary": False, "column_encoding": {"count": "DELTA_BINARY_PACKED"}},
    ],
    ids=str,
)
def test_storage_options_do_not_change_the_hash(path: Path, options: dict[str, Any]) -> None:
    pq.write_table(WORDS.replace_schema_metadata({"written": "today"}), path, **options)

    assert content_sha256(path) == hash_rows(WORDS)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_pieces_of_any_size_have_the_hash_of_the_whole(size: int) -> None:
    assert hash_rows(*split_table(WORDS, size)) == hash_rows(WORDS)
    assert hash_rows(pa.concat_tables(split_table(WORDS, size))) == hash_rows(WORDS)


@pytest.mark.parametrize(
    ("small", "large", "values"),
    [
        (pa.string(), pa.large_string(), ["a", None, "bc"]),
        (pa.binary(), pa.large_binary(), [b"a", None, b"bc"]),
        (pa.list_(pa.string()), pa.large_list(pa.large_string()), [["a"], None, ["b", None]]),
        (
            pa.struct([("a", pa.list_(pa.binary()))]),
            pa.struct([("a", pa.large_list(pa.large_binary()))]),
            [{"a": [b"a"]}, None, {"a": None}],
        ),
    ],
    ids=str,
)
def test_large_types_have_the_hash_of_small_ones(small: pa.DataType, large: pa.DataType, values: list[Any]) -> None:
    assert hash_rows(column(values, large)) == hash_rows(column(values, small))


def test_dictionaries_are_decoded() -> None:
    values = ["b", "a", None, "b"]
    encoded = pa.array(values).dictionary_encode()
    in_another_order = pa.DictionaryArray.from_arrays(
        pa.array([0, 2, None, 0], pa.int32()), pa.array(["b", "unused", "a"])
    )

    assert hash_rows(column(encoded)) == hash_rows(column(values))
    assert hash_rows(column(in_another_order)) == hash_rows(column(values))
    assert hash_rows(column(encoded[:1]), column(in_another_order[1:])) == hash_rows(column(values))


def test_values_under_a_null_do_not_change_the_hash() -> None:
    mask = pa.py_buffer(bytes([0b101]))
    numbers = [pa.Array.from_buffers(pa.int32(), 3, [mask, pa.py_buffer(struct.pack("3i", 1, x, 3))]) for x in (0, 99)]
    offsets = pa.py_buffer(struct.pack("4i", 0, 1, 3, 4))
    texts = [pa.Array.from_buffers(pa.string(), 3, [mask, offsets, pa.py_buffer(data)]) for data in (b"abbc", b"axxc")]

    assert hash_rows(column(numbers[0])) == hash_rows(column(numbers[1])) == hash_rows(column([1, None, 3], pa.int32()))
    assert hash_rows(column(texts[0])) == hash_rows(column(texts[1])) == hash_rows(column(["a", None, "c"]))

    hidden, is_null = pa.array([1, 2, 3]), pa.array([False, True, False])
    structs = pa.StructArray.from_arrays([hidden], ["n"], mask=is_null)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), hidden, mask=is_null)
    assert hash_rows(column(structs)) == hash_rows(column([{"n": 1}, None, {"n": 3}]))
    assert hash_rows(column(lists)) == hash_rows(column([[1], None, [3]]))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_every_nan_is_one_nan(kind: type) -> None:
    width = np.dtype(kind).itemsize * 8
    bits = {64: [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF00000DEADBEEF], 32: [0x7FC00000, 0xFFC00001, 0x7F80BEEF]}
    unsigned = {64: np.uint64, 32: np.uint32}[width]
    tables = [column(pa.array(np.array([1, pattern], unsigned).view(kind))) for pattern in bits[width]]
    for table, pattern in zip(tables, bits[width], strict=True):
        assert np.array(table["x"]).view(unsigned)[1] == pattern

    assert len({hash_rows(*split_table(table, 1)) for table in tables}) == 1


# Properties with effect


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (column([1, 2]), column([2, 1])),
        (column([1]), column([2])),
        (column([0]), column([None], pa.int64())),
        (column([""]), column([None], pa.string())),
        (column([False]), column([None], pa.bool_())),
        (column([[]], pa.list_(pa.int64())), column([None], pa.list_(pa.int64()))),
        (column([[None]], pa.list_(pa.int64())), column([[]], pa.list_(pa.int64()))),
        (column([[1], [2]]), column([[1, 2], []])),
        (column(["ab", ""]), column(["a", "b"])),
        (column(["ab", "c"]), column(["a", "bc"])),
        (column([{"n": None}], pa.struct([("n", pa.int64())])), column([None], pa.struct([("n", pa.int64())]))),
        (column([0.0]), column([float("nan")])),
        (column([float("nan")]), column([None], pa.float64())),
        (column([1], pa.int32()), column([1], pa.int64())),
        (column([1], pa.uint32()), column([1], pa.int32())),
        (column(["a"]), column([b"a"])),
        (column([1], pa.timestamp("us")), column([1], pa.timestamp("ms"))),
        (column([1], pa.timestamp("us", "UTC")), column([1], pa.timestamp("us"))),
        (column([1], nullable=True), column([1], nullable=False)),
        (column([Decimal("1.50")]), column([Decimal("1.51")])),
        (column([datetime.date(2024, 2, 28)]), column([datetime.date(2024, 2, 29)])),
        (column([1]), column([1]).rename_columns(["y"])),
        (column([]), column([], pa.string())),
        (column([None, None]), column([None, None, None])),
        (column(range(65_537)), column([*range(65_536), 0])),
        (WORDS, WORDS.slice(1)),
        (WORDS, WORDS.select(["count", "text", "score", "kept", "tags", "meta"])),
        (WORDS, WORDS.select(["text", "count", "score", "kept", "tags"])),
    ],
)
def test_value_order_name_type_and_nullability_change_the_hash(first: pa.Table, second: pa.Table) -> None:
    assert hash_rows(first) != hash_rows(second)


@pytest.mark.parametrize(
    "nest", [lambda inner: pa.struct([inner]), pa.list_, lambda inner: pa.large_list(pa.struct([inner]))]
)
def test_nullability_inside_a_nested_column_changes_the_hash(nest: Any) -> None:
    schemas = [pa.schema([("x", nest(pa.field("item", pa.int64(), nullable)))]) for nullable in (True, False)]

    assert hash_rows(schemas[0].empty_table()) != hash_rows(schemas[1].empty_table())


def test_nullability_is_kept_by_the_file(path: Path) -> None:
    fields = [("a", pa.int64(), False), ("b", pa.list_(pa.field("item", pa.string(), False)), True)]
    table = pa.table([[1], [["x"]]], pa.schema([pa.field(*field) for field in fields]))

    output = write_table(path, "x.parquet", [table], table.schema)

    assert (output.path, content_sha256(path)) == ("x.parquet", output.content_sha256)


def test_a_known_table_has_a_known_hash() -> None:
    assert hash_rows(WORDS) == "ec21d9427fe2b2c14103bd9f51bc734216a8964c0420edb8a9caa033a73687e0"


def test_hash_covers_field_lines_and_then_each_column() -> None:
    table = pa.table([pa.array([1, None, 3], pa.int32())], pa.schema([pa.field("x", pa.int32())]))

    expected = hashlib.sha256(b"x\0int32\0True\n" + bytes([0b10100000]) + struct.pack("<3i", 1, 0, 3))
    assert hash_rows(table) == expected.hexdigest()


# Blocks


@pytest.mark.parametrize("rows", [0, 1, 65_535, 65_536, 65_537, 131_073])
def test_pieces_around_the_edge_of_a_block_have_the_hash_of_the_whole(path: Path, rows: int) -> None:
    numbers = pa.array(range(rows), pa.int64())
    lists = pa.array([[n] * (n % 3) for n in range(rows)], pa.list_(pa.int64()))
    table = pa.table({"n": numbers, "t": pa.array([str(n % 7) for n in range(rows)], pa.string()), "l": lists})
    pq.write_table(table, path, row_group_size=50_000)

    hashes = {
        hash_rows(table),
        hash_rows(table.slice(0, 0), *split_table(table, 65_535)),
        hash_rows(*split_table(table, 40_001), table[:0]),
        content_sha256(path),
    }

    assert len(hashes) == 1


# Round trips


@reuse_folder
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
            st.none() | st.floats(width=32),
            st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
            st.none() | st.fixed_dictionaries({"a": st.none() | st.binary(max_size=3)}),
        ),
        max_size=25,
    ),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_hash_of_the_file_equals_the_reported_hash(
    path: Path, rows: list[tuple[Any, ...]], row_group_rows: int, piece: int
) -> None:
    kinds = [pa.large_string(), pa.float32(), pa.list_(pa.int16()), pa.struct([("a", pa.binary())])]
    columns = [pa.array([row[position] for row in rows], kind) for position, kind in enumerate(kinds)]
    table = pa.table(columns, names=["text", "score", "numbers", "meta"])

    with ParquetOutput(path, table.schema, row_group_rows) as output:
        for part in split_table(table, piece):
            output.write(part)

    written = output.output("words.parquet")
    assert written.content_sha256 == content_sha256(path) == hash_rows(table)
    assert (written.rows, written.bytes) == (len(rows), path.stat().st_size)
    assert written.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_datasets_reads_regrouped_rows_without_an_empty_row_group(path: Path) -> None:
    import datasets

    empty = path.with_name("empty.parquet")
    write_table(path, path.name, regroup_rows([WORDS[:0], WORDS, WORDS[:0]], WORDS.schema, len(WORDS)), WORDS.schema)
    write_table(empty, empty.name, regroup_rows([WORDS[:0]], WORDS.schema), WORDS.schema)

    files, cache_dir = [str(empty), str(path)], str(path.parent / "datasets")
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache_dir)

    assert loaded.to_list() == WORDS.to_pylist()
    assert (pq.ParquetFile(path).num_row_groups, pq.ParquetFile(empty).num_row_groups) == (1, 0)


@pytest.mark.parametrize("is_full_before_rows", [False, True])
def test_a_full_disk_leaves_no_file_and_arrow_prints_nothing(
    path: Path, capfd: pytest.CaptureFixture[str], is_full_before_rows: bool
) -> None:
    def fill(step: str, path: Path) -> None:
        if step == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    rows = pa.table({"text": [random.Random(number).randbytes(60_000).hex() for number in range(40)]})
    try:
        with pytest.raises(OSError, match="No space left on device"), ParquetOutput(path, rows.schema) as output:
            durable.failpoint = fill if is_full_before_rows else None
            output.write(rows)
            durable.failpoint = fill
        del output
        gc.collect()
    finally:
        durable.failpoint = None

    assert list(path.parent.iterdir()) == []
    assert capfd.readouterr().err == ""


READ_AND_CHECK = """
import sys
from pathlib import Path
from pipeline_assets.corpus.formats.parquet import StoredParquet, open_parquet
from pipeline_assets.spine.fork_server import _can_fork_safely

path = Path(sys.argv[1])
file, opened = StoredParquet(path), open_parquet(path)
eval(sys.argv[2])
print(_can_fork_safely())
"""


@pytest.mark.parametrize(
    "read",
    [
        "file.read()",
        "file.read_row_group(1, ['number'])",
        "list(file.iter_batches(2, columns=['number']))",
        "list(opened.iter_batches(2, use_threads=False))",
    ],
)
def test_a_process_that_read_a_file_can_still_fork_its_workers(path: Path, read: str) -> None:
    pq.write_table(pa.table({"number": range(8), "name": list("abcdefgh")}), path, row_group_size=4)

    command = [sys.executable, "-c", READ_AND_CHECK, path, read]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})

    assert (ran.stdout, ran.stderr) == ("True\n", "")
