"""Values of Arrow columns become JSON values or faults."""

import datetime
import decimal

import msgspec
import pyarrow as pa
import pytest

from pipeline_assets.corpus.readers.columns import column_values, faults_by_row
from pipeline_assets.corpus.readers.faults import Fault

MOMENT = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("array", "encoded"),
    [
        (pa.array([MOMENT, None], pa.timestamp("ns")), b'["2023-11-14T22:13:20",null]'),
        (pa.array([MOMENT + 1], pa.timestamp("ns")), b'["2023-11-14 22:13:20.000000001"]'),
        (pa.array([MOMENT], pa.timestamp("ns", "UTC")), b'["2023-11-14T22:13:20Z"]'),
        (
            pa.array([[{"at": MOMENT}]], pa.list_(pa.struct([("at", pa.timestamp("ns"))]))),
            b'[[{"at":"2023-11-14T22:13:20"}]]',
        ),
        (pa.array([5_000_000], pa.duration("ns")), b'["PT0.005S"]'),
        (pa.array([1], pa.duration("ns")), b'["0 days 00:00:00.000000001"]'),
        (pa.array([1], pa.timestamp("us", "UTC")), b'["1970-01-01T00:00:00.000001Z"]'),
        (pa.array([datetime.date(2024, 2, 29)]), b'["2024-02-29"]'),
        (pa.array([decimal.Decimal("1.50")]), b'["1.50"]'),
        (pa.array([b"\xff"]), b'["/w=="]'),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), b'[[["k",1]]]'),
        (pa.array([float("nan"), 1.5]), b"[null,1.5]"),
        (pa.array([2**63], pa.uint64()), b"[9223372036854775808]"),
        (pa.array(["a", "b", "a"]).dictionary_encode(), b'["a","b","a"]'),
    ],
)
def test_values_of_every_type_can_be_written_as_json(array: pa.Array, encoded: bytes) -> None:
    assert msgspec.json.encode(column_values(array)) == encoded


def test_text_that_is_not_utf8_is_a_fault_of_its_row() -> None:
    raw = pa.array([b"a", b"\xff", b"ok\xed\xa0\x80", None], pa.binary()).view(pa.string())

    values = column_values(raw)

    faults = {1: Fault("invalid_utf8", "invalid start byte at byte 0"), 2: Fault("lone_surrogate", "at byte 2")}
    assert values == ["a", faults[1], faults[2], None]
    assert faults_by_row([["x"] * 4, values]) == faults
    assert faults_by_row([["x"] * 4]) == {}


@pytest.mark.parametrize(
    ("array", "detail"),
    [
        (pa.array([MOMENT, None], pa.timestamp("us", "No/Where")), "'No/Where'"),
        (pa.array([2**60, None], pa.timestamp("s")), "Python int too large to convert to C int"),
        (
            pa.array([[{"at": 2**60}], None], pa.list_(pa.struct([("at", pa.timestamp("s"))]))),
            "Python int too large to convert to C int",
        ),
    ],
)
def test_a_time_that_python_cannot_represent_is_a_fault_of_its_row(array: pa.Array, detail: str) -> None:
    assert column_values(array) == [Fault("unreadable_value", detail), None]


def structs(depth: int, value: pa.Array) -> pa.Array:
    for _ in range(depth):
        value = pa.StructArray.from_arrays([value], ["x"])
    return value


@pytest.mark.parametrize(("depth", "is_fault"), [(64, False), (65, True), (90, True)])
def test_a_value_nested_too_deep_is_a_fault_as_in_json(depth: int, is_fault: bool) -> None:
    [value] = column_values(structs(depth, pa.array([1])))

    assert (value == Fault("nested_too_deep", "more than 64 objects and lists inside one another")) is is_fault


def test_a_deep_type_with_a_shallow_value_is_not_a_fault() -> None:
    ended = pa.StructArray.from_arrays([structs(90, pa.array([1]))], ["x"], mask=pa.array([True]))

    assert column_values(ended) == [None]
