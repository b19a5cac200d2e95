"""Rows as they were published: as json.loads reads them, each bad one with its reason, whatever the pieces."""

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_assets.corpus.nemotron import source_rows
from pipeline_assets.corpus.nemotron.source_rows import SourceRow, plan_sample, plan_shards, read_shard
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.rejects import Reject


def file_of(folder: Path, name: str, data: bytes) -> SourceFile:
    path = folder / name
    path.write_bytes(data)
    return SourceFile(path, name, len(data))


def read(files: Sequence[SourceFile], shard_bytes: int = 1 << 20) -> list[SourceRow | Reject]:
    return [row for shard in plan_shards(files, shard_bytes) for row in read_shard(shard)]


def columns(rows: Sequence[SourceRow | Reject]) -> list[dict[str, Any]]:
    return [row.columns for row in rows if isinstance(row, SourceRow)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


NUMBERS = [2**96 + 1, -(2**63) - 1, 2**64, 0.0012, 5e-324, -0.0, 1e22]


@hypothesis.given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=6), st.integers(1, 400))
@hypothesis.example([{"n": number} for number in NUMBERS], 400)
@hypothesis.example([{"t": "a\u2028b\u0085c\rd\u000be"}], 400)  # lines end with a newline and with nothing else
def test_rows_are_those_of_json_loads_whatever_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], shard_bytes: int
) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    file = file_of(tmp_path_factory.mktemp("rows"), "a.jsonl", "".join(lines).encode())

    found = read([file], shard_bytes)

    expected = [json.loads(line) for line in lines]
    assert repr(columns(found)) == repr(expected)
    assert [row.position for row in found if isinstance(row, SourceRow)] == [
        len("".join(lines[:number]).encode()) for number in range(len(lines))
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1, 2]", "wrong_type"),
        (b'{"a": 1e999}', "not_json"),
        (b"{" * 5000, "nested_too_deep"),
    ],
)
def test_a_line_without_an_object_is_a_reject_with_place_and_reason(tmp_path: Path, line: bytes, reason: str) -> None:
    file = file_of(tmp_path, "a.jsonl", b'{"a": 0}\n' + line + b'\n{"a": 2}\n')

    before, bad, after = read([file])

    assert isinstance(bad, Reject)
    assert (bad.file, bad.row, bad.reason) == ("a.jsonl", 9, reason)
    assert bad.detail
    assert columns([before, after]) == [{"a": 0}, {"a": 2}]


def test_a_last_line_that_is_cut_is_a_reject_and_a_whole_one_without_newline_is_a_row(tmp_path: Path) -> None:
    cut = file_of(tmp_path, "cut.jsonl", b'{"a": 0}\n{"a": "cu')
    whole = file_of(tmp_path, "whole.jsonl", b'{"a": 0}\n{"a": 1}')

    [_, bad] = read([cut])

    assert isinstance(bad, Reject)
    assert (bad.row, bad.reason) == (9, "cut_off")
    assert """after '{"a": "cu'""" in bad.detail
    assert columns(read([whole])) == [{"a": 0}, {"a": 1}]


def test_a_line_that_is_nested_too_deep_is_called_that_also_as_the_last_one(tmp_path: Path) -> None:
    deep = file_of(tmp_path, "deep.jsonl", b'{"a":' + b"[" * 5000 + b'\n{"a":' + b"[" * 5000)

    assert [row.reason for row in read([deep]) if isinstance(row, Reject)] == ["nested_too_deep"] * 2


def test_parquet_gives_its_columns_as_python_values_by_row_number(tmp_path: Path) -> None:
    rows = [
        {"n": 2**62 + 1, "x": 0.1, "messages": [{"role": "user", "content": f"{n}", "calls": None}]} for n in range(10)
    ]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    file = SourceFile(path, "data/a.parquet", path.stat().st_size)

    found = read([file], shard_bytes=1)

    assert len(plan_shards([file], shard_bytes=1)) == 4
    assert columns(found) == rows
    assert [(row.file, row.position) for row in found if isinstance(row, SourceRow)] == [
        ("data/a.parquet", number) for number in range(10)
    ]


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("a.parquet", b'{"a": 1}\n' * 9, "the Parquet footer cannot be read"),
        ("a.jsonl", b"PAR1 and more", "the file is Parquet"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n', mtime=0)[:-4], "is truncated"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, name: str, data: bytes, line: str) -> None:
    file = file_of(tmp_path, name, data)

    with pytest.raises(InputError, match=line) as refused:
        read([file])

    assert str(refused.value).startswith(str(file.path))


def test_a_sample_of_a_small_file_is_its_first_rows(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a.jsonl", b"".join(b'{"n": %d}\n' % n for n in range(10)))

    [shard] = plan_sample([file], 3)

    assert [row["n"] for row in columns([*read_shard(shard)])] == [0, 1, 2]


def test_a_sample_lies_evenly_over_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "_SAMPLE_PIECE_BYTES", 100)
    data = b"".join(b'{"n": %04d}\n' % (1000 + n) for n in range(800))
    files = [file_of(tmp_path, "a.jsonl", data), file_of(tmp_path, "b.jsonl", b'{"n": 7}\n')]

    [shard] = plan_sample(files, 35)

    found = [row["n"] for row in columns([*read_shard(shard)])]
    assert len(found) == 3 + 15 * 2 + 1  # 17 pieces, the first of which gives a third row
    assert found[-1] == 7
    assert found[-3] > 1700
    assert max(after - before for before, after in itertools.pairwise(found[:-1])) <= 50


@pytest.mark.parametrize(
    ("counts", "rows", "drawn"),
    [
        ((1, 100, 0), 10, (1, 9, 0)),
        ((0, 10), 1, (0, 1)),
        ((2, 2, 100, 100), 40, (2, 2, 26, 10)),
        ((100, 1), 10, (5, 1)),
        ((0, 0), 3, (0, 0)),
        ((1, 1, 1, 1, 1), 2, (1, 1, 0, 0, 0)),
    ],
)
def test_what_a_piece_has_not_is_taken_from_the_next_ones(
    tmp_path: Path, counts: tuple[int, ...], rows: int, drawn: tuple[int, ...]
) -> None:
    files = [file_of(tmp_path, f"{n}.jsonl", b'{"n": 0}\n' * count) for n, count in enumerate(counts)]
    for number, count in enumerate(counts):
        pq.write_table(pa.table({"n": [0] * count}), tmp_path / f"{number}.parquet")
    names = [f"{number}.parquet" for number in range(len(counts))]
    tables = [SourceFile(tmp_path / name, name, (tmp_path / name).stat().st_size) for name in names]

    for sources in (files, tables):
        [shard] = plan_sample(sources, rows)
        found = [row.file for row in read_shard(shard)]
        assert tuple(found.count(file.name) for file in sources) == drawn


def test_blank_lines_are_none_of_the_rows_of_a_sample(tmp_path: Path) -> None:
    files = [file_of(tmp_path, "a.jsonl", b"\n \n\n"), file_of(tmp_path, "b.jsonl", b'\n\n{"n": 1}\n\n{"n": 2}\n[]\n')]

    [shard] = plan_sample(files, 3)

    found = [*read_shard(shard)]
    assert columns(found) == [{"n": 1}, {"n": 2}]
    assert [row.reason for row in found if isinstance(row, Reject)] == ["wrong_type"]
