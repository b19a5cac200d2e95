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

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from pipeline_assets.corpus.harmony.message import JsonValue

_MAX_DEPTH = 100
# References to itself can make a schema endless, and variants of them exponential. A step takes a microsecond or three.
MAX_STEPS = 200_000
_CHARACTERS_A_STEP = 1000
_STATES_A_STEP = 10  # of an expression that is read
_MAX_REPETITIONS = 1000  # RE2 has no more
_ESCAPED = re.compile(r"\\u([0-9A-Fa-f]{4})|\\.", re.DOTALL)
_EXPRESSION_TOKEN = re.compile(
    r"\\[pP]\{\^?\w+\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)|\{(?P<low>\d+)(?P<more>,(?P<high>\d*))?\}|.", re.DOTALL
)
_STATES_OF_A_PROPERTY = 500  # `\p{L}` is as many ranges of bytes
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


class Budget:
    """How much work may still be spent: on all the values of a row together, since a row can have many."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """
        Raises:
            _TooComplex: there isn't as much left.
        """
        self.left -= steps
        if self.left < 0:
            raise _TooComplex


def fits(value: JsonValue, schema: JsonValue, budget: Budget | None = None) -> bool:
    """Whether the value fits; anything fits what is no schema. What is too deep or takes too long to tell doesn't."""
    try:
        return _fits(value, schema, _Schema(schema, budget or Budget()), 0)
    except (_TooComplex, RecursionError):
        return False


def is_equal(one: JsonValue, other: JsonValue) -> bool:
    """Equal as JSON: 1 is 1.0 but not true, and the order of keys is nothing."""
    return _canonical(one, Budget()) == _canonical(other, Budget())


class _TooComplex(Exception):
    pass


class _Schema:
    """The whole schema, which references lead into, and how much work is left to spend on it."""

    def __init__(self, root: JsonValue, budget: Budget) -> None:
        self.root = root
        self.budget = budget
        self.spend = budget.spend
        self._listed: dict[int, frozenset[str]] = {}

    def listed(self, values: list[JsonValue]) -> frozenset[str]:
        """The values of an `enum` of the schema, canonical."""
        if id(values) not in self._listed:
            self._listed[id(values)] = frozenset(_canonical(value, self.budget) for value in values)
        return self._listed[id(values)]


def _canonical(value: JsonValue, budget: Budget) -> str:
    """Text that is the same for values that are equal as JSON. Not a key of numbers: many can be made with one hash."""
    match value:
        case bool() | None:
            budget.spend(1)
            return json.dumps(value)
        case str():
            budget.spend(1 + len(value) // _CHARACTERS_A_STEP)
            return json.dumps(value)
        case list():
            budget.spend(1)
            return f"[{','.join([_canonical(one, budget) for one in value])}]"
        case dict():
            budget.spend(1 + len(value))
            return f"{{{','.join([f'{json.dumps(key)}:{_canonical(value[key], budget)}' for key in sorted(value)])}}}"
    budget.spend(1)
    return value.hex() if isinstance(value, float) and not value.is_integer() else f"{int(value):x}"


def _fits(value: JsonValue, schema: JsonValue, root: _Schema, depth: int) -> bool:
    root.spend(1)
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        return True
    if depth > _MAX_DEPTH:
        raise _TooComplex
    if value is None and schema.get("nullable") is True:
        return True
    if not _is_of_type(value, schema.get("type"), root) or not _is_listed(value, schema, root):
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


def _is_of_type(value: JsonValue, types: JsonValue, root: _Schema) -> bool:
    names = [types] if isinstance(types, str) else types
    if not isinstance(names, list) or not names:
        return True
    root.spend(len(names) - 1)
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


def _is_listed(value: JsonValue, schema: Mapping[str, JsonValue], root: _Schema) -> bool:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and _canonical(value, root.budget) not in root.listed(allowed):
        return False
    if "const" not in schema:
        return True
    return _canonical(value, root.budget) == _canonical(schema["const"], root.budget)


def _fits_combinations(value: JsonValue, schema: Mapping[str, JsonValue], root: _Schema, depth: int) -> bool:
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _fits(value, _referred(reference, root), root, depth):
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


def _referred(reference: str, root: _Schema) -> JsonValue:
    """What `#/$defs/…` stands for; anything fits a reference to elsewhere or to nothing."""
    root.spend(len(reference) // _STATES_A_STEP)
    if not reference.startswith("#"):
        return True
    found = root.root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return True
        found = found[key]
    return found


def _fits_object(value: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], root: _Schema, depth: int) -> bool:
    required = schema.get("required")
    if isinstance(required, list):
        root.spend(len(required))
        if not all(name in value for name in required if isinstance(name, str)):
            return False
    if not _is_within(len(value), _number(schema, "minProperties"), _number(schema, "maxProperties")):
        return False
    others = schema.get("additionalProperties", True)
    is_named: set[str] = set()
    for name, part in _property_schemas(list(value), schema, root):
        is_named.add(name)
        if not _fits(value[name], part, root, depth):
            return False
    return all(_fits(one, others, root, depth) for name, one in value.items() if name not in is_named)


def _property_schemas(
    names: Sequence[str], schema: Mapping[str, JsonValue], root: _Schema
) -> Iterator[tuple[str, JsonValue]]:
    """(name, what the schema says of a property by it); anything, where an expression for names can't be read."""
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    if isinstance(properties, dict):
        yield from ((name, properties[name]) for name in names if name in properties)
    for pattern, part in patterns.items() if isinstance(patterns, dict) and names else ():
        for name, is_matched in zip(names, _matches(names, pattern, root), strict=True):
            if is_matched is not False:
                yield name, True if is_matched is None else part


def _fits_array(value: list[JsonValue], schema: Mapping[str, JsonValue], root: _Schema, depth: int) -> bool:
    if not _is_within(len(value), _number(schema, "minItems"), _number(schema, "maxItems")):
        return False
    if schema.get("uniqueItems") is True and len({_canonical(one, root.budget) for one in value}) < len(value):
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
    return not isinstance(pattern, str) or _matches([value], pattern, root)[0] is not False


def _matches(texts: Sequence[str], pattern: str, root: _Schema) -> Sequence[bool | None]:
    """Whether the expression is found in each text; None where RE2 can't tell.

    RE2 takes a step for each character and state at worst, and that is what is spent.
    """
    root.spend(len(texts) + len(pattern) // _STATES_A_STEP)
    states = _states(pattern)
    root.spend(states // _STATES_A_STEP + sum(map(len, texts)) * states // _CHARACTERS_A_STEP)
    expression = _ESCAPED.sub(lambda found: f"\\x{{{found[1]}}}" if found[1] else found[0], pattern)
    try:
        found: list[bool | None] = pc.match_substring_regex(pa.array(texts, pa.string()), expression).to_pylist()
        return found
    except pa.ArrowInvalid:
        return [None] * len(texts)
    except UnicodeEncodeError:  # half of a character, in one of them or in the expression
        return [None] if len(texts) == 1 else [_matches([text], pattern, root)[0] for text in texts]


def _states(pattern: str) -> int:
    """Of the automaton that an expression becomes, about: its tokens, times the repetitions that they stand in."""
    outer: list[int] = []
    states = last = 0
    for token in _EXPRESSION_TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            outer.append(states)
            states = 0
        elif text == ")" and outer:
            last, states = states, states + outer.pop()
        elif token["low"]:
            times = min(_MAX_REPETITIONS, int((token["high"] or token["low"])[:4]))
            states += last * max(times - 1, 0)
            last *= max(times, 1)
        else:
            last = _STATES_OF_A_PROPERTY if text[:2] in ("\\p", "\\P") else len(text)
            states += last
    return states + sum(outer)


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
    if step and not (math.isfinite(value) and math.isfinite(step)):
        return False
    # By their decimal digits: 0.3 is a multiple of 0.1, as whoever wrote it meant.
    return not step or (Fraction(str(value)) / Fraction(str(step))).denominator == 1


def _number(schema: Mapping[str, JsonValue], keyword: str) -> float | None:
    value = schema.get(keyword)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
