"""Damaged files give equal rows, or one line with the file and a fix."""

import contextlib
import errno
import functools
import hashlib
import itertools
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from pipeline_assets.build.rows.table_shard import TableShard
from pipeline_assets.corpus.dedup.bitmap import load_bitmap, save_bitmap
from pipeline_assets.corpus.dedup.decision import Decision
from pipeline_assets.corpus.dedup.signature_store import SeenRuns, ShingleSetFiles
from pipeline_assets.corpus.dedup.sorted_runs import KeyRange, divide_keys, read_run, write_run
from pipeline_assets.corpus.dedup.verify import ShingleSets, join_indices
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_table
from pipeline_assets.corpus.formats.checked_file import CheckedFile, map_values
from pipeline_assets.corpus.formats.checked_table import write_checked_table
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_structs
from pipeline_assets.corpus.formats.npy_header import map_npy
from pipeline_assets.corpus.formats.parquet import StoredParquet, read_columns, read_footer
from pipeline_assets.corpus.formats.parquet_rows import find_row, read_row
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.nemotron.seed_prompts import open_seed_prompts
from pipeline_assets.corpus.shards.mixture_report import JSON_FORMAT
from pipeline_assets.corpus.tokens.describe import expected_hash
from pipeline_assets.corpus.tokens.encode import TABLE_SCHEMA, DocumentTable
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.errors import ChangedFileError, InputError, RetryableError
from pipeline_assets.spine.staged_input import StagedInput
from pipeline_assets.spine.staging import StagingView
from pipeline_assets.spine.verified_reads import ExpectedHash, expect_hash, verify_reads
from pipeline_assets.trust.verify import content_sha256

_ROWS = {"doc_id": ["a", "b", "c"], "text": ["one", "two", "two"], "order": [1, 2, 3]}
_TABLE = pa.table(_ROWS, pa.schema([("doc_id", pa.string()), ("text", pa.string()), ("order", pa.uint64())]))


_ONES = np.ones(3, np.uint8)
_WHY = "5d8a995a6fa7cf7c577cc9d49ca9e00d4aee4d0bcd5e2ad5caff27e2a8097276"


def _write_parquet(path: Path) -> None:
    write_table(path, path.name, [_TABLE], _TABLE.schema)


def _write_run(path: Path) -> None:
    keys = pa.table({"key": pa.array([1, 5, 9], pa.uint64()), "order": pa.array([0, 1, 2], pa.uint64())})
    write_table(path, path.name, [keys], keys.schema)


def _write_arrow(path: Path) -> None:
    columns: dict[str, Any] = {"doc_id": ["a", "b"], "license_tag": ["mit", "mit"], "row": [0, 1]}
    table = pa.table(columns | {"start": [0, 3], "tokens": [3, 4], "crc32": [7, 8]}, TABLE_SCHEMA)
    write_checked_table(StagingView(path.parent), path.name, table)


def _write_values(path: Path) -> None:
    with CheckedFile(path) as file:
        file.write(np.arange(3, dtype="<u4").data)


def _write_decisions(path: Path) -> None:
    with JsonlZstWriter(path, 3) as writer:
        lines = [msgspec.json.encode(Decision(f"d{n}", "web", "kept", "dedup/1", "a", n)) for n in range(3)]
        writer.write_lines(b"\n".join(lines) + b"\n", len(lines))


def _write_documents(path: Path) -> None:
    document = Document("A text.", "web", "d", "d1", "mit", "", Meta("a.txt", 0))
    with JsonlZstWriter(path, 3) as writer:
        writer.write_lines(msgspec.json.encode(document) + b"\n", 1)


def _write_prompts(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE prompts (sha256 TEXT PRIMARY KEY, prompt TEXT) WITHOUT ROWID")
        database.execute("INSERT INTO prompts VALUES (?, 'Why?')", (_WHY,))
        database.commit()


def _find_prompt(path: Path) -> object:
    with open_seed_prompts(path) as find:
        return find and find(_WHY)


def _write_sets(path: Path) -> None:
    path.write_bytes(b"doc-7\0\0\0" + np.array([11, 12], "<u8").tobytes())


def _read_sets(path: Path) -> object:
    index = path.with_name("a.index")
    index.write_bytes(struct.pack("<QQII", 7, 0, 5, 2))
    joint = join_indices([ShingleSetFiles(0, path, index)], path.with_name("joint"))
    doc_ids, hashes, _ = ShingleSets(joint).fetch(np.array([7], np.uint64))
    return doc_ids, hashes.tolist()


def _write_sorted_run(path: Path) -> None:
    keys = np.arange(5000, dtype=np.uint64)
    write_run(StagingView(path.parent), path.name, to_table({"key": keys, "text": string_column(["é"] * len(keys))}))


def _write_run_index(path: Path) -> None:
    view, names = StagingView(path.parents[1]), [f"{path.parent.name}/{name}.run" for name in "ab"]
    runs = [write_run(view, name, to_table({"key": np.arange(9, dtype=np.uint64)})) for name in names]
    divide_keys(view, runs, 6)


def _read_run_index(path: Path) -> object:
    return [KeyRange(0, 1, path, number).table().to_pydict() for number in range(3)]


def _read_set_index(path: Path) -> object:
    joint = join_indices([ShingleSetFiles(0, path.with_name("sets"), path)], path.with_name("joint"))
    return ShingleSets(joint).sizes(np.array([0], np.uint64)).tolist()


def _read_table(path: Path) -> object:
    table = DocumentTable(path)
    return [column.tolist() for column in (table.rows, table.starts, table.tokens, table.checksums)]


def _read_staged(path: Path) -> object:
    return StagedInput(path, hashlib.sha256(b"rows").hexdigest()).read()


def _read_batches(path: Path) -> object:
    with StoredParquet(path) as file:
        return [batch.to_pylist() for batch in file.iter_batches(2, columns=["doc_id", "text"])]


def _read_shard(path: Path) -> object:
    return [table.to_pydict() for table in TableShard(path).tables()]


def _read_run(path: Path) -> object:
    return read_run(path).to_pydict()


@dataclass(frozen=True)
class Reader:
    """Reader of a file, with the function that writes the file.

    Attributes:
        is_checked: Whether checksums show each flipped bit that changes a value.
        has_flips: False if pyarrow aborts the process at flipped statistics, so that only the hash of a file, which a
            build verifies before it reads the file, shows the flip.
    """

    name: str
    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    is_checked: bool = False
    has_flips: bool = True


Checked = functools.partial(Reader, is_checked=True)
READERS = (
    Reader("columns of Parquet", "a.parquet", _write_parquet, lambda path: read_columns(path, ["order"]).to_pydict()),
    Reader("all columns", "a.parquet", _write_parquet, lambda path: read_columns(path).to_pydict()),
    Reader("batches of Parquet", "a.parquet", _write_parquet, _read_batches),
    Reader("footer of Parquet", "a.parquet", _write_parquet, lambda path: read_footer(path).num_rows),
    Reader("row of Parquet", "a.parquet", _write_parquet, lambda path: read_row(path, 1, ["text"])),
    Reader("search in Parquet", "a.parquet", _write_parquet, lambda path: find_row(path, {"doc_id": "c"})),
    Reader("hash of Parquet", "a.parquet", _write_parquet, content_sha256),
    Reader("table of rows", "a.parquet", _write_parquet, _read_shard),
    Reader(
        "signature store",
        "a.parquet",
        _write_run,
        lambda path: [table.to_pydict() for table in SeenRuns((path,), 4).tables(0, 6)],
        has_flips=False,
    ),
    Checked("sorted run", "a.run", _write_sorted_run, _read_run),
    Checked(
        "short sorted run", "a.run", lambda path: write_run(StagingView(path.parent), path.name, _TABLE), _read_run
    ),
    Checked("index of sorted runs", "ranges.index", _write_run_index, _read_run_index),
    Checked("table of documents", "a.arrow", _write_arrow, _read_table),
    Checked(
        "decisions", "a.jsonl.zst", _write_decisions, lambda path: [d.doc_id for d in read_structs(path, Decision)]
    ),
    Checked("shard of documents", "a.jsonl.zst", _write_documents, _read_shard),
    Reader("array", "a.npy", lambda path: np.save(path, np.arange(6)), lambda path: map_npy(path).tolist()),
    Checked("raw array", "documents", _write_values, lambda path: map_values(path, np.uint32).tolist()),
    Checked("bitmap", "copies", lambda path: save_bitmap(_ONES, path), lambda path: load_bitmap(path).tolist()),
    Reader("seed prompts", "prompts.sqlite", _write_prompts, _find_prompt),
    Reader("shingle sets", "a.sets", _write_sets, _read_sets),
    Reader(
        "index of shingle sets",
        "a.index",
        lambda path: path.write_bytes(struct.pack("<QQII", 0, 0, 5, 2)),
        _read_set_index,
    ),
    Reader("figures", "shards.json", lambda path: path.write_text('{"all": {"tokens": 5}}'), JSON_FORMAT.read),
    Reader("checksum", "checksum.json", lambda path: path.write_text('{"sha256": "aa"}'), expected_hash),
    Checked("file of an earlier stage", "dropped", lambda path: path.write_bytes(b"rows"), _read_staged),
)
each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


def _is_refused(reader: Reader, path: Path, intact: object) -> bool:
    """Read a damaged file; return whether it was refused, and check how."""
    try:
        value = reader.read(path)
    except InputError as error:
        line = str(error)
        assert line.startswith(f"{path}: ")
        assert "\n" not in line
        assert error.fix in ("run the same command again", *_SEALED_FIXES)
        assert isinstance(error, RetryableError) == (error.fix == "run the same command again")
        return True
    assert value == intact or not reader.is_checked
    return False


_SEALED_FIXES = (
    "run `corpusmill verify` on the folder, then rebuild it",
    "run `corpusmill verify` on its folder",
    "restore the file or rebuild the artifact",
)


@each_reader
@pytest.mark.parametrize("place", ["english", ".english.building.1/.work"])
def test_empty_or_truncated_file_is_one_line(reader: Reader, place: str, tmp_path: Path) -> None:
    path = tmp_path / place / reader.file
    path.parent.mkdir(parents=True)
    reader.write(path)
    data, intact = path.read_bytes(), reader.read(path)

    refused = {}
    for size in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        refused[size] = _is_refused(reader, path, intact)

    assert [size for size in refused if not refused[size]] == []


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader.has_flips], ids=lambda reader: reader.name)
def test_flipped_bit_is_one_line_or_harmless(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / reader.file
    reader.write(path)
    data, intact = path.read_bytes(), reader.read(path)

    for position, bit in itertools.product(range(0, len(data), 1 + len(data) // 700), (0, 6)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
        _is_refused(reader, path, intact)


@each_reader
def test_another_file_is_one_line(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / reader.file
    reader.write(path)
    intact = reader.read(path)
    contents = [b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1", b"[1, 2]\n", b"<html></html>", bytes(77)]

    for other in contents:
        path.write_bytes(other)
        assert _is_refused(reader, path, intact) or reader.name == "shingle sets"


def test_column_missing_in_an_old_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_table(path, path.name, [_TABLE.drop_columns(["text"])], _TABLE.schema.remove(1))

    with pytest.raises(InputError, match=r"not a valid Parquet file: column not found: text; run `corpusmill verify`"):
        read_columns(path, ["doc_id", "text"])


def test_read_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(RetryableError) as caught, errors_as_damage(tmp_path / "a", "Parquet file"):
        raise OSError(errno.EIO, "Input/output error")  # as pyarrow raises it, without the file

    assert str(caught.value) == (
        f"{tmp_path / 'a'}: the operating system reports: Input/output error; fix that, then run the same command"
    )


def test_memory_errors_and_missing_files_are_not_damage(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowMemoryError), errors_as_damage(tmp_path / "a", "Parquet file"):
        raise pa.ArrowMemoryError("malloc of size 99 failed")
    with pytest.raises(FileNotFoundError):
        map_npy(tmp_path / "a.npy")


def test_changed_input_replaces_the_unexpected_error_that_it_causes(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"intact")
    expected = ExpectedHash(hashlib.sha256(b"intact").hexdigest(), "sealed with", "rebuild it")

    with pytest.raises(ChangedFileError, match="sealed with"), verify_reads():
        expect_hash(path, expected, is_streamed=True)
        path.write_bytes(b"damage")
        raise IndexError("index 9 is out of bounds")
    path.write_bytes(b"intact")
    with pytest.raises(IndexError), verify_reads():
        expect_hash(path, expected, is_streamed=True)
        raise IndexError("index 9 is out of bounds")
