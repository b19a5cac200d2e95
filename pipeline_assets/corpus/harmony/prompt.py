"""The system and developer messages that open a conversation (openai/harmony, docs/format.md)."""

from dataclasses import dataclass
from typing import Literal

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.tool_section import FUNCTIONS, ToolNamespace, tool_section

_CALLS = "Calls to these tools must go to the commentary channel: 'functions'."


@dataclass(frozen=True)
class SystemContent:
    """What a system message says; None, or nothing in a tuple, is left out.

    Attributes:
        tools: built-in ones, such as `builtin_tools.BROWSER`; a developer's own go into `DeveloperContent`.
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
