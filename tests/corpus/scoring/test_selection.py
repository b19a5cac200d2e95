"""Selection of rows to score: each id once; unusable pools are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal
from tiny_scoring import Row, build_rows, write_pool

from pipeline_assets.corpus.scoring.pool_selection import Selection, is_harmony_pool, select_rows


def select(folder: Path, files: dict[str, list[Row]], max_rows: int | None = None) -> Selection:
    for name, rows in files.items():
        write_pool(folder, rows, name)
    return select_rows({name: folder / name for name in files}, max_rows)


def numbers(selection: Selection) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in selection.row_numbers_by_file.items()}


def test_all_rows_are_scored(tmp_path: Path) -> None:
    selection = select(tmp_path, {"a.parquet": build_rows(3), "b.parquet": build_rows(2, first=3)})

    assert numbers(selection) == {"a.parquet": [0, 1, 2], "b.parquet": [0, 1]}
    assert (selection.row_count, selection.counts) == (5, {"rows": 5})


def test_a_repeated_id_is_scored_only_at_its_first_row(tmp_path: Path) -> None:
    twice = [*build_rows(3), *build_rows(1)]

    selection = select(tmp_path, {"a.parquet": twice, "b.parquet": build_rows(4)})

    assert numbers(selection) == {"a.parquet": [0, 1, 2], "b.parquet": [3]}
    assert selection.counts == {"rows": 8, "dropped/repeated_id": 4}


def test_a_sample_does_not_depend_on_the_split_into_files(tmp_path: Path) -> None:
    rows = build_rows(20)
    together = select(tmp_path / "one", {"a.parquet": rows}, 6)
    split = select(tmp_path / "two", {"a.parquet": rows[:7], "b.parquet": rows[7:]}, 6)

    assert together.row_count == split.row_count == 6
    assert numbers(together)["a.parquet"] == [
        *numbers(split)["a.parquet"],
        *(7 + row for row in numbers(split)["b.parquet"]),
    ]
    assert together.counts == {"rows": 20, "dropped/not_sampled": 14}


def test_a_larger_sample_only_adds_rows(tmp_path: Path) -> None:
    few, more = (set(numbers(select(tmp_path, {"a.parquet": build_rows(30)}, rows))["a.parquet"]) for rows in (5, 11))

    assert few < more


def test_ids_may_be_whole_numbers(tmp_path: Path) -> None:
    rows = [row | {"id": number % 2} for number, row in enumerate(build_rows(4))]

    assert numbers(select(tmp_path, {"a.parquet": rows})) == {"a.parquet": [0, 1]}


def test_a_file_without_rows_does_not_decide_if_rows_are_harmony(tmp_path: Path) -> None:
    rendered = [row | {"template": "chat/smollm2 0123"} for row in build_rows(2)]
    pq.write_table(pa.Table.from_pylist(rendered).slice(0, 0), tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rendered), tmp_path / "b.parquet")

    assert is_harmony_pool([tmp_path / "a.parquet"])
    assert not is_harmony_pool([tmp_path / "a.parquet", tmp_path / "b.parquet"])


NEEDED = "a pool needs the columns id, text, loss_mode"


def rows_with(column: str, value: Any) -> list[Row]:
    return [row | {column: value} for row in build_rows(2)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"uuid": "a", "messages": "b"}],
            f"column not found: id, text, loss_mode; {NEEDED}; this file has uuid, messages",
        ),
        ([{"id": "a", "text": "b"}], f"column not found: loss_mode; {NEEDED}; this file has id, text"),
        (rows_with("text", b"\xff"), "column text must be text, got binary; write that column as text"),
        (rows_with("loss_mode", 1.0), "column loss_mode must be text, got double; write that column as text"),
        (rows_with("loss_rule", {"all": 1}), "column loss_rule must be text, got struct<all: int64>; write"),
        (rows_with("id", 0.5), "column id must be text, got double; write that column as text"),
        (
            [*build_rows(2), build_rows(1)[0] | {"id": None}],
            "row 2 has no id; give every row an id, because scores refer to rows by id",
        ),
    ],
)
def test_a_pool_with_a_wrong_schema_is_refused(tmp_path: Path, rows: list[Row], message: str) -> None:
    line = refusal(lambda: select(tmp_path, {"a.parquet": rows}))

    assert line.startswith(f"{tmp_path / 'a.parquet'}: {message}")


def test_dictionary_encoded_text_is_accepted(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(build_rows(3))
    modes = table["loss_mode"].combine_chunks().dictionary_encode()
    pq.write_table(table.set_column(2, "loss_mode", modes), tmp_path / "a.parquet")

    assert select_rows({"a.parquet": tmp_path / "a.parquet"}, None).row_count == 3


def write_lines(path: Path) -> None:
    path.write_text('{"id": "a", "text": "b", "loss_mode": "assistant_all"}\n')


def write_half(path: Path) -> None:
    whole = write_pool(path.parent, build_rows(200), path.name) / path.name
    path.write_bytes(whole.read_bytes()[:500])


def write_torn(path: Path) -> None:
    """Write a pool with a valid footer and a damaged page of ids."""
    data = bytearray((write_pool(path.parent, build_rows(300), path.name) / path.name).read_bytes())
    data[150:250] = bytes(100)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_lines, "polars.read_ndjson(FILE).write_parquet(FILE) converts JSON lines"),
        (Path.touch, "truncated, damaged or not a Parquet file; fetch or write it again; use pools in Parquet"),
        (write_half, "truncated, damaged or not a Parquet file; fetch or write it again; use pools in Parquet"),
        (write_torn, "the file is damaged; write it again"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, write: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "a.parquet"
    write(path)

    line = refusal(lambda: select_rows({"a.parquet": path}, None))

    assert line.startswith(f"{path}: ")
    assert message in line


def test_pools_without_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(build_rows(1)).slice(0, 0), path)

    line = refusal(lambda: select_rows({"a.parquet": path}, None))

    assert line == f"{path}: the pools of this split have no rows; choose pools with rows"
