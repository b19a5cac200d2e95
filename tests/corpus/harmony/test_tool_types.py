"""Types of tool schemas: equal to openai-harmony's, without lost arguments."""

import pytest
from harmony_oracle import type_text
from harmony_strategies import SCHEMAS
from hypothesis import given, settings

from pipeline_assets.corpus.harmony.message import JsonValue, Refusal, compact_json, content_text
from pipeline_assets.corpus.harmony.prompt import add_object_types, typescript_type


@settings(max_examples=400)
@given(SCHEMAS)
def test_types_equal_the_librarys_on_any_schema(schema: JsonValue) -> None:
    assert typescript_type(schema) == type_text(schema)


@given(SCHEMAS)
def test_object_types_are_added_once_and_remove_nothing(schema: JsonValue) -> None:
    completed = add_object_types(schema)

    assert add_object_types(completed) == completed
    if isinstance(schema, dict) and schema.get("type") is not None:
        assert list(completed) == list(schema)


def test_arguments_of_schemas_without_a_type_are_shown() -> None:
    schema: JsonValue = {
        "properties": {
            "id": {"type": "string"},
            "lines": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}},
            "to": {"type": None, "properties": {"zip": {"type": "string"}}},
            "pay": {"oneOf": [{"properties": {"card": {"type": "string"}}}, {"type": "null"}]},
        },
        "required": ["id"],
    }

    assert type_text(schema) == typescript_type(schema) == "any"
    assert typescript_type(add_object_types(schema)) == (
        "{\nid: string,\nlines?: {\n    n: number,\n    }[],\nto?: {\n    zip?: string,\n    },\n"
        "pay?:\n | {\n   card?: string,\n   }\n | any\n,\n}"
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": ["a", "b"]}, "any"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "any"),
        ({"type": ["object", "null"], "properties": {"a": {"type": "string"}}}, "object | null"),
        ({"type": "object", "properties": {"a": {}}, "oneOf": [{"required": ["a"]}]}, "\n | any"),
        ({"type": "array"}, "Array<any>"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, '"a" | "b"[]'),
    ],
)
def test_types_that_the_library_does_not_show_are_not_invented(schema: JsonValue, expected: str) -> None:
    assert typescript_type(add_object_types(schema)) == type_text(schema) == expected


def test_number_is_exact_unlike_the_last_digit_of_the_library() -> None:
    default = 6.240203475318573e112
    schema: JsonValue = {"type": "object", "properties": {"a": {"type": "string", "default": default}}}

    assert typescript_type(schema) == "{\na?: string, // default: 6.240203475318573e112\n}"
    assert type_text(schema) == "{\na?: string, // default: 6.240203475318574e112\n}"


def test_numbers_are_written_as_in_rust() -> None:
    written = {1e20: "1e20", 1e-5: "0.00001", 1e-6: "1e-6", 100.0: "100.0", -0.0: "-0.0", 1.5e16: "1.5e16"}

    assert {number: compact_json(number) for number in written} == written
    assert compact_json({"b": [1, True, None], "a": "é"}) == '{"b":[1,true,null],"a":"é"}'


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 10**400])
def test_number_out_of_range_is_refused(number: float) -> None:
    with pytest.raises(Refusal, match="number_out_of_range"):
        typescript_type({"type": "object", "properties": {"a": {"default": number}}})


def test_too_deep_schema_is_refused() -> None:
    schema: JsonValue = {}
    for _ in range(130):
        schema = {"type": "array", "items": schema}

    with pytest.raises(Refusal, match="schema_too_deep: a tool's schema is nested more than 60 deep"):
        add_object_types(schema)
    with pytest.raises(ValueError, match="recursion limit"):
        type_text(schema)


def test_content_other_than_text_is_json_with_sorted_keys() -> None:
    assert content_text({"b": "é", "a": [1, None]}) == '{"a": [1, null], "b": "é"}'
    assert content_text("as it is") == "as it is"


class Name(str):
    """A name that counts how often it is compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)


def test_required_properties_are_looked_up_in_constant_time() -> None:
    names = [Name(f"p{number}") for number in range(1_000)]
    Name.comparisons = 0

    written = typescript_type({"type": "object", "properties": {name: {} for name in names}, "required": names[::2]})

    assert written.splitlines()[1:3] == ["p0: any,", "p1?: any,"]
    assert Name.comparisons < 10 * len(names)
