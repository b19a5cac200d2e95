"""Offline rendering of messages by openai-harmony."""

import os
from collections.abc import Sequence
from functools import cache
from unittest import mock

import openai_harmony

from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending, Message
from pipeline_assets.corpus.harmony.prompt import DeveloperContent, SystemContent, ToolNamespace
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256, HarmonyEncoder, load_encoder


@cache
def library() -> openai_harmony.HarmonyEncoding:
    with mock.patch.dict(os.environ, {"TIKTOKEN_ENCODINGS_BASE": str(VOCABULARY_PATH.parent)}):
        return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


@cache
def encoder() -> HarmonyEncoder:
    return load_encoder(VOCABULARY_SHA256)


def library_message(message: Message) -> openai_harmony.Message:
    author = openai_harmony.Author(role=openai_harmony.Role(message.role.value), name=message.name)
    copy = openai_harmony.Message.from_author_and_content(author, message.content)
    copy.recipient, copy.channel, copy.content_type = message.recipient, message.channel, message.content_type
    return copy


def library_tokens(
    messages: Sequence[Message], analysis: AnalysisMode = AnalysisMode.KEEP, ending: Ending = Ending.TRAINING
) -> list[int]:
    """Render messages to tokens by the library, which has no mode `drop`."""
    return rendered([library_message(message) for message in messages], analysis, ending)


def rendered(messages: Sequence[openai_harmony.Message], analysis: AnalysisMode, ending: Ending) -> list[int]:
    conversation = openai_harmony.Conversation.from_messages(messages)
    config = openai_harmony.RenderConversationConfig(auto_drop_analysis=analysis is AnalysisMode.AUTO_DROP)
    match ending:
        case Ending.TRAINING:
            return library().render_conversation_for_training(conversation, config)
        case Ending.CONVERSATION:
            return library().render_conversation(conversation, config)
    return library().render_conversation_for_completion(conversation, openai_harmony.Role.ASSISTANT, config)


def prompt_text(system: SystemContent | None, developer: DeveloperContent | None) -> str:
    """Render the prompt by the library's own system and developer types."""
    messages = []
    if system is not None:
        content = openai_harmony.SystemContent(
            model_identity=system.model_identity,
            reasoning_effort=None if system.reasoning_effort is None else system.reasoning_effort.title(),
            conversation_start_date=system.conversation_start_date,
            knowledge_cutoff=system.knowledge_cutoff,
            channel_config={
                "valid_channels": list(system.valid_channels),
                "channel_required": system.channel_required,
            },
            tools=_namespaces(system.tools),
        )
        messages.append(openai_harmony.Message.from_role_and_content(openai_harmony.Role.SYSTEM, content))
    if developer is not None:
        content = openai_harmony.DeveloperContent(
            instructions=developer.instructions, tools=_namespaces(developer.tools)
        )
        messages.append(openai_harmony.Message.from_role_and_content(openai_harmony.Role.DEVELOPER, content))
    return library().decode_utf8(rendered(messages, AnalysisMode.KEEP, Ending.CONVERSATION))


def type_text(schema: object) -> str:
    """Return the library's type for a tool's parameters."""
    tool = openai_harmony.ToolDescription.new("f", "", schema)
    content = openai_harmony.DeveloperContent.new().with_function_tools([tool])
    message = openai_harmony.Message.from_role_and_content(openai_harmony.Role.DEVELOPER, content)
    text = library().decode_utf8(library().render(message))
    return text.partition("type f = (_: ")[2].rpartition(") => any;\n\n} // namespace functions")[0]


def _namespaces(namespaces: Sequence[ToolNamespace]) -> dict[str, openai_harmony.ToolNamespaceConfig] | None:
    return {
        namespace.name: openai_harmony.ToolNamespaceConfig(
            name=namespace.name,
            description=namespace.description,
            tools=[
                openai_harmony.ToolDescription.new(tool.name, tool.description, tool.parameters)
                for tool in namespace.tools
            ],
        )
        for namespace in namespaces
    } or None
