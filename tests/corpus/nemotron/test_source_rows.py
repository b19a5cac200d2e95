"""Source rows equal json.loads at every shard size; bad rows are rejects."""

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


def write(folder: Path, name: str, data: bytes) -> SourceFile:
    path = folder / name
    path.write_bytes(data)
    return SourceFile(path, name, len(data))


def read_rows(files: Sequence[SourceFile], shard_bytes: int = 1 << 20) -> list[SourceRow | Reject]:
    return [row for shard in plan_shards(files, shard_bytes) for row in read_shard(shard)]


def list_columns(rows: Sequence[SourceRow | Reject]) -> list[dict[str, Any]]:
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
def test_rows_equal_json_loads_at_every_shard_size(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], shard_bytes: int
) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    file = write(tmp_path_factory.mktemp("rows"), "a.jsonl", "".join(lines).encode())

    rows_read = read_rows([file], shard_bytes)

    expected = [json.loads(line) for line in lines]
    assert repr(list_columns(rows_read)) == repr(expected)
    assert [row.position for row in rows_read if isinstance(row, SourceRow)] == [
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
def test_a_line_without_an_object_is_a_reject_with_its_position(tmp_path: Path, line: bytes, reason: str) -> None:
    file = write(tmp_path, "a.jsonl", b'{"a": 0}\n' + line + b'\n{"a": 2}\n')

    before, bad, after = read_rows([file])

    assert isinstance(bad, Reject)
    assert (bad.file, bad.row, bad.reason) == ("a.jsonl", 9, reason)
    assert bad.detail
    assert list_columns([before, after]) == [{"a": 0}, {"a": 2}]


def test_a_truncated_last_line_is_a_reject_and_a_whole_one_is_a_row(tmp_path: Path) -> None:
    cut = write(tmp_path, "cut.jsonl", b'{"a": 0}\n{"a": "cu')
    whole = write(tmp_path, "whole.jsonl", b'{"a": 0}\n{"a": 1}')

    [_, bad] = read_rows([cut])

    assert isinstance(bad, Reject)
    assert (bad.row, bad.reason) == (9, "cut_off")
    assert """after '{"a": "cu'""" in bad.detail
    assert list_columns(read_rows([whole])) == [{"a": 0}, {"a": 1}]


def test_a_line_nested_too_deep_has_its_own_reason_even_as_the_last_line(tmp_path: Path) -> None:
    deep = write(tmp_path, "deep.jsonl", b'{"a":' + b"[" * 5000 + b'\n{"a":' + b"[" * 5000)

    assert [row.reason for row in read_rows([deep]) if isinstance(row, Reject)] == ["nested_too_deep"] * 2


def test_parquet_rows_are_python_values_with_row_numbers(tmp_path: Path) -> None:
    rows = [
        {"n": 2**62 + 1, "x": 0.1, "messages": [{"role": "user", "content": f"{n}", "calls": None}]} for n in range(10)
    ]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    file = SourceFile(path, "data/a.parquet", path.stat().st_size)

    rows_read = read_rows([file], shard_bytes=1)

    assert len(plan_shards([file], shard_bytes=1)) == 4
    assert list_columns(rows_read) == rows
    assert [(row.file, row.position) for row in rows_read if isinstance(row, SourceRow)] == [
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
def test_a_file_that_does_not_match_its_name_is_refused(tmp_path: Path, name: str, data: bytes, line: str) -> None:
    file = write(tmp_path, name, data)

    with pytest.raises(InputError, match=line) as refused:
        read_rows([file])

    assert str(refused.value).startswith(str(file.path))


def test_a_sample_of_a_small_file_is_its_first_rows(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl", b"".join(b'{"n": %d}\n' % n for n in range(10)))

    [shard] = plan_sample([file], 3)

    assert [row["n"] for row in list_columns([*read_shard(shard)])] == [0, 1, 2]


def test_a_sample_is_spread_evenly_over_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "_SAMPLE_PIECE_BYTES", 100)
    data = b"".join(b'{"n": %04d}\n' % (1000 + n) for n in range(800))
    files = [write(tmp_path, "a.jsonl", data), write(tmp_path, "b.jsonl", b'{"n": 7}\n')]

    [shard] = plan_sample(files, 35)

    drawn_rows = [row["n"] for row in list_columns([*read_shard(shard)])]
    assert len(drawn_rows) == 3 + 15 * 2 + 1  # 17 pieces; the first one gives a third row
    assert drawn_rows[-1] == 7
    assert drawn_rows[-3] > 1700
    assert max(after - before for before, after in itertools.pairwise(drawn_rows[:-1])) <= 50


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
def test_later_pieces_supply_the_rows_that_a_piece_lacks(
    tmp_path: Path, counts: tuple[int, ...], rows: int, drawn: tuple[int, ...]
) -> None:
    files = [write(tmp_path, f"{n}.jsonl", b'{"n": 0}\n' * count) for n, count in enumerate(counts)]
    for number, count in enumerate(counts):
        pq.write_table(pa.table({"n": [0] * count}), tmp_path / f"{number}.parquet")
    names = [f"{number}.parquet" for number in range(len(counts))]
    tables = [SourceFile(tmp_path / name, name, (tmp_path / name).stat().st_size) for name in names]

    for sources in (files, tables):
        [shard] = plan_sample(sources, rows)
        drawn_rows = [row.file for row in read_shard(shard)]
        assert tuple(drawn_rows.count(file.name) for file in sources) == drawn


def test_a_sample_skips_blank_lines(tmp_path: Path) -> None:
    files = [write(tmp_path, "a.jsonl", b"\n \n\n"), write(tmp_path, "b.jsonl", b'\n\n{"n": 1}\n\n{"n": 2}\n[]\n')]

    [shard] = plan_sample(files, 3)

    drawn_rows = [*read_shard(shard)]
    assert list_columns(drawn_rows) == [{"n": 1}, {"n": 2}]
    assert [row.reason for row in drawn_rows if isinstance(row, Reject)] == ["wrong_type"]
