"""The system and developer messages that open a conversation, with the `# Tools` section.

The source is openai/harmony, docs/format.md, "Function calling". A tool's arguments, JSON Schema, are shown in types
like TypeScript's. openai-harmony renders a schema without `type` as `any`, whatever its properties: the arguments are
lost. Many tools of real datasets are written so.

The types equal openai-harmony 0.0.8's on every schema, its losses included: `any` stands for a schema without a type
(`with_object_types` fills in objects), for `anyOf`, `allOf`, `$ref`, `const` and enums without a type; a list of types
shows names alone, without properties, items or enum; beside a `oneOf`, type and properties are not shown, and a
property's description is not shown that equals its first variant's; of enums only strings are shown, of examples too;
quotes in enums and line breaks in descriptions of properties are not escaped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from pipeline_assets.corpus.harmony.message import MAX_DEPTH, JsonValue, Message, Reason, Refusal, Role, compact_json


def with_object_types(schema: JsonValue, depth: int = 0) -> JsonValue:
    """The schema with `"type": "object"` wherever there are `properties` and no type (or null), nested ones too.

    It goes where the rendering goes: into properties, items and the variants of `oneOf`. The order of keys stays; the
    type that is added comes first. What has a type is unchanged, also where the rendering loses its properties: under
    a list of types (`["object", "null"]`), or beside a `oneOf`.

    Raises:
        Refusal: schemas nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise Refusal(Reason.SCHEMA_TOO_DEEP, f"a tool's schema is nested more than {MAX_DEPTH} deep")
    if not isinstance(schema, dict):
        return schema
    completed = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        completed["properties"] = {name: with_object_types(one, depth + 1) for name, one in properties.items()}
        if schema.get("type") is None:
            completed.pop("type", None)
            completed = {"type": "object", **completed}
    if "items" in schema:
        completed["items"] = with_object_types(schema["items"], depth + 1)
    variants = schema.get("oneOf")
    if isinstance(variants, list):
        completed["oneOf"] = [with_object_types(variant, depth + 1) for variant in variants]
    return completed


_Schema: TypeAlias = dict[str, JsonValue]
_NAMES = {"number": "number", "integer": "number", "boolean": "boolean"}


def typescript_type(schema: JsonValue, indent: str = "") -> str:
    """The type of a schema; what is no schema is `any`.

    Args:
        indent: blanks before its lines; nested properties get four more, variants three more.
    Raises:
        Refusal: a default that is no JSON number.
    """
    if not isinstance(schema, dict):
        return "any"
    if (variants := _list(schema, "oneOf")) is not None:
        return "".join(f"\n{indent} | {_variant(_schema(variant), indent, True)}" for variant in variants)
    kind = schema.get("type")
    if isinstance(kind, list) and (names := [name for name in kind if isinstance(name, str)]):
        return " | ".join("number" if name == "integer" else name for name in names)
    match kind:
        case "object":
            return _object_type(schema, indent)
        case "array":
            return f"{typescript_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
        case "string":
            words = [f'"{word}"' for word in _list(schema, "enum") or [] if isinstance(word, str)]
            return " | ".join(words) or "string"
        case str():
            return _NAMES.get(kind, "any")
    return "any"


def _object_type(schema: _Schema, indent: str) -> str:
    description = _text(schema, "description")
    above = "" if description is None else f"{indent}// {description}\n"
    properties = schema.get("properties")
    required = {name for name in _list(schema, "required") or [] if isinstance(name, str)}
    lines = [
        line
        for name, one in (properties if isinstance(properties, dict) else {}).items()
        for line in _property(f"{name}{'' if name in required else '?'}", _schema(one), indent)
    ]
    return above + "{\n" + "".join(f"{line}\n" for line in lines) + indent + "}"


def _property(name: str, schema: _Schema, indent: str) -> Iterator[str]:
    """Its lines: comments, then the name with its type, which may have several lines itself."""
    if (title := _text(schema, "title")) is not None:
        yield f"{indent}// {title}"
        yield f"{indent}//"
    description = _text(schema, "description")
    if description is not None and "oneOf" not in schema:
        yield f"{indent}// {description}"
    if examples := _list(schema, "examples"):
        yield f"{indent}// Examples:"
        yield from (f'{indent}// - "{example}"' for example in examples if isinstance(example, str))
    if (variants := _list(schema, "oneOf")) is not None:
        yield from _property_variants(name, schema, [_schema(variant) for variant in variants], indent)
        return
    default = "" if "oneOf" in schema else _default(schema, False)
    yield f"{indent}{name}: {_type_or_null(schema, indent + '    ')}," + (f" // {default}" if default else "")


def _property_variants(name: str, schema: _Schema, variants: Sequence[_Schema], indent: str) -> Iterator[str]:
    description = _text(schema, "description")
    first = _text(variants[0], "description") if variants else None
    is_above = description is not None and description != first
    if is_above:
        yield f"{indent}// {description}"
    if default := _default(schema, False):
        yield f"{indent}// {default}"
    yield f"{indent}{name}:"
    for number, variant in enumerate(variants):
        is_said = (number == 0 and is_above) or _text(variant, "description") == description
        yield f"{indent} | {_variant(variant, indent, not is_said, False)}"
    yield f"{indent},"


def _variant(schema: _Schema, indent: str, is_described: bool, quotes_enums: bool = True) -> str:
    description = _text(schema, "description") if is_described else None
    comments = [comment for comment in (description, _default(schema, quotes_enums) or None) if comment is not None]
    return _type_or_null(schema, indent + "   ") + (f" // {' '.join(comments)}" if comments else "")


def _type_or_null(schema: _Schema, indent: str) -> str:
    written = typescript_type(schema, indent)
    return f"{written} | null" if schema.get("nullable") is True and "null" not in written else written


def _default(schema: _Schema, quotes_enums: bool) -> str:
    """`default: …`; empty if there is none. A string is quoted without escapes, an enum's not at all or as JSON."""
    if "default" not in schema:
        return ""
    default = schema["default"]
    if not isinstance(default, str):
        return f"default: {compact_json(default)}"
    if not _list(schema, "enum"):
        return f'default: "{default}"'
    return f"default: {compact_json(default) if quotes_enums else default}"


def _schema(value: JsonValue) -> _Schema:
    """A schema's keys; what is no object has none."""
    return value if isinstance(value, dict) else {}


def _text(schema: _Schema, key: str) -> str | None:
    value = schema.get(key)
    return value if isinstance(value, str) else None


def _list(schema: _Schema, key: str) -> list[JsonValue] | None:
    value = schema.get(key)
    return value if isinstance(value, list) else None


FUNCTIONS = "functions"


@dataclass(frozen=True)
class FunctionTool:
    """A function that can be called.

    Attributes:
        parameters: its arguments as JSON Schema; None if it takes none.
    """

    name: str
    description: str
    parameters: JsonValue


@dataclass(frozen=True)
class ToolNamespace:
    """Tools under one name; without any, its description says how it is used."""

    name: str
    description: str | None
    tools: tuple[FunctionTool, ...]

    @cached_property
    def text(self) -> str:
        """Its part of the section; made once, as whole datasets show the same tools.

        Raises:
            Refusal: a schema that can't be rendered.
        """
        return "\n".join(_namespace_lines(self))


def function_namespace(tools: Sequence[FunctionTool]) -> ToolNamespace:
    """The namespace of a developer's own functions, called on the commentary channel as `functions.NAME`."""
    return ToolNamespace(FUNCTIONS, None, tuple(tools))


def tool_section(namespaces: Sequence[ToolNamespace]) -> str:
    """The section, namespaces by their names, tools in their own order.

    It equals openai-harmony's of tools whose schemas went through `with_object_types`.

    Raises:
        Refusal: two namespaces of one name, or a schema that can't be rendered.
    """
    names = [namespace.name for namespace in namespaces]
    if twice := sorted(name for name in set(names) if names.count(name) > 1):
        raise Refusal(Reason.NAMESPACE_TWICE, f"the namespace {twice[0]!r} is there {names.count(twice[0])} times")
    ordered = sorted(namespaces, key=lambda namespace: namespace.name)
    return "\n\n".join(["# Tools", *(one.text for one in ordered)])


def _namespace_lines(namespace: ToolNamespace) -> Iterator[str]:
    yield f"## {namespace.name}\n"
    comment = "// " if namespace.tools else ""
    yield from (f"{comment}{line}" for line in _lines(namespace.description or ""))
    if not namespace.tools:
        return
    yield f"namespace {namespace.name} {{\n"
    for tool in namespace.tools:
        yield from (f"// {line}" for line in _lines(tool.description))
        schema = with_object_types(tool.parameters)
        argument = "" if schema is None else f"_: {typescript_type(schema)}"
        yield f"type {tool.name} = ({argument}) => any;\n"
    yield f"}} // namespace {namespace.name}"


def _lines(text: str) -> list[str]:
    """Lines as Rust splits them: at a line feed, with the carriage return before it; the last may be without one."""
    *lines, last = text.split("\n")
    return [line.removesuffix("\r") for line in lines] + ([last] if last else [])


_CALLS = "Calls to these tools must go to the commentary channel: 'functions'."


@dataclass(frozen=True)
class SystemContent:
    """What a system message says; None, or nothing in a tuple, is left out.

    Attributes:
        tools: Harmony's built-in ones, `browser` and `python`; a developer's own go into `DeveloperContent`.
    """

    model_identity: str | None
    knowledge_cutoff: str | None
    conversation_start_date: str | None
    reasoning_effort: Literal["low", "medium", "high"] | None
    valid_channels: tuple[str, ...]
    channel_required: bool
    tools: tuple[ToolNamespace, ...]


@dataclass(frozen=True)
class DeveloperContent:
    """What a developer message says: what other formats call the system prompt, and functions."""

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
    """The messages of those that are given, system first.

    Where the developer has functions, the system message says to which channel calls go.

    Raises:
        Refusal: tools that can't be rendered (`tool_section`).
    """
    messages: list[Message] = []
    if system is not None:
        has_functions = developer is not None and any(
            namespace.name == FUNCTIONS and namespace.tools for namespace in developer.tools
        )
        messages.append(Message(Role.SYSTEM, _system_text(system, has_functions)))
    if developer is not None:
        messages.append(Message(Role.DEVELOPER, _developer_text(developer)))
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
        calls = f"\n{_CALLS}" if has_functions else ""
        sections.append(f"# Valid channels: {', '.join(system.valid_channels)}.{required}{calls}")
    return "\n\n".join(sections)


def _developer_text(developer: DeveloperContent) -> str:
    sections = [] if developer.instructions is None else ["# Instructions", developer.instructions]
    if developer.tools:
        sections.append(tool_section(developer.tools))
    return "\n\n".join(sections)
