"""Cursors: sensors go on after a cursor that they did not store."""

import json
import math
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from hypothesis import given
from hypothesis import strategies as st
from materialized import NOWHERE

from pipeline_assets import sealed_sensor
from pipeline_assets.definitions import build_definitions
from pipeline_assets.sensor_cursor import read_cursor
from resources.store import Hub

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(st.text() | json_values.map(json.dumps))
def test_any_text_gives_a_stored_value_or_the_default(text: str) -> None:
    fingerprint, count = read_cursor(text, tuple[str, int], ("", 0))

    assert type(fingerprint) is str and type(count) is int
    assert (fingerprint, count) == ("", 0) or json.loads(text) == [fingerprint, count]


def test_a_stored_value_is_read_and_no_cursor_is_the_default() -> None:
    assert read_cursor('{"a": [1.5, {"b": null}]}', dict[str, tuple[float, dict[str, None]]], {}) == {
        "a": (1.5, {"b": None})
    }
    assert read_cursor(None, dict[str, str], {"first": "tick"}) == {"first": "tick"}


@pytest.fixture(scope="module")
def definitions(built_notes: Path) -> dg.Definitions:
    return build_definitions(built_notes)


@pytest.mark.parametrize("name", ["sealed_artifacts", "external_sources", "freshness"])
def test_a_sensor_starts_anew_after_a_cursor_of_something_else(
    name: str, definitions: dg.Definitions, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_sensor, "_POLLING_SHARE", math.inf)  # no pause between ticks
    [sensor] = [sensor for sensor in definitions.sensors or [] if sensor.name == name]

    def tick(cursor: str | None) -> SensorExecutionData:
        with dg.build_sensor_context(instance, cursor, resources={"hub": Hub(endpoint=NOWHERE)}) as context:
            return sensor.evaluate_tick(context)

    first = tick(None)

    for cursor in ("edited in the UI", "[]", '{"files/notes": 1}', "0f3c 12"):
        anew = tick(cursor)
        assert [event.asset_key for event in anew.asset_events] == [event.asset_key for event in first.asset_events]  # type: ignore[union-attr]
        assert json.loads(anew.cursor or "") is not None
