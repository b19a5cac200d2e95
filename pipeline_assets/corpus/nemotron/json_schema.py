"""Whether a value fits a JSON Schema, for the schemas that tools of the field have.

Read: type (a name or a list of names), nullable, enum, const, properties, patternProperties, additionalProperties,
required, items (a schema, or a list of them), prefixItems, anyOf, oneOf, allOf, not, `$ref` into the schema itself,
pattern, bounds of numbers, of lengths and of how many there are, uniqueItems, multipleOf. The source is JSON Schema,
draft 2020-12, with `nullable` as OpenAPI 3.0 has it. Expressions are RE2's, which take linear time: a row could bring
one that runs for hours elsewhere.

What isn't read refuses nothing: format and the other keywords, expressions that RE2 doesn't have (looking ahead,
references back), a keyword whose own value is malformed, a type that nobody defines. The Python names of types, common
in such schemas, mean what they say.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from pipeline_assets.corpus.harmony.json_text import JsonValue

_MAX_DEPTH = 100
_MAX_STEPS = 100_000  # references to itself can make a schema endless, and variants of them exponential
_CHARACTERS_A_STEP = 1000
_ESCAPED = re.compile(r"\\u([0-9A-Fa-f]{4})|\\.", re.DOTALL)
_PYTHON_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "None": "null",
}


def fits(value: JsonValue, schema: JsonValue) -> bool:
    """Whether the value fits; anything fits what is no schema. What is too deep or takes too long to tell doesn't."""
    try:
        return _fits(value, schema, _Schema(schema), 0)
    except (_TooComplex, RecursionError):
        return False


def is_equal(one: JsonValue, other: JsonValue) -> bool:
    """Equal as JSON: 1 is 1.0 but not true, and the order of keys is nothing."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(value, other[key]) for key, value in one.items())
    return one == other


class _TooComplex(Exception):
    pass


class _Schema:
    """The whole schema, which references lead into, and how much work is left to spend on it."""

    def __init__(self, root: JsonValue) -> None:
        self.root = root
        self._steps = _MAX_STEPS

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise _TooComplex


def _fits(value: JsonValue, schema: JsonValue, root: _Schema, depth: int) -> bool:
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return True
    root.spend(1)
    if depth > _MAX_DEPTH:
        raise _TooComplex
    if value is None and schema.get("nullable") is True:
        return True
    if not _is_of_type(value, schema.get("type")) or not _is_listed(value, schema):
        return False
    if not _fits_combinations(value, schema, root, depth + 1):
        return False
    match value:
        case dict():
            return _fits_object(value, schema, root, depth + 1)
        case list():
            return _fits_array(value, schema, root, depth + 1)
        case str():
            return _fits_text(value, schema, root)
        case int() | float() if not isinstance(value, bool):
            return _fits_number(value, schema)
    return True


def _is_of_type(value: JsonValue, types: JsonValue) -> bool:
    names = [types] if isinstance(types, str) else types
    if not isinstance(names, list) or not names:
        return True
    return any(_is_named(value, name) for name in names)


def _is_named(value: JsonValue, name: JsonValue) -> bool:
    match _PYTHON_NAMES.get(name, name) if isinstance(name, str) else name:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
    return True


def _is_listed(value: JsonValue, schema: Mapping[str, JsonValue]) -> bool:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and not any(is_equal(value, one) for one in allowed):
        return False
    return "const" not in schema or is_equal(value, schema["const"])


def _fits_combinations(value: JsonValue, schema: Mapping[str, JsonValue], root: _Schema, depth: int) -> bool:
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _fits(value, _referred(reference, root.root), root, depth):
        return False
    if not all(_fits(value, part, root, depth) for part in _variants(schema, "allOf")):
        return False
    any_of, one_of = _variants(schema, "anyOf"), _variants(schema, "oneOf")
    if any_of and not any(_fits(value, variant, root, depth) for variant in any_of):
        return False
    if one_of and sum(_fits(value, variant, root, depth) for variant in one_of) != 1:
        return False
    return "not" not in schema or not _fits(value, schema["not"], root, depth)


def _variants(schema: Mapping[str, JsonValue], keyword: str) -> list[JsonValue]:
    variants = schema.get(keyword)
    return variants if isinstance(variants, list) else []


def _referred(reference: str, root: JsonValue) -> JsonValue:
    """What `#/$defs/…` stands for; anything fits a reference to elsewhere or to nothing."""
    if not reference.startswith("#"):
        return True
    found = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return True
        found = found[key]
    return found


def _fits_object(value: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], root: _Schema, depth: int) -> bool:
    required = schema.get("required")
    if isinstance(required, list) and not all(name in value for name in required if isinstance(name, str)):
        return False
    if not _is_within(len(value), _number(schema, "minProperties"), _number(schema, "maxProperties")):
        return False
    others = schema.get("additionalProperties", True)
    for name, one in value.items():
        its_own = list(_property_schemas(name, schema, root))
        if not all(_fits(one, part, root, depth) for part in its_own or [others]):
            return False
    return True


def _property_schemas(name: str, schema: Mapping[str, JsonValue], root: _Schema) -> Iterator[JsonValue]:
    """What the schema says of a property by its name; anything, where an expression for names can't be read."""
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    if isinstance(properties, dict) and name in properties:
        yield properties[name]
    for pattern, part in patterns.items() if isinstance(patterns, dict) else ():
        is_matched = _matches(name, pattern, root)
        if is_matched is not False:
            yield True if is_matched is None else part


def _fits_array(value: list[JsonValue], schema: Mapping[str, JsonValue], root: _Schema, depth: int) -> bool:
    if not _is_within(len(value), _number(schema, "minItems"), _number(schema, "maxItems")):
        return False
    if schema.get("uniqueItems") is True:
        root.spend(len(value) ** 2)
        if any(is_equal(one, other) for place, one in enumerate(value) for other in value[:place]):
            return False
    items = schema.get("items")
    first = items if isinstance(items, list) else schema.get("prefixItems")
    heads = first if isinstance(first, list) else []
    rest = True if isinstance(items, list) else items
    return all(_fits(one, heads[place] if place < len(heads) else rest, root, depth) for place, one in enumerate(value))


def _fits_text(value: str, schema: Mapping[str, JsonValue], root: _Schema) -> bool:
    if not _is_within(len(value), _number(schema, "minLength"), _number(schema, "maxLength")):
        return False
    pattern = schema.get("pattern")
    return not isinstance(pattern, str) or _matches(value, pattern, root) is not False


def _matches(text: str, pattern: str, root: _Schema) -> bool | None:
    """Whether the expression is found in the text; None where RE2 can't tell."""
    root.spend(len(text) // _CHARACTERS_A_STEP)
    expression = _ESCAPED.sub(lambda found: f"\\x{{{found[1]}}}" if found[1] else found[0], pattern)
    try:
        return bool(pc.match_substring_regex(pa.scalar(text), expression).as_py())
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None


def _fits_number(value: float, schema: Mapping[str, JsonValue]) -> bool:
    low, high = _number(schema, "minimum"), _number(schema, "maximum")
    if not _is_within(value, low, high):
        return False
    # Draft 4 has booleans here, which sharpen minimum and maximum.
    above = low if schema.get("exclusiveMinimum") is True else _number(schema, "exclusiveMinimum")
    below = high if schema.get("exclusiveMaximum") is True else _number(schema, "exclusiveMaximum")
    if (above is not None and value <= above) or (below is not None and value >= below):
        return False
    step = _number(schema, "multipleOf")
    # By their decimal digits: 0.3 is a multiple of 0.1, as whoever wrote it meant.
    return not step or (Fraction(str(value)) / Fraction(str(step))).denominator == 1


def _number(schema: Mapping[str, JsonValue], keyword: str) -> float | None:
    value = schema.get(keyword)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
