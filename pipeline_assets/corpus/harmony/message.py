"""A message, and which headers there are.

A header is `author[ to=RECIPIENT][<|channel|>CHANNEL][ CONTENT_TYPE]` (openai/harmony, docs/format.md, "Message
format"). An author is a role, a role with a name (`user:ann`) or the name of a tool alone (`functions.lookup`).
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from pipeline_assets.corpus.harmony.control_tokens import CHANNEL, CONSTRAIN
from pipeline_assets.corpus.harmony.refusal import Reason, Refusal

# Harmony sets no limit. No tool is called so, and the length of what is kept of a malformed text is bounded.
FIELD = r"[^\s<\ud800-\udfff]{1,256}+"
_IS_FIELD = re.compile(FIELD)
_IS_CONTENT_TYPE = re.compile(f"(?:{re.escape(CONSTRAIN)}|(?!to=)){FIELD}")
# Tools that answer under a name without a namespace: Harmony's built-in one, and the bare role of older datasets.
_UNDOTTED_TOOLS = frozenset({"python", "tool"})


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


_SPEAKERS = {str(role): role for role in Role if role is not Role.TOOL}


class Message(NamedTuple):
    """One message; what its header has not is None.

    Attributes:
        content: text without control tokens; a system or developer message's sections are part of it.
        name: the tool (`functions.lookup`), always there for a tool; else the name after the role.
        recipient: whom it goes to. An assistant message with one is a call, and its content the arguments.
        channel: `analysis`, `commentary`, `final`.
        content_type: how the content is written, `<|constrain|>json` for a call's arguments.
    """

    role: Role
    content: str
    name: str | None = None
    recipient: str | None = None
    channel: str | None = None
    content_type: str | None = None

    @property
    def is_call(self) -> bool:
        """Whether the assistant calls a tool."""
        return self.role is Role.ASSISTANT and self.recipient is not None

    @property
    def is_plain(self) -> bool:
        """Whether its header is an author alone."""
        return self.recipient is None and self.channel is None and self.content_type is None


@lru_cache(maxsize=4096)
def header(role: Role, name: str | None, recipient: str | None, channel: str | None, content_type: str | None) -> str:
    """What stands between `<|start|>` and `<|message|>`.

    The recipient `all`, which openai-harmony leaves out, is refused: it could not be read back.

    Raises:
        Refusal: a field is empty, holds blanks, `<` or a lone surrogate, or is longer than 256; a tool's name is
            missing, or would be read as another author.
    """
    fields = {"name": name, "recipient": recipient, "channel": channel}
    for field, value in fields.items():
        if value is not None and (_IS_FIELD.fullmatch(value) is None or (field, value) == ("recipient", "all")):
            raise Refusal(Reason.INVALID_HEADER_FIELD, f"{field} is {value!r:.80}")
    if content_type is not None and _IS_CONTENT_TYPE.fullmatch(content_type) is None:
        raise Refusal(Reason.INVALID_HEADER_FIELD, f"content type is {content_type!r:.80}")
    author = str(role) if name is None else name if role is Role.TOOL else f"{role}:{name}"
    if (role is Role.TOOL and name is None) or read_author(author, recipient is not None) != (role, name):
        raise Refusal(Reason.UNKNOWN_ROLE, f"a {role} message by {name!r:.80}")
    to = "" if recipient is None else f" to={recipient}"
    on = "" if channel is None else f"{CHANNEL}{channel}"
    return author + to + on + ("" if content_type is None else f" {content_type}")


@lru_cache(maxsize=4096)
def read_author(author: str, has_recipient: bool) -> tuple[Role, str | None] | None:
    """Role and name; None if nobody is called so.

    A name that is no role is a tool's if it has a dot (`functions.lookup`), if its message has a recipient, or if it
    is `python` or `tool`. Anything else may be a misspelt role.
    """
    role, colon, name = author.partition(":")
    if (speaker := _SPEAKERS.get(role)) is not None:
        return None if colon and not name else (speaker, name or None)
    return (Role.TOOL, author) if has_recipient or "." in author or author in _UNDOTTED_TOOLS else None
