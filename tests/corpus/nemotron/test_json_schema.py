"""JSON Schema, as far as tools of the field use it: what each keyword refuses, and what refuses nothing."""

import sys

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.nemotron.json_schema import MAX_STEPS, Budget, fits, is_equal

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
        ({"format": "date"}, "no date"),
        ({"pattern": "b+"}, "abc"),
        ({"pattern": r"^[\u00e0-\u00ef]$"}, "é"),
        ({"pattern": r"^\\u00e9$"}, r"\u00e9"),
        ({"pattern": "^(?!draft)"}, "draft: RE2 never looks ahead"),
        ({"pattern": "("}, "no expression"),
        ({"pattern": "^a$"}, 1),
        ({"patternProperties": {"^x_": {"type": "string"}}, "additionalProperties": False}, {"x_a": "b"}),
        ({"patternProperties": {"(?=x)": {"type": "string"}}, "additionalProperties": False}, {"x_a": 1}),
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
        ({"pattern": r"^\d{4}$"}, "2024\n"),
        ({"pattern": "(a+)+$"}, "a" * 50 + "b"),
        ({"patternProperties": {"^x_": {"type": "string"}}}, {"x_a": 1}),
        ({"properties": {"x_a": {}}, "patternProperties": {"^x_": {"type": "string"}}}, {"x_a": 1}),
        ({"patternProperties": {"^x_": {}}, "additionalProperties": False}, {"y": 1}),
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
    "schema", [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}] * 2, "$ref": "#"}], ids=["endless", "exponential"]
)
def test_what_can_never_be_told_does_not_fit(schema: object) -> None:
    assert not fits(list(range(5_000)), schema)


# Each pays with the product of its two parts where every pair of them is looked at.
MANY = 5_000
SAME_HASH = [number * (2**61 - 1) for number in range(MANY)]
PAIRS: dict[str, tuple[object, object]] = {
    "values × enum": ({"items": {"enum": [f"{number:05}" for number in range(MANY)]}}, [f"{MANY - 1:05}"] * MANY),
    "items × items": ({"uniqueItems": True}, list(range(MANY))),
    "items × items of one hash": ({"uniqueItems": True}, SAME_HASH),
    "values × enum of one hash": ({"items": {"enum": SAME_HASH}}, SAME_HASH),
    "keys × patternProperties": (
        {"patternProperties": {f"^x{number}$": {} for number in range(MANY)}},
        {f"y{number}": 1 for number in range(MANY)},
    ),
    "keys × patternProperties that match": (
        {"patternProperties": {f"({number})?": True for number in range(MANY)}},
        {f"y{number}": 1 for number in range(MANY)},
    ),
    "items × allOf": ({"items": {"allOf": [True] * MANY}}, [1] * MANY),
    "items × required": ({"items": {"required": ["a"] * MANY}}, [{"a": 1}] * MANY),
    "items × types": ({"items": {"type": ["string"] * MANY}}, [1] * MANY),
    "items × const": ({"items": {"const": ["a"] * MANY}}, [["a"] * 2] * MANY),
    "items × reference": ({"items": {"$ref": "#/" + "/".join("a" * MANY)}}, [1] * MANY),
    "characters × states": ({"pattern": "(((a?b?){30}){30})c"}, "ab" * 500_000),
    "characters × states of properties": ({"pattern": r"(\pL{1000}){9}c"}, "\xe9" * 500_000),
    "characters × expression": ({"pattern": f"[ab]*a{'[ab]' * MANY}c"}, "ab" * MANY),
    "values × expression": ({"items": {"pattern": "a" * MANY}}, ["b"] * MANY),
}


def calls_made(schema: object, value: object) -> int:
    """How many functions were called, ours and others'."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        fits(value, schema)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("pair", PAIRS)
def test_what_would_take_the_product_of_two_lengths_is_stopped_by_the_budget_or_takes_their_sum(pair: str) -> None:
    schema, value = PAIRS[pair]

    assert calls_made(schema, value) < 5 * MAX_STEPS


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if "enum" in pair or "items of" in pair or "× items" in pair])
def test_lists_are_held_against_lists_in_steps_that_grow_as_they_do(pair: str) -> None:
    schema, value = PAIRS[pair]
    budget = Budget(10 * MANY)

    assert fits(value, schema, budget)
    assert budget.left > 0


def test_a_list_of_any_length_tells_whether_its_items_are_unique() -> None:
    assert fits([*range(5_000), "1", True, [1], {"a": 1}], {"uniqueItems": True})
    assert not fits([*range(5_000), 4_999.0], {"uniqueItems": True})
    assert not fits([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}], {"uniqueItems": True})


def test_the_calls_of_a_row_share_one_budget() -> None:
    budget, schema = Budget(1000), {"items": {"type": "integer"}}

    verdicts = [fits([1] * 300, schema, budget) for _ in range(4)]

    assert verdicts == [True, True, True, False]


@pytest.mark.parametrize(("schema", "value"), [({"multipleOf": 0.1}, float("inf")), ({"multipleOf": float("nan")}, 1)])
def test_no_number_is_a_multiple_of_what_is_none(schema: object, value: object) -> None:
    assert not fits(value, schema)


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


def of_keywords(inner: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Schemas of a few keywords each: of many, they would fit nothing."""
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
    keywords |= {f"{side}{what}": SIZES for side in ("min", "max") for what in ("Length", "Items", "Properties")}
    keywords |= {name: st.integers(-3, 3) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")}
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


@given(VALUES, st.recursive(of_keywords(st.booleans()), of_keywords, max_leaves=4), of_keywords(st.booleans()))
@settings(max_examples=500)
def test_verdicts_are_those_of_jsonschema(value: object, schema: dict[str, object], leaf: dict[str, object]) -> None:
    schema = schema | {"$defs": {"leaf": {name: part for name, part in leaf.items() if name != "$ref"}}}

    assert fits(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)
