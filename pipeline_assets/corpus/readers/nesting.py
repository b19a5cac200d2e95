"""Limit on the nesting of objects and lists in values of source rows."""

from typing import Any

# Far below Python's recursion limit, which may be reached or not depending on the depth of the caller; the fate of a
# row must not depend on it.
MAX_NESTING = 64
_CONTAINER_TYPES = frozenset((dict, list, tuple))


def is_nested_within(value: object, levels: int = MAX_NESTING) -> bool:
    """Check whether objects, lists and Arrow maps nest at most `levels` deep."""
    level: list[Any] = [value] if type(value) in _CONTAINER_TYPES else []
    for _ in range(levels):  # one level at a time takes half as long as recursion
        if not level:
            return True
        contents = (container.values() if type(container) is dict else container for container in level)
        level = [item for content in contents for item in content if type(item) in _CONTAINER_TYPES]
    return not level
