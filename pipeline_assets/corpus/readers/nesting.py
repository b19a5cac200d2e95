"""Limits on the nesting of objects and lists in values of source rows."""

import re
from typing import Any

# Far below Python's recursion limit, which may be reached or not depending on the depth of the caller; the fate of a
# row must not depend on it.
MAX_NESTING = 64
_MAX_TEXT_NESTING = 500  # in values that are JSON texts; decoders may recurse that far below any caller
_CONTAINER_TYPES = frozenset((dict, list, tuple))
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)', re.DOTALL)
_BYTES_EXCEPT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def is_nested_within(value: object, levels: int = MAX_NESTING) -> bool:
    """Check whether objects, lists and Arrow maps nest at most `levels` deep."""
    level: list[Any] = [value] if type(value) in _CONTAINER_TYPES else []
    for _ in range(levels):  # one level at a time takes half as long as recursion
        if not level:
            return True
        contents = (container.values() if type(container) is dict else container for container in level)
        level = [item for content in contents for item in content if type(item) in _CONTAINER_TYPES]
    return not level


def has_deep_brackets(text: bytes, levels: int) -> bool:
    """Check whether a JSON text, valid or not, nests more than `levels` deep."""
    depth = 0
    for bracket in _STRING.sub(b"", text).translate(None, _BYTES_EXCEPT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > levels:
            return True
    return False


def limit_text_nesting(text: str) -> None:
    """Raise RecursionError if some callers could not decode a JSON text.

    Decoders recurse, so a deep call stack leaves them fewer levels. The error does not depend on the caller.
    """
    if text.count("[") + text.count("{") > _MAX_TEXT_NESTING and has_deep_brackets(
        text.encode(errors="surrogatepass"), _MAX_TEXT_NESTING
    ):
        raise RecursionError
