"""The system and developer messages that open a conversation, with the `# Tools` section.

The source is openai/harmony, docs/format.md, "Function calling".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pipeline_assets.corpus.harmony.message import JsonValue, Message, Reason, Refusal, Role
from pipeline_assets.corpus.harmony.tool_types import typescript_type, with_object_types

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
    lines = text.split("\n")
    last = lines.pop()
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
    top = [
        f"{label}{value}"
        for label, value in (
            ("", system.model_identity),
            ("Knowledge cutoff: ", system.knowledge_cutoff),
            ("Current date: ", system.conversation_start_date),
        )
        if value is not None
    ]
    sections = ["\n".join(top)] if top else []
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
