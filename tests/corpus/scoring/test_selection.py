"""Which rows are scored: each id once; and pools of which no row can be, refused in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal
from tiny_scoring import Row, rows_of, write_pool

from pipeline_assets.corpus.scoring.pool_selection import Selection, has_harmony_rows, select_rows


def selected(folder: Path, files: dict[str, list[Row]], max_rows: int | None = None) -> Selection:
    for name, rows in files.items():
        write_pool(folder, rows, name)
    return select_rows({name: folder / name for name in files}, max_rows)


def chosen(selection: Selection) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in selection.row_numbers_by_file.items()}


def test_all_rows_are_scored(tmp_path: Path) -> None:
    found = selected(tmp_path, {"a.parquet": rows_of(3), "b.parquet": rows_of(2, first=3)})

    assert chosen(found) == {"a.parquet": [0, 1, 2], "b.parquet": [0, 1]}
    assert (found.row_count, found.counts) == (5, {"rows": 5})


def test_an_id_is_scored_once_where_it_comes_first(tmp_path: Path) -> None:
    twice = [*rows_of(3), *rows_of(1)]

    found = selected(tmp_path, {"a.parquet": twice, "b.parquet": rows_of(4)})

    assert chosen(found) == {"a.parquet": [0, 1, 2], "b.parquet": [3]}
    assert found.counts == {"rows": 8, "dropped/repeated_id": 4}


def test_a_sample_is_the_same_rows_however_they_lie_in_files(tmp_path: Path) -> None:
    rows = rows_of(20)
    together = selected(tmp_path / "one", {"a.parquet": rows}, 6)
    apart = selected(tmp_path / "two", {"a.parquet": rows[:7], "b.parquet": rows[7:]}, 6)

    assert together.row_count == apart.row_count == 6
    assert chosen(together)["a.parquet"] == [
        *chosen(apart)["a.parquet"],
        *(7 + row for row in chosen(apart)["b.parquet"]),
    ]
    assert together.counts == {"rows": 20, "dropped/not_sampled": 14}


def test_a_larger_sample_only_adds_rows(tmp_path: Path) -> None:
    few, more = (set(chosen(selected(tmp_path, {"a.parquet": rows_of(30)}, rows))["a.parquet"]) for rows in (5, 11))

    assert few < more


def test_ids_may_be_whole_numbers(tmp_path: Path) -> None:
    rows = [row | {"id": number % 2} for number, row in enumerate(rows_of(4))]

    assert chosen(selected(tmp_path, {"a.parquet": rows})) == {"a.parquet": [0, 1]}


def test_a_file_without_rows_does_not_decide_whether_rows_are_harmony(tmp_path: Path) -> None:
    rendered = [row | {"template": "chat/smollm2 0123"} for row in rows_of(2)]
    pq.write_table(pa.Table.from_pylist(rendered).slice(0, 0), tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rendered), tmp_path / "b.parquet")

    assert has_harmony_rows([tmp_path / "a.parquet"])
    assert not has_harmony_rows([tmp_path / "a.parquet", tmp_path / "b.parquet"])


def without(column: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name != column} for row in rows_of(2)]


def with_column(column: str, value: Any) -> list[Row]:
    return [row | {column: value} for row in rows_of(2)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            without("id"),
            "column not found: id; a pool needs the columns id, text, loss_mode; this file has text, loss_mode",
        ),
        (without("text"), "column not found: text; a pool needs"),
        (without("loss_mode"), "column not found: loss_mode; a pool needs"),
        ([{"uuid": "a", "messages": "b"}], "column not found: id, text, loss_mode; a pool needs"),
        (with_column("text", 5), "column text must be text, got int64; write that column as text"),
        (with_column("text", b"\xff"), "column text must be text, got binary; write that column as text"),
        (with_column("loss_mode", 1.0), "column loss_mode must be text, got double; write that column as text"),
        (with_column("loss_rule", {"all": 1}), "column loss_rule must be text, got struct<all: int64>; write"),
        (with_column("id", 0.5), "column id must be text, got double; write that column as text"),
        (
            [*rows_of(2), rows_of(1)[0] | {"id": None}],
            "row 2 has no id; give every row an id, because scores refer to rows by id",
        ),
    ],
)
def test_a_pool_that_is_none_is_refused(tmp_path: Path, rows: list[Row], said: str) -> None:
    line = refusal(lambda: selected(tmp_path, {"a.parquet": rows}))

    assert line.startswith(f"{tmp_path / 'a.parquet'}: {said}")


def test_text_of_few_values_is_text_too(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(rows_of(3))
    modes = table["loss_mode"].combine_chunks().dictionary_encode()
    pq.write_table(table.set_column(2, "loss_mode", modes), tmp_path / "a.parquet")

    assert select_rows({"a.parquet": tmp_path / "a.parquet"}, None).row_count == 3


def write_lines(path: Path) -> None:
    path.write_text('{"id": "a", "text": "b", "loss_mode": "assistant_all"}\n')


def write_half(path: Path) -> None:
    whole = write_pool(path.parent, rows_of(200), path.name) / path.name
    path.write_bytes(whole.read_bytes()[:500])


def write_torn(path: Path) -> None:
    """The footer is right, and a page of ids is not."""
    data = bytearray((write_pool(path.parent, rows_of(300), path.name) / path.name).read_bytes())
    data[150:250] = bytes(100)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (write_lines, "polars.read_ndjson(FILE).write_parquet(FILE) converts JSON lines"),
        (Path.touch, "truncated, damaged or not a Parquet file; fetch or write it again; use pools in Parquet"),
        (write_half, "truncated, damaged or not a Parquet file; fetch or write it again; use pools in Parquet"),
        (write_torn, "the file is damaged; write it again"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, write: Callable[[Path], None], said: str) -> None:
    path = tmp_path / "a.parquet"
    write(path)

    line = refusal(lambda: select_rows({"a.parquet": path}, None))

    assert line.startswith(f"{path}: ")
    assert said in line


def test_pools_without_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows_of(1)).slice(0, 0), path)

    line = refusal(lambda: select_rows({"a.parquet": path}, None))

    assert line == f"{path}: the pools of this split have no rows; choose pools with rows"
