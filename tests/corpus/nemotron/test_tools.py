"""JSON Schema of tools; `jsonschema` is the oracle for common keywords."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.tools import MAX_STEPS, CompiledSchema

OBJECT = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
TREE = {"$defs": {"t": {"properties": {"of": {"$ref": "#/$defs/t"}}, "required": ["v"]}}, "$ref": "#/$defs/t"}


def fits(value: object, schema: object) -> bool:
    return CompiledSchema(schema).fits(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 3.0),
        ({"type": "string", "nullable": True}, None),
        ({"type": "dict"}, {}),
        ({"type": "quaternion"}, 1),
        ({"enum": ["a", 1]}, 1.0),
        ({"const": {"a": [1]}}, {"a": [1.0]}),
        (OBJECT, "no object, and no type that asks for one"),
        ({"required": True}, {}),
        ({"items": {"type": "string"}}, ["a"]),
        ({"items": [{"type": "string"}]}, ["a", 1]),
        (TREE, {"v": 1, "of": {"v": 2}}),
        ({"$ref": "other.json"}, 1),
        ({"multipleOf": 0.1}, 0.3),
        ({"exclusiveMinimum": True, "minimum": 0}, 0.5),
        ({"format": "date"}, "no date"),
        ({"pattern": "b+"}, "abc"),
        ({"pattern": r"^[\u00e0-\u00ef]$"}, "é"),
        ({"pattern": r"^\\u00e9$"}, r"\u00e9"),
        ({"pattern": "^(?!draft)"}, "draft: nothing looks ahead in linear time"),
        ({"pattern": "("}, "no expression"),
        ({"pattern": "^a$"}, 1),
        ({"patternProperties": {"^x_": {"type": "string"}}, "additionalProperties": False}, {"x_a": "b"}),
        ({"patternProperties": {"(?=x)": {"type": "string"}}, "additionalProperties": False}, {"x_a": 1}),
        ({"minLength": "x", "properties": []}, {"a": 1}),
        ({"$ref": "#"}, "a reference to itself says nothing"),
        ({"contains": {"type": "string"}, "minContains": 0}, [1]),
        (None, 1),
    ],
)
def test_value_fits_schema(schema: object, value: object) -> None:
    assert fits(value, schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "float"}, "1.5"),
        (OBJECT, {}),
        (TREE, {"v": 1, "of": {}}),
        ({"pattern": r"^\d{4}$"}, "2024\n"),
        ({"pattern": "(a+)+$"}, "a" * 50 + "b"),
        ({"uniqueItems": True}, [1, {"a": 1}, 1.0]),
        ({"exclusiveMaximum": True, "maximum": 2}, 2),
        ({"contains": {"type": "string"}}, [1]),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}),
    ],
)
def test_value_does_not_fit_schema(schema: object, value: object) -> None:
    assert not fits(value, schema)


DOUBLING = {f"a{step}": {"allOf": [{"$ref": f"#/$defs/a{step + 1}"}] * 2} for step in range(30)}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": DOUBLING, "$ref": "#/$defs/a0"},
        {"patternProperties": {f"^x{number}$": {} for number in range(101)}},
        {"allOf": [True] * 50_000},
    ],
    ids=["exponential", "expressions", "parts"],
)
def test_nothing_fits_a_schema_that_is_too_complex(schema: object) -> None:
    assert not fits({}, schema)


def test_a_recursive_schema_is_not_too_complex() -> None:
    value = json.loads("[" * 60 + "]" * 60)

    assert fits(value, {"type": "array", "items": {"allOf": [{"$ref": "#"}] * 2}})
    assert not fits([value], {"type": "array", "items": {"allOf": [{"$ref": "#"}] * 2}, "maxItems": 0})


@pytest.mark.parametrize("expression", ["(a+)+$", "(((a?b?){30}){30})c", r"(\pL{1000}){9}c"])
def test_hostile_expressions_match_in_linear_time_or_are_ignored(expression: str) -> None:
    is_read = "pL" not in expression

    assert fits("ab" * 100_000, {"pattern": expression}) is not is_read


def test_steps_grow_with_the_schema_and_the_value() -> None:
    small = CompiledSchema({"type": "object"})
    large = CompiledSchema({"properties": {f"p{number}": {} for number in range(1000)}})

    assert large.max_steps(10) > 100 * small.max_steps(10)
    assert large.max_steps(100_000) < MAX_STEPS < large.max_steps(1_000_000)


def test_uniqueness_is_checked_in_lists_of_any_length() -> None:
    assert fits([*range(5_000), "1", True, [1], {"a": 1}], {"uniqueItems": True})
    assert not fits([*range(5_000), 4_999.0], {"uniqueItems": True})
    assert not fits([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}], {"uniqueItems": True})


NAMES = st.sampled_from(["a", "ab", "b1"])
PATTERNS = st.sampled_from(["^a", "b$", "[0-9]+", "(a|b){2}", ""])
TEXTS = st.sampled_from(["", "a", "ab", "b1", "1ba", "é"])
SIZES = st.integers(0, 3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 6) | st.sampled_from([1.0, 0.5, -2.5]) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])


def build_schemas(inner: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Draw schemas of up to three keywords; more would fit nothing."""
    schemas, variants = st.booleans() | inner, st.lists(inner, min_size=1, max_size=2)
    keywords: dict[str, st.SearchStrategy[object]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "properties": st.dictionaries(NAMES, schemas, max_size=2),
        "patternProperties": st.dictionaries(PATTERNS, schemas, max_size=2),
        "additionalProperties": schemas,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "items": schemas,
        "prefixItems": variants,
        "anyOf": variants,
        "oneOf": variants,
        "allOf": variants,
        "not": schemas,
        "$ref": st.just("#/$defs/leaf"),
        "pattern": PATTERNS,
        "uniqueItems": st.booleans(),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
    }
    keywords |= {f"{side}{kind}": SIZES for side in ("min", "max") for kind in ("Length", "Items", "Properties")}
    keywords |= {name: st.integers(-3, 3) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")}
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


@given(VALUES, st.recursive(build_schemas(st.booleans()), build_schemas, max_leaves=4), build_schemas(st.booleans()))
@settings(max_examples=500)
def test_verdicts_equal_those_of_jsonschema(value: object, schema: dict[str, object], leaf: dict[str, object]) -> None:
    schema = schema | {"$defs": {"leaf": {name: part for name, part in leaf.items() if name != "$ref"}}}

    assert fits(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)
