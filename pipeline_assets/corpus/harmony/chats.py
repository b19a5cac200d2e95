"""Conversations as chat messages for templates of `transformers` and TRL.

A message of the analysis channel starts a new chat message and becomes its `thinking`. The next text and calls are
added to this chat message. Text that follows other text or a call starts a new chat message. Calls become `tool_calls`
with the arguments as text. The instructions of a developer message become a system message.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS_NAMESPACE

ChatMessage = dict[str, Any]
_TOOLS_HEADING, _TOOLS_END = f"# Tools\n\n## {FUNCTIONS_NAMESPACE}\n\n", f"}} // namespace {FUNCTIONS_NAMESPACE}"


def to_chat_messages(
    messages: Iterable[Message],
    omits_tools: bool,
    splits_parts: bool = False,
    calls_by_reply: Mapping[int, int] | None = None,
) -> tuple[list[ChatMessage], list[dict[str, int]]]:
    """Convert Harmony messages to chat messages; also return the sources of the parts.

    Args:
        messages: Messages of one conversation, in order.
        omits_tools: Whether to omit the `# Tools` section of developer messages.
        splits_parts: Whether each text and each call becomes a chat message of its own.
        calls_by_reply: Map from the index of a reply in `messages` to the index of the call that it answers. None
            assigns each reply to the first unanswered call of its tool.

    Returns:
        Chat messages, and a dict for each of them. For the assistant, the dict maps each of `content`, `thinking` and
        `tool_calls` to the index of its source in `messages` (of several calls, the last). For other roles, the dict is
        empty. A developer message with empty text is omitted.
    """
    chats, parts, calls = list[ChatMessage](), list[dict[str, int]](), 0
    # Name (or number, with `calls_by_reply`) and id of calls without a reply.
    open_calls: list[tuple[str | int, str]] = []
    for number, message in enumerate(messages):
        if message.role is not Role.ASSISTANT:
            name = _tool_name(message.name)
            chat: ChatMessage = {"role": str(message.role), "content": message.content, "name": name}
            if message.role is Role.DEVELOPER:
                chat |= {"role": str(Role.SYSTEM), "content": extract_instructions(message.content, omits_tools)}
                if not chat["content"]:
                    continue
            if message.role is Role.TOOL:
                key = chat["name"] if calls_by_reply is None else calls_by_reply.get(number)
                call_entry = next((entry for entry in open_calls if entry[0] == key), None)
                chat["tool_call_id"] = None if call_entry is None else call_entry[1]
                open_calls = [entry for entry in open_calls if entry is not call_entry]
            chats.append(chat)
            parts.append({})
            continue
        part = "tool_calls" if message.is_call else "thinking" if message.channel == "analysis" else "content"
        is_open = bool(chats) and chats[-1]["role"] == Role.ASSISTANT and part != "thinking"
        if not is_open or ((part == "content" or splits_parts) and parts[-1].keys() & {"content", "tool_calls"}):
            chats.append({"role": str(Role.ASSISTANT), "content": ""})
            parts.append({})
        chat = chats[-1]
        if message.is_call:
            # Nine letters and digits, as Mistral's templates require.
            call, calls = _tool_call(message, f"call{calls:05d}"), calls + 1
            open_calls.append((call["function"]["name"] if calls_by_reply is None else number, call["id"]))
            chat[part] = [*chat.get(part, []), call]
        else:
            chat[part] = message.content
        parts[-1][part] = number
    return chats, parts


def _tool_call(message: Message, call_id: str) -> dict[str, Any]:
    function = {"name": _tool_name(message.recipient), "arguments": message.content}
    return {"id": call_id, "type": "function", "function": function}


def _tool_name(name: str | None) -> str | None:
    return None if name is None else name.removeprefix(f"{FUNCTIONS_NAMESPACE}.")


def extract_instructions(content: str, omits_tools: bool) -> str:
    """Return a developer message's instructions; `omits_tools` removes `# Tools`."""
    if omits_tools and content.endswith(_TOOLS_END):  # later instructions may quote the heading
        content = content[: begin if (begin := content.rfind(_TOOLS_HEADING)) >= 0 else None].removesuffix("\n\n")
    return content.removeprefix("# Instructions\n\n")
