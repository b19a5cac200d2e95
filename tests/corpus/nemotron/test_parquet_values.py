"""Parquet values without a JSON form are written as JSON would write them."""

import datetime
import json
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nemotron_rows import ANSWER, QUESTION, build_split, called, rows_recipe

from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import InputError

MESSAGES = [QUESTION, ANSWER]
NOON = datetime.datetime(2026, 11, 21, 12, 0, 0, 5)


def normalised(folder: Path, columns: dict[str, Any], schema: pa.Schema | None = None) -> list[dict[str, Any]]:
    """Normalize columns as the one Parquet file of a split; return its rows."""
    path = folder / "train.parquet"
    pq.write_table(pa.table(columns, schema), path)
    return normalised_file(folder, path)


def normalised_file(folder: Path, path: Path) -> list[dict[str, Any]]:
    rules = rows_recipe(shard_bytes=1 << 20, max_reject_fraction="0")
    built = build_split(folder, [SourceFile(path, path.name, path.stat().st_size)], rules)
    return pq.read_table(built.folder / "data" / "train-00000-of-00001.parquet").to_pylist()


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [
        (NOON, pa.timestamp("us"), "2026-11-21T12:00:00.000005"),
        (NOON, pa.timestamp("ns"), "2026-11-21T12:00:00.000005"),
        (NOON.date(), pa.date32(), "2026-11-21"),
        (NOON.time(), pa.time64("us"), "12:00:00.000005"),
        (datetime.timedelta(hours=25), pa.duration("s"), "1 day, 1:00:00"),
        (Decimal("1.10"), pa.decimal128(5, 2), "1.10"),
        ("Bär".encode(), pa.binary(), "Bär"),
        (b"\xff\x00", pa.binary(), "/wA="),
        ({"at": NOON.date()}, pa.struct([("at", pa.date32())]), {"at": "2026-11-21"}),
        ([NOON.date()], pa.list_(pa.date32()), ["2026-11-21"]),
        (math.nan, pa.float64(), None),
        (-math.inf, pa.float32(), None),
        ({"deep": [math.nan, 1.5]}, pa.struct([("deep", pa.list_(pa.float64()))]), {"deep": [None, 1.5]}),
    ],
)
def test_other_columns_are_written_as_standard_json(
    value: object, kind: pa.DataType, written: object, tmp_path: Path
) -> None:
    [row] = normalised(tmp_path, {"messages": [MESSAGES], "extra": pa.array([value], kind)})

    def no_constant(text: str) -> None:
        raise AssertionError(text)

    assert json.loads(row["meta_source_json"], parse_constant=no_constant) == {"extra": written}


def test_a_uuid_is_an_id_and_a_text(tmp_path: Path) -> None:
    identifier = uuid.UUID(int=7)
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([identifier.bytes], pa.binary(16)))

    [row] = normalised(tmp_path, {"messages": [MESSAGES], "uuid": column, "extra": column})

    assert row["id"] == str(identifier)
    assert json.loads(row["meta_source_json"]) == {"extra": str(identifier)}


def tool(name: str, **properties: dict[str, object]) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}


def test_row_is_equal_from_json_lines_and_from_parquet(tmp_path: Path) -> None:
    """A Parquet schema has every key of every row, with null for missing keys."""
    question, reply = {"role": "user", "content": {"asked": "?"}}, {"role": "assistant", "content": {"said": [1, None]}}
    weather = [question, {**called({"city": "X"}, name="weather"), "content": None}, reply]
    add = [question, {**called({"a": 1, "b": 2}, name="add"), "content": None}, {"role": "tool", "content": {"sum": 3}}]
    unlike = [
        {
            "uuid": "1",
            "messages": weather,
            "metadata": {"reason_high_no_tool": {"pass": 1, "count": 2}},
            "more": {"x": 1},
        },
        {"uuid": "2", "messages": add, "metadata": {"reason_low_no_tool": {"pass": 1, "count": 2}}, "more": {"y": 1}},
    ]
    unlike[0]["tools"] = [tool("weather", city={"type": "string", "enum": ["X", "Y"]})]
    unlike[1]["tools"] = [tool("add", a={"type": "integer", "default": 0}, b={"type": "integer"})]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in unlike))
    (tmp_path / "lines").mkdir()

    as_lines = normalised_file(tmp_path / "lines", tmp_path / "train.jsonl")
    as_parquet = normalised(tmp_path, pa.Table.from_pylist(unlike).to_pydict(), pa.Table.from_pylist(unlike).schema)

    for line, row in zip(as_lines, as_parquet, strict=True):
        assert line["quality_valid_tool_schema"] is True
        place = dict(source_file=None, source_row=None)
        assert row | place == line | place


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [
        ({"v": math.nan}, pa.struct([("v", pa.float64())]), '{"v": null}'),
        ([math.inf], pa.list_(pa.float64()), "[null]"),
    ],
    ids=["NaN", "infinity"],
)
def test_numbers_beyond_json_are_null_in_text(value: object, kind: pa.DataType, written: str, tmp_path: Path) -> None:
    message = pa.struct([("role", pa.string()), ("content", kind)])
    messages = pa.array([[{"role": "user", "content": value}]], pa.list_(message))

    [row] = normalised(tmp_path, {"messages": messages})

    assert row["text"].endswith(f"<|message|>{written}<|end|>")


def test_time_beyond_the_range_of_python_is_an_error_in_one_line(tmp_path: Path) -> None:
    far = pa.array([10**15], pa.int64()).cast(pa.timestamp("s"))

    with pytest.raises(InputError, match=r"1 unreadable_value.* \(the first: train.parquet row 0: unreadable_value"):
        normalised(tmp_path, {"messages": [MESSAGES], "extra": far})


def test_messages_next_to_a_text_are_kept(tmp_path: Path) -> None:
    text = "<|start|>user<|message|>Hi<|end|>"

    [row] = normalised(tmp_path, {"messages": [MESSAGES], "text": [text]})

    assert row["text"] == text
    assert json.loads(row["meta_source_json"]) == {"messages": MESSAGES}
