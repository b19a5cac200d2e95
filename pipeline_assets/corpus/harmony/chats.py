"""Conversations as chat messages for templates of `transformers` and TRL.

Analysis is the `thinking` of the message that follows it, and calls are `tool_calls` with arguments as JSON text. The
instructions of a developer message are a system message.
"""

from collections.abc import Iterable
from typing import Any

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS

Chat = dict[str, Any]
_TOOLS_BEGIN = f"# Tools\n\n## {FUNCTIONS}\n\n"


def to_chats(
    messages: Iterable[Message], has_tools: bool, is_apart: bool = False
) -> tuple[list[Chat], list[dict[str, int]]]:
    """Return chat messages, each with the number of the message that is its part.

    If `has_tools`, developer messages omit their tools. If `is_apart`, a text and each call are chat messages of their
    own. Of several calls in one chat message, the number is the last one's.
    """
    chats, parts, calls = list[Chat](), list[dict[str, int]](), 0
    open_calls: list[tuple[str, str]] = []  # name and id of calls without a reply
    for number, message in enumerate(messages):
        if message.role is not Role.ASSISTANT:
            chat: Chat = {"role": str(message.role), "content": message.content, "name": _tool_name(message.name)}
            if message.role is Role.DEVELOPER:
                chat |= {"role": str(Role.SYSTEM), "content": instructions(message.content, has_tools)}
                if not chat["content"]:
                    continue
            if message.role is Role.TOOL:
                reply = next((call for call in open_calls if call[0] == chat["name"]), None)
                chat["tool_call_id"] = None if reply is None else reply[1]
                open_calls = [call for call in open_calls if call is not reply]
            chats.append(chat)
            parts.append({})
            continue
        part = "tool_calls" if message.is_call else "thinking" if message.channel == "analysis" else "content"
        is_open = bool(chats) and chats[-1]["role"] == Role.ASSISTANT and part != "thinking"
        if not is_open or ((part == "content" or is_apart) and parts[-1].keys() & {"content", "tool_calls"}):
            chats.append({"role": str(Role.ASSISTANT), "content": ""})
            parts.append({})
        chat = chats[-1]
        if message.is_call:
            called, calls = _called(message, f"call_{calls}"), calls + 1
            open_calls.append((called["function"]["name"], called["id"]))
            chat[part] = [*chat.get(part, []), called]
        else:
            chat[part] = message.content
        parts[-1][part] = number
    return chats, parts


def _called(message: Message, call_id: str) -> Chat:
    function = {"name": _tool_name(message.recipient), "arguments": message.content}
    return {"id": call_id, "type": "function", "function": function}


def _tool_name(name: str | None) -> str | None:
    return None if name is None else name.removeprefix(f"{FUNCTIONS}.")


def instructions(content: str, has_tools: bool) -> str:
    """Return the instructions in a developer message."""
    if has_tools:
        content = content[: begin if (begin := content.rfind(_TOOLS_BEGIN)) >= 0 else None].removesuffix("\n\n")
    return content.removeprefix("# Instructions\n\n")
