"""Tools that a row declares, against which its calls are checked.

Arguments are checked with jsonschema-rs, draft 2020-12. A catalogue stores each list of tools once, by its id.

Schemas of tools are often not valid JSON Schema, so they are rewritten before the library reads them. Python names of
types are translated; `nullable` follows OpenAPI 3.0; a list of `items` and a boolean `exclusiveMinimum` follow older
drafts. Unreadable parts are replaced by the schema `true`: a malformed subschema, an unknown type, a reference to
something outside the schema, a regular expression that needs more than linear time (lookaround, backreferences).
`format`, anchors and `unevaluated` keywords are ignored.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, cast

import jsonschema_rs
import msgspec

from pipeline_assets.corpus.harmony.message import JsonValue, Message
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS_NAMESPACE, FunctionTool, ToolNamespace, function_namespace
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason, canonical_json, decode_json, has_value
from pipeline_assets.corpus.readers.nesting import is_nested_within

# Limits on the parts of a schema and on the steps of checking all calls of a row, which could take minutes: expanded
# references can make a schema exponentially large, and a row can have many schemas. Real schemas weigh 10 to 1,000.
MAX_WEIGHT = 50_000
MAX_STEPS = 200_000_000
_PATTERN_WEIGHT = 500
_STEPS_PER_PART = 1000  # cost of building the part's validator
_PATTERN_OPTIONS = jsonschema_rs.RegexOptions(size_limit=4 << 20)
_JSON_TYPES_BY_PYTHON_NAME = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "None": "null",
}
_JSON_TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


class CompiledSchema:
    """Compiled JSON Schema of a tool's arguments.

    Any value fits a schema that is neither an object nor a boolean. No value fits a schema that is too complex.
    """

    def __init__(self, schema: JsonValue) -> None:
        self._weight, self._validator = 0, None
        try:
            rewriter = _SchemaRewriter(schema)
        except _TooComplex:
            return
        self._weight, self._validator = rewriter.weight, _compile_validator(rewriter.rewritten)

    def fits(self, value: JsonValue) -> bool:
        return self._validator is not None and self._validator.is_valid(value)

    def max_steps(self, characters: int) -> int:
        """Return the maximum number of steps that a check of a JSON text can take.

        `characters` is the length of the text.
        """
        return self._weight * (_STEPS_PER_PART + characters)


class _TooComplex(Exception):
    pass


def _compile_validator(schema: dict[str, JsonValue]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema, pattern_options=_PATTERN_OPTIONS, offline=True, validate_formats=False
    )


class _SchemaRewriter:
    """Rewriter of a schema for jsonschema-rs; raises `_TooComplex` above `MAX_WEIGHT`."""

    def __init__(self, root: JsonValue) -> None:
        self._root = root
        self._budget = MAX_WEIGHT
        self._numbers: dict[str, str] = {}
        self._definitions: dict[str, JsonValue] = {}
        self._weights: dict[str, int] = {}
        whole: dict[str, JsonValue] = {"allOf": [self._rewrite(root)]}
        self.rewritten: dict[str, JsonValue] = {**whole, "$defs": self._definitions}  # references point to `$defs`
        # Number of parts. A reference counts as many parts as its target has, or one if it is recursive; a pattern adds
        # `_PATTERN_WEIGHT`.
        self.weight = self._measure_weight(whole)
        if self.weight > MAX_WEIGHT:
            raise _TooComplex

    def _measure_weight(self, part: JsonValue) -> int:
        match part:
            case list():
                return 1 + sum(map(self._measure_weight, part))
            case dict():
                named = part.get("patternProperties")
                patterns = ("pattern" in part) + (len(named) if isinstance(named, dict) else 0)
                referenced = self._measure_reference(part.get("$ref"))
                return 1 + referenced + _PATTERN_WEIGHT * patterns + sum(map(self._measure_weight, part.values()))
        return 1

    def _measure_reference(self, reference: JsonValue) -> int:
        number = reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""
        if number in self._definitions and number not in self._weights:
            self._weights[number] = 1  # weight of recursive references, which occur while the weight is computed
            self._weights[number] = self._measure_weight(self._definitions[number])
        return self._weights.get(number, 0)

    def _spend_budget(self, weight: int) -> None:
        self._budget -= weight
        if self._budget < 0:
            raise _TooComplex

    def _rewrite(self, schema: JsonValue) -> JsonValue:
        self._spend_budget(1)
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else True
        keywords = {name: _KEYWORD_READERS[name](self, schema[name]) for name in schema if name in _KEYWORD_READERS}
        read: dict[str, JsonValue] = {name: value for name, value in keywords.items() if value is not None}
        for side in ("minimum", "maximum"):
            exclusive = f"exclusive{side.capitalize()}"
            if schema.get(exclusive) is True and side in read:
                read[exclusive] = read[side]
        if isinstance(schema.get("items"), list):
            read["prefixItems"] = self._rewrite_list(schema["items"]) or [True]
        if "const" in schema:
            read["const"] = schema["const"]
        nullable: list[JsonValue] = [{"type": "null"}, read]
        return {"anyOf": nullable} if schema.get("nullable") is True else read

    def _rewrite_items(self, schema: JsonValue) -> JsonValue:
        return None if isinstance(schema, list) else self._rewrite(schema)

    def _rewrite_list(self, schemas: JsonValue) -> JsonValue:
        return [self._rewrite(schema) for schema in schemas] if isinstance(schemas, list) and schemas else None

    def _rewrite_properties(self, schemas: JsonValue) -> JsonValue:
        return {name: self._rewrite(schema) for name, schema in schemas.items()} if isinstance(schemas, dict) else None

    def _rewrite_pattern_properties(self, schemas: JsonValue) -> JsonValue:
        """Rewrite `patternProperties`; an unreadable pattern accepts any name and value."""
        if not isinstance(schemas, dict):
            return None
        # The pattern "" matches every name, so that no name is an additional property.
        read = {self._read_pattern(pattern) or "": self._rewrite(schema) for pattern, schema in schemas.items()}
        return read if read.keys() == schemas.keys() else read | {"": True}

    def _read_pattern(self, pattern: JsonValue) -> str | None:
        """Return the pattern if the library accepts it (linear time, low memory), or None."""
        self._spend_budget(_PATTERN_WEIGHT)
        try:
            return pattern if isinstance(pattern, str) and _compile_validator({"pattern": pattern}) else None
        except jsonschema_rs.ValidationError:
            return None

    def _redirect_reference(self, reference: JsonValue) -> str | None:
        """Copy a reference's target to `$defs`; return the new reference, None if invalid."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")  # in this order: `~01` is `~1` (RFC 6901)
            if not isinstance(target, dict) or key not in target:
                return None
            target = target[key]
        if reference not in self._numbers:
            number = self._numbers[reference] = str(len(self._numbers))
            self._definitions[number] = self._rewrite(target)
        return f"#/$defs/{self._numbers[reference]}"


_KeywordReader: TypeAlias = Callable[[_SchemaRewriter, Any], JsonValue]


def _read_types(_: _SchemaRewriter, types: JsonValue) -> JsonValue:
    names = types if isinstance(types, list) else [types]
    known = {_JSON_TYPES_BY_PYTHON_NAME.get(name, name) for name in names if isinstance(name, str)}
    is_valid = known and known <= _JSON_TYPES and all(isinstance(name, str) for name in names)
    return cast(JsonValue, sorted(known)) if is_valid else None


def _read_required(_: _SchemaRewriter, names: JsonValue) -> JsonValue:
    known = sorted({name for name in names if isinstance(name, str)}) if isinstance(names, list) else None
    return cast(JsonValue, known)


def _keep_if(is_valid: Callable[[Any], bool]) -> _KeywordReader:
    return lambda _, value: value if is_valid(value) else None


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KEYWORD_READERS: Mapping[str, _KeywordReader] = {
    "type": _read_types,
    "required": _read_required,
    "$ref": _SchemaRewriter._redirect_reference,
    "pattern": _SchemaRewriter._read_pattern,
    "patternProperties": _SchemaRewriter._rewrite_pattern_properties,
    "items": _SchemaRewriter._rewrite_items,
    "enum": _keep_if(lambda value: isinstance(value, list)),
    "uniqueItems": _keep_if(lambda value: isinstance(value, bool)),
    "multipleOf": _keep_if(lambda value: _is_number(value) and value > 0),
    **dict.fromkeys(("properties", "dependentSchemas"), _SchemaRewriter._rewrite_properties),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SchemaRewriter._rewrite_list),
    **dict.fromkeys(("not", "if", "then", "else", "contains"), _SchemaRewriter._rewrite),
    **dict.fromkeys(("additionalProperties", "propertyNames"), _SchemaRewriter._rewrite),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _keep_if(_is_number)),
    **dict.fromkeys(
        (f"{side}{what}" for side in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")),
        _keep_if(lambda value: _is_number(value) and value >= 0 and value == int(value)),
    ),
}


# Larger lists are not cached, which limits the cache to some tens of megabytes.
_CACHED_BYTES = 64 << 10


@dataclass(frozen=True, eq=False)
class DeclaredTools:
    """Tools that a row declares."""

    tools_id: str  # hex sha256 of `canonical_json`, the key of the tool list in the catalogue
    canonical_json: str  # tool list as JSON with sorted keys; the tools keep their order
    namespace: ToolNamespace  # tools for the developer message; the keys of schemas keep the row's order
    parameter_schemas: Mapping[str, JsonValue]  # JSON Schema of arguments by tool; the last one if names repeat
    compiled_schemas: dict[str, CompiledSchema] = field(default_factory=dict)  # those compiled so far, by tool

    def compiled_schema(self, name: str) -> CompiledSchema:
        """Return the schema of a tool's arguments, compiled on first use."""
        if name not in self.compiled_schemas:
            self.compiled_schemas[name] = CompiledSchema(self.parameter_schemas[name])
        return self.compiled_schemas[name]


def declared_tools(row: Row) -> DeclaredTools | None:
    """Parse the column `tools`; None if missing. Raise RowFault if it is invalid."""
    tools = read_tools(row)
    if tools is None:
        return None
    encoded = msgspec.json.encode(tools)
    return _parse_tools(encoded) if len(encoded) <= _CACHED_BYTES else _parse_tools.__wrapped__(encoded)


def read_tools(row: Row) -> JsonValue:
    """Return the column `tools`, decoded if it is text; None if missing.

    Raise RowFault for a text that is not JSON.
    """
    tools = row.get("tools")
    if isinstance(tools, str) and has_value(tools):
        tools = decode_json(tools, RowReason.MALFORMED_TOOLS, "the column")
    return tools if has_value(tools) else None


def has_tools(row: Row) -> bool:
    """Check whether a row declares tools, even malformed ones."""
    try:
        return read_tools(row) is not None
    except (RowFault, RecursionError):
        return True


@lru_cache(maxsize=128)
def _parse_tools(encoded: bytes) -> DeclaredTools:
    tools = msgspec.json.decode(encoded)
    if not is_nested_within(tools):
        raise RowFault(RowReason.NESTED_TOO_DEEP, "the tools of the row")
    if not isinstance(tools, list):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tools is {type(tools).__name__}")
    tools = [_standard_tool(tool) for tool in tools]
    functions = [_read_function(number, tool) for number, tool in enumerate(tools)]
    canonical = canonical_json(tools)
    return DeclaredTools(
        hashlib.sha256(canonical.encode("utf-8")).hexdigest(),
        canonical,
        function_namespace(functions),
        {function.name: function.parameters for function in functions},
    )


def _standard_tool(tool: JsonValue) -> JsonValue:
    """Convert a tool with `inputSchema` to `{"type", "function"}`; keep other tools."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or "function" in tool or not isinstance(schema, dict):
        return tool
    rest = {key: value for key, value in tool.items() if key not in ("id", "name", "inputSchema")}
    function = {"name": tool.get("name") or tool.get("id"), **rest, "parameters": schema.get("jsonSchema", schema)}
    return {"type": "function", "function": function}


def _read_function(number: int, tool: JsonValue) -> FunctionTool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tool {number} has no `function`")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tool {number} has no name")
    if has_value(description) and not isinstance(description, str):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"the description of {name:.80} is {type(description).__name__}")
    return FunctionTool(name, description if isinstance(description, str) else "", function.get("parameters"))


_decode = msgspec.json.Decoder().decode


def _decode_arguments(call: Message) -> JsonValue:
    """Return the arguments of a call; None if not JSON or nested too deep."""
    with suppress(msgspec.DecodeError, RecursionError):
        arguments = _decode(call.content)
        return arguments if is_nested_within(arguments) else None
    return None


def calls_fit_tools(calls: Sequence[Message], tools: DeclaredTools | None) -> bool:
    """Check whether each call names a declared tool and fits the tool's schema.

    Arguments must be a JSON object. A tool without declared parameters accepts any object. If `calls` is empty, the
    result is True. If the checks together could take more than `MAX_STEPS` steps, the result is False.
    """
    steps = 0
    for call in calls:
        namespace, _, name = (call.recipient or "").partition(".")
        if tools is None or namespace != FUNCTIONS_NAMESPACE or name not in tools.parameter_schemas:
            return False
        schema = tools.compiled_schema(name)
        steps += schema.max_steps(len(call.content))
        arguments = _decode_arguments(call)
        if not (isinstance(arguments, dict) and steps <= MAX_STEPS and schema.fits(arguments)):
            return False
    return True
