"""Text of a message's content and reasoning.

A string is unchanged, a list of text parts is joined, a list with a media part makes the row a reject, and any other
value becomes JSON.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from pipeline_assets.corpus.harmony.message import JsonValue, Message, content_text
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason, has_value

REASONING_KEYS: Final = ("reasoning_content", "thinking", "reasoning")
AS_JSON_COUNT_KEY: Final = "messages_as_json"
UNREAD_KEYS_COUNT_KEY: Final = "unread_message_keys"
THINK_TAGS_COUNT_KEY: Final = "think_tags"
UNPAIRED_TAGS: Final = "unpaired"
_MAX_KEY_CHARACTERS = 80
_MEDIA_TYPE = r"(?:image|audio|video|file|document|media)"
_MEDIA_PART = re.compile(rf"(?:in|out)put_{_MEDIA_TYPE}|{_MEDIA_TYPE}(?:_(?:url|file|data|embeds))?|inline_data")
# Results of tools have entries of these types too, such as the files of a folder.
_AMBIGUOUS_TYPE = re.compile(_MEDIA_TYPE)
_THINK_TAG = re.compile("</?think>")


class ThinkTags(StrEnum):
    """Treatment of `<think>…</think>` blocks in the assistant's content.

    `keep`: the text is unchanged. `split`: blocks become messages on the analysis channel; text before or between
    blocks becomes messages on the commentary channel; blank parts, and blocks that repeat the message's reasoning, are
    omitted. `drop`: blocks are removed. Content whose tags do not pair up is never changed.
    """

    KEEP = "keep"
    SPLIT = "split"
    DROP = "drop"


def unread_count_key(owner: str, key: str) -> str:
    """Return the name of an unread key's count, such as `unread_message_keys/user.x`.

    `owner` names the object that has the key, such as `assistant` (a message) or `user.content[]` (a part of content).
    """
    short = key[:_MAX_KEY_CHARACTERS]
    return f"{UNREAD_KEYS_COUNT_KEY}/{owner}.{short if short.isprintable() else ascii(short)[1:-1]}"


def read_text(value: JsonValue, role: str, counts: Counter[str]) -> str:
    """Return the text of a message's content or reasoning; raise RowFault for media.

    If `role` is `tool`, parts of a type such as `file` are media only if they have a payload. Values that are returned
    as JSON (`messages_as_json`) and unread keys of text parts are counted in `counts`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if (medium := _find_media_type(value, is_reply=role == "tool")) is not None:
            raise RowFault(RowReason.MALFORMED_MESSAGE, f"a part of the {role}'s message is {medium!r:.80}")
        parts = [part for part in value if isinstance(part, dict) and part.get("type") == "text"]
        if len(parts) == len(value) and all(isinstance(part.get("text"), str) for part in parts):
            unread = (key for part in parts for key in part if key not in ("type", "text") and has_value(part[key]))
            counts.update(unread_count_key(f"{role}.content[]", key) for key in unread)
            return "".join(str(part["text"]) for part in parts)
    counts[AS_JSON_COUNT_KEY] += 1
    return content_text(value)


def is_blank_content(content: JsonValue) -> bool:
    """Check whether content is missing or blank: whitespace, or a list of blank parts."""
    if isinstance(content, list):
        return all(isinstance(part, dict) and _is_blank_part(part) for part in content)
    return content is None or (isinstance(content, str) and not content.strip())


def _is_blank_part(part: Row) -> bool:
    is_blank = part.get("type") == "text" and is_blank_content(part.get("text"))
    return is_blank and _media_type(part, is_reply=False) is None


def _find_media_type(parts: Iterable[JsonValue], is_reply: bool) -> str | None:
    """Return the `_media_type` of the first media part in nested lists, or None."""
    for part in parts:
        inner = part
        if isinstance(part, dict):
            if (medium := _media_type(part, is_reply)) is not None:
                return medium
            inner = part.get("content")
        if isinstance(inner, list) and (medium := _find_media_type(inner, is_reply)) is not None:
            return medium
    return None


def _media_type(part: Row, is_reply: bool) -> str | None:
    """Return the type or key that marks a part as media, such as `image_url`, or None."""
    kind, keys = part.get("type"), [key for key in part if has_value(part[key])]
    if kind == "text":
        return next((key for key in keys if _MEDIA_PART.fullmatch(key) and not _AMBIGUOUS_TYPE.fullmatch(key)), None)
    if isinstance(kind, str):
        # A part has a payload if `source` or its type is an object, or if `mimeType` has a value.
        has_payload = any(isinstance(part.get(key), dict) for key in (kind, "source")) or "mimeType" in part
        is_entry = is_reply and _AMBIGUOUS_TYPE.fullmatch(kind) and not has_payload
        return kind if _MEDIA_PART.fullmatch(kind) and not is_entry else None
    is_alone = len(keys) == 1 and not is_reply and keys[0] not in ("file", "document", "media")
    return keys[0] if is_alone and _MEDIA_PART.fullmatch(keys[0]) else None


def read_reasoning(message: Row, keys: Sequence[str], counts: Counter[str]) -> str | None:
    """Return the reasoning of an assistant message; None if missing or blank.

    `keys` are the message keys that may have reasoning. A boolean under a key is a switch, not reasoning, and is added
    to `counts` as an unread key. Raise RowFault for media, or if two keys have different texts.
    """
    texts: dict[str, str] = {}
    for key in keys:
        value = message.get(key)
        if isinstance(value, bool):
            counts[unread_count_key("assistant", key)] += 1
        elif has_value(value) and (text := read_text(value, "assistant", counts)).strip():
            texts[key] = text
    if len(set(texts.values())) > 1:
        raise RowFault(RowReason.MALFORMED_MESSAGE, f"{' and '.join(texts)} have different text")
    return next(iter(texts.values()), None)


def split_think_blocks(content: str) -> list[tuple[bool, str]] | None:
    """Split content at its outermost `<think>` blocks into (is_thought, text) parts.

    The last part is not a thought, and may be empty. Line ends are removed from both ends of a thought, and from the
    start of the text after a block. If tags do not pair up, return None.
    """
    parts: list[tuple[bool, str]] = []
    depth = start = 0
    for tag in _THINK_TAG.finditer(content):  # a text ends where the depth rises from 0, a thought where it falls to 0
        is_opening = tag.group() == "<think>"
        if depth == (0 if is_opening else 1):
            text = content[start : tag.start()]
            parts.append((not is_opening, text.lstrip("\r\n") if is_opening and parts else text))
            start = tag.end()
        depth += 1 if is_opening else -1
        if depth < 0:
            return None
    rest = content[start:]
    parts.append((False, rest.lstrip("\r\n") if parts else rest))
    return None if depth else [(is_thought, text.strip("\r\n") if is_thought else text) for is_thought, text in parts]


def count_think_tags(category: str, text: str, counts: Counter[str]) -> None:
    """Count `text` in its category if it has `<think>` tags.

    `category` is the text's role, or `analysis`. A text of the category `assistant` whose tags do not pair up also
    counts as `unpaired`.
    """
    if "<think>" in text or "</think>" in text:
        counts[f"{THINK_TAGS_COUNT_KEY}/{category}"] += 1
        if category == "assistant" and split_think_blocks(text) is None:
            counts[f"{THINK_TAGS_COUNT_KEY}/{UNPAIRED_TAGS}"] += 1


def sum_think_tags(messages: Iterable[Message]) -> Counter[str]:
    """Count messages with `<think>` tags, under the keys of `count_think_tags`.

    Messages on the analysis channel count as `analysis`, whatever their role.
    """
    counts: Counter[str] = Counter()
    for message in messages:
        count_think_tags("analysis" if message.channel == "analysis" else str(message.role), message.content, counts)
    return counts
