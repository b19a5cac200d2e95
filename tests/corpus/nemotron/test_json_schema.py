"""JSON Schema, as far as tools of the field use it: what each keyword refuses, and what refuses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.json_schema import fits, is_equal

OBJECT = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
TREE = {"$defs": {"t": {"properties": {"of": {"$ref": "#/$defs/t"}}, "required": ["v"]}}, "$ref": "#/$defs/t"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, ""),
        ({"type": "integer"}, 3),
        ({"type": "integer"}, 3.0),
        ({"type": "number"}, 3),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "string", "nullable": True}, None),
        ({"type": "dict"}, {}),
        ({"type": "quaternion"}, 1),
        ({"enum": ["a", 1]}, 1.0),
        ({"const": {"a": [1]}}, {"a": [1.0]}),
        (OBJECT, {"a": 1, "b": 2}),
        (OBJECT, "no object, and no type that asks for one"),
        ({"required": True}, {}),
        ({"items": {"type": "string"}}, ["a"]),
        ({"items": [{"type": "string"}]}, ["a", 1]),
        ({"prefixItems": [{}], "items": {"type": "string"}}, [1, "a"]),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, 3),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, 3),
        ({"not": {"type": "string"}}, 3),
        (TREE, {"v": 1, "of": {"v": 2}}),
        ({"$ref": "other.json"}, 1),
        ({"multipleOf": 0.1}, 0.3),
        ({"exclusiveMinimum": True, "minimum": 0}, 0.5),
        ({"format": "date", "pattern": "(a+)+$"}, "no date"),
        ({"minLength": "x", "properties": []}, {"a": 1}),
        (None, 1),
        (True, 1),
    ],
)
def test_it_fits(schema: object, value: object) -> None:
    assert fits(value, schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, 1),
        ({"type": "integer"}, True),
        ({"type": "integer"}, 3.5),
        ({"type": "number"}, "3"),
        ({"type": ["string", "null"]}, 1),
        ({"type": "float"}, "1.5"),
        ({"type": "string"}, None),
        ({"enum": [1]}, True),
        ({"const": None}, 0),
        (OBJECT, {}),
        (OBJECT, {"a": "1"}),
        (OBJECT | {"additionalProperties": False}, {"a": 1, "b": 2}),
        ({"additionalProperties": {"type": "string"}}, {"b": 2}),
        ({"items": {"type": "string"}}, ["a", 1]),
        ({"prefixItems": [{"type": "string"}]}, [1]),
        ({"allOf": [{"type": "number"}, {"maximum": 2}]}, 3),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, 2),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 3),
        ({"not": {}}, 3),
        (TREE, {"v": 1, "of": {}}),
        ({"minLength": 2}, "a"),
        ({"maxItems": 1}, [1, 2]),
        ({"uniqueItems": True}, [1, {"a": 1}, 1.0]),
        ({"minProperties": 1}, {}),
        ({"multipleOf": 2}, 3),
        ({"exclusiveMinimum": 0}, 0),
        ({"exclusiveMaximum": True, "maximum": 2}, 2),
        (False, 1),
    ],
)
def test_it_does_not_fit(schema: object, value: object) -> None:
    assert not fits(value, schema)


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}] * 2, "$ref": "#"}, {"uniqueItems": True}],
    ids=["endless", "exponential", "quadratic"],
)
def test_what_can_never_be_told_does_not_fit(schema: object) -> None:
    assert not fits(list(range(5_000)), schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, "1", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(JSON)
def test_a_value_fits_itself_as_const_and_enum_and_not_their_negation(value: object) -> None:
    assert is_equal(value, value)
    assert fits(value, {"const": value}) and fits(value, {"enum": [[value], value]})
    assert not fits(value, {"not": {"const": value}})
