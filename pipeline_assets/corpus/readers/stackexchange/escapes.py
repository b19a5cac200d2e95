"""How the dumps escape attribute values for XML: seven characters, always in the same way."""

import re
from xml.sax.saxutils import escape

_ESCAPES = {'"': "&quot;", "\n": "&#xA;", "\r": "&#xD;", "\t": "&#x9;"}
_TAG_NAME = re.compile(r"[^<>|]+")


def unescaped(value: str) -> str:
    """What a value says."""
    if "&" not in value:
        return value
    value = value.replace("&lt;", "<").replace("&gt;", ">")
    if "&" in value:
        for character, reference in _ESCAPES.items():
            value = value.replace(reference, character)
    return value.replace("&amp;", "&")


def escaped(value: str) -> str:
    """A value as a dump would write it."""
    return escape(value, _ESCAPES)


def tag_names(tags: str | None) -> list[str]:
    """Of the attribute `Tags`, in both forms: `<a><b>`, as it was, and `|a|b|`, as newer dumps have it."""
    return _TAG_NAME.findall(unescaped(tags)) if tags else []
