"""System and developer messages with the `# Tools` section.

The source is openai/harmony, docs/format.md, "Function calling". The JSON Schema of a tool's arguments is rendered as
types similar to TypeScript's. openai-harmony renders a schema without `type` as `any`, so its properties are lost. Many
tools of real datasets have such schemas, and `add_object_types` completes them.

Apart from that, the types equal openai-harmony 0.0.8's for every schema, with the same losses:

- A schema without a type becomes `any`, even if it has `anyOf`, `allOf`, `$ref`, `const` or `enum`.
- A list of types is rendered as names alone, without properties, items or enum.
- In a schema with `oneOf`, type and properties are omitted.
- If a property with `oneOf` has the description D, the first variant's description is omitted, and so is any other
  variant's description that equals D. If the first variant's description equals D, the property loses D, too.
- Only strings are rendered from enums and examples. Quotes in enums and line breaks in descriptions of properties are
  not escaped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from pipeline_assets.corpus.harmony.message import MAX_DEPTH, JsonValue, Message, Reason, Refusal, Role, compact_json


def add_object_types(schema: JsonValue, depth: int = 0) -> JsonValue:
    """Add `"type": "object"` to a schema that has `properties` but no type.

    The type is added, as the first key, if `type` is missing or null; any other type, such as `["object", "null"]`, is
    kept. The schemas in properties, in items and in the variants of `oneOf` are completed, too. The result is a copy.
    Raise `Refusal` if `depth`, the schema's nesting depth, is above `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise Refusal(Reason.SCHEMA_TOO_DEEP, f"a tool's schema is nested more than {MAX_DEPTH} deep")
    if not isinstance(schema, dict):
        return schema
    completed = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        completed["properties"] = {name: add_object_types(nested, depth + 1) for name, nested in properties.items()}
        if schema.get("type") is None:
            completed.pop("type", None)
            completed = {"type": "object", **completed}
    if "items" in schema:
        completed["items"] = add_object_types(schema["items"], depth + 1)
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        completed["oneOf"] = [add_object_types(variant, depth + 1) for variant in variants]
    return completed


_Schema: TypeAlias = dict[str, JsonValue]
_TYPESCRIPT_NAMES = {"number": "number", "integer": "number", "boolean": "boolean"}


def typescript_type(schema: JsonValue, indent: str = "") -> str:
    """Render the type of a schema; a schema that is not an object becomes `any`.

    `indent` has the spaces before each line of the type. A nested type is indented further: by four spaces for a
    property, by three for a variant of `oneOf`.
    """
    if not isinstance(schema, dict):
        return "any"
    if (variants := _get_list(schema, "oneOf")) is not None:
        return "".join(f"\n{indent} | {_render_variant(_as_schema(variant), indent, True)}" for variant in variants)
    kind = schema.get("type")
    if isinstance(kind, list) and (names := [name for name in kind if isinstance(name, str)]):
        return " | ".join("number" if name == "integer" else name for name in names)
    match kind:
        case "object":
            return _render_object(schema, indent)
        case "array":
            return f"{typescript_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
        case "string":
            literals = [f'"{value}"' for value in _get_list(schema, "enum") or [] if isinstance(value, str)]
            return " | ".join(literals) or "string"
        case str():
            return _TYPESCRIPT_NAMES.get(kind, "any")
    return "any"


def _render_object(schema: _Schema, indent: str) -> str:
    description = _get_text(schema, "description")
    above = "" if description is None else f"{indent}// {description}\n"
    properties = schema.get("properties")
    required = {name for name in _get_list(schema, "required") or [] if isinstance(name, str)}
    lines = [
        line
        for name, nested in (properties if isinstance(properties, dict) else {}).items()
        for line in _property_lines(f"{name}{'' if name in required else '?'}", _as_schema(nested), indent)
    ]
    return above + "{\n" + "".join(f"{line}\n" for line in lines) + indent + "}"


def _property_lines(name: str, schema: _Schema, indent: str) -> Iterator[str]:
    """Yield the comment lines of a property, then its name and type."""
    if (title := _get_text(schema, "title")) is not None:
        yield f"{indent}// {title}"
        yield f"{indent}//"
    description = _get_text(schema, "description")
    if description is not None and "oneOf" not in schema:
        yield f"{indent}// {description}"
    if examples := _get_list(schema, "examples"):
        yield f"{indent}// Examples:"
        yield from (f'{indent}// - "{example}"' for example in examples if isinstance(example, str))
    if (variants := _get_list(schema, "oneOf")) is not None:
        yield from _variant_lines(name, schema, [_as_schema(variant) for variant in variants], indent)
        return
    default = "" if "oneOf" in schema else _render_default(schema, False)
    yield f"{indent}{name}: {_render_nullable_type(schema, indent + '    ')}," + (f" // {default}" if default else "")


def _variant_lines(name: str, schema: _Schema, variants: Sequence[_Schema], indent: str) -> Iterator[str]:
    description = _get_text(schema, "description")
    first = _get_text(variants[0], "description") if variants else None
    is_above = description is not None and description != first
    if is_above:
        yield f"{indent}// {description}"
    if default := _render_default(schema, False):
        yield f"{indent}// {default}"
    yield f"{indent}{name}:"
    for number, variant in enumerate(variants):
        is_repeated = (number == 0 and is_above) or _get_text(variant, "description") == description
        yield f"{indent} | {_render_variant(variant, indent, not is_repeated, False)}"
    yield f"{indent},"


def _render_variant(schema: _Schema, indent: str, shows_description: bool, quotes_enum_default: bool = True) -> str:
    description = _get_text(schema, "description") if shows_description else None
    default = _render_default(schema, quotes_enum_default) or None
    comments = [comment for comment in (description, default) if comment is not None]
    return _render_nullable_type(schema, indent + "   ") + (f" // {' '.join(comments)}" if comments else "")


def _render_nullable_type(schema: _Schema, indent: str) -> str:
    rendered = typescript_type(schema, indent)
    return f"{rendered} | null" if schema.get("nullable") is True and "null" not in rendered else rendered


def _render_default(schema: _Schema, quotes_enum_default: bool) -> str:
    """Render a schema's default as `default: …`; return "" if it has no default.

    A default that is not a string is written as JSON. A string is written between quotes, without escapes. In a schema
    with an enum, however, a string is written as JSON if `quotes_enum_default`, and without quotes otherwise.
    """
    if "default" not in schema:
        return ""
    default = schema["default"]
    if not isinstance(default, str):
        return f"default: {compact_json(default)}"
    if not _get_list(schema, "enum"):
        return f'default: "{default}"'
    return f"default: {compact_json(default) if quotes_enum_default else default}"


def _as_schema(value: JsonValue) -> _Schema:
    """Return the value if it is an object, else an empty schema."""
    return value if isinstance(value, dict) else {}


def _get_text(schema: _Schema, key: str) -> str | None:
    value = schema.get(key)
    return value if isinstance(value, str) else None


def _get_list(schema: _Schema, key: str) -> list[JsonValue] | None:
    value = schema.get(key)
    return value if isinstance(value, list) else None


FUNCTIONS_NAMESPACE = "functions"


@dataclass(frozen=True)
class FunctionTool:
    """Function that the assistant can call."""

    name: str
    description: str
    parameters: JsonValue  # JSON Schema of the arguments; None for no arguments


@dataclass(frozen=True)
class ToolNamespace:
    """Named group of tools; if it has no tools, `description` explains its use."""

    name: str
    description: str | None
    tools: tuple[FunctionTool, ...]

    @cached_property
    def text(self) -> str:
        """Text of the namespace, cached because many rows share the same tools."""
        return "\n".join(_namespace_lines(self))


def function_namespace(tools: Sequence[FunctionTool]) -> ToolNamespace:
    """Return the namespace of a developer's own functions, called as `functions.NAME`."""
    return ToolNamespace(FUNCTIONS_NAMESPACE, None, tuple(tools))


def tool_section(namespaces: Sequence[ToolNamespace]) -> str:
    """Render the tools section: namespaces sorted by name, tools in their own order.

    The text equals openai-harmony's for the schemas that `add_object_types` returns. Raise Refusal if two namespaces
    have the same name, or if `add_object_types` or `compact_json` refuses a schema.
    """
    names = [namespace.name for namespace in namespaces]
    if repeated := sorted(name for name in set(names) if names.count(name) > 1):
        raise Refusal(Reason.NAMESPACE_TWICE, f"namespace {repeated[0]!r} occurs {names.count(repeated[0])} times")
    ordered = sorted(namespaces, key=lambda namespace: namespace.name)
    return "\n\n".join(["# Tools", *(namespace.text for namespace in ordered)])


def _namespace_lines(namespace: ToolNamespace) -> Iterator[str]:
    yield f"## {namespace.name}\n"
    comment = "// " if namespace.tools else ""
    yield from (f"{comment}{line}" for line in _split_lines(namespace.description or ""))
    if not namespace.tools:
        return
    yield f"namespace {namespace.name} {{\n"
    for tool in namespace.tools:
        yield from (f"// {line}" for line in _split_lines(tool.description))
        schema = add_object_types(tool.parameters)
        argument = "" if schema is None else f"_: {typescript_type(schema)}"
        yield f"type {tool.name} = ({argument}) => any;\n"
    yield f"}} // namespace {namespace.name}"


def _split_lines(text: str) -> list[str]:
    """Split a text at LF and CRLF; a final LF or CRLF adds no empty line."""
    *lines, last = text.split("\n")
    return [line.removesuffix("\r") for line in lines] + ([last] if last else [])


@dataclass(frozen=True)
class SystemContent:
    """Contents of a system message; None and empty tuples are not rendered."""

    model_identity: str | None
    knowledge_cutoff: str | None
    conversation_start_date: str | None
    reasoning_effort: Literal["low", "medium", "high"] | None
    valid_channels: tuple[str, ...]
    channel_required: bool  # the text demands a channel per message; no effect without `valid_channels`
    tools: tuple[ToolNamespace, ...]  # Harmony's built-in `browser` and `python`; others are in `DeveloperContent`


@dataclass(frozen=True)
class DeveloperContent:
    """Contents of a developer message: instructions and functions."""

    instructions: str | None
    tools: tuple[ToolNamespace, ...]


GPT_OSS_SYSTEM = SystemContent(
    model_identity="You are ChatGPT, a large language model trained by OpenAI.",
    knowledge_cutoff="2024-06",
    conversation_start_date=None,
    reasoning_effort="medium",
    valid_channels=("analysis", "commentary", "final"),
    channel_required=True,
    tools=(),
)


def prompt_messages(system: SystemContent | None, developer: DeveloperContent | None) -> list[Message]:
    """Return the system message and the developer message; None omits a message.

    A system message that lists channels also names the channel for calls, if `developer` has functions.
    """
    messages: list[Message] = []
    if system is not None:
        has_functions = developer is not None and any(
            namespace.name == FUNCTIONS_NAMESPACE and namespace.tools for namespace in developer.tools
        )
        messages.append(Message(Role.SYSTEM, _system_text(system, has_functions)))
    if developer is not None:
        sections = [] if developer.instructions is None else ["# Instructions", developer.instructions]
        if developer.tools:
            sections.append(tool_section(developer.tools))
        messages.append(Message(Role.DEVELOPER, "\n\n".join(sections)))
    return messages


def _system_text(system: SystemContent, has_functions: bool) -> str:
    top = {
        "": system.model_identity,
        "Knowledge cutoff: ": system.knowledge_cutoff,
        "Current date: ": system.conversation_start_date,
    }
    lines = [f"{label}{value}" for label, value in top.items() if value is not None]
    sections = ["\n".join(lines)] if lines else []
    if system.reasoning_effort is not None:
        sections.append(f"Reasoning: {system.reasoning_effort}")
    if system.tools:
        sections.append(tool_section(system.tools))
    if system.valid_channels:
        required = " Channel must be included for every message." if system.channel_required else ""
        calls = "\nCalls to these tools must go to the commentary channel: 'functions'." if has_functions else ""
        sections.append(f"# Valid channels: {', '.join(system.valid_channels)}.{required}{calls}")
    return "\n\n".join(sections)
