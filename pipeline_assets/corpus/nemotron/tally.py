"""Counts by name, nested as deep as they need be, that add up: those of all shards are the sum of each shard's."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Tally: TypeAlias = "dict[str, int | Tally]"
MAX_NAMES = 1000
OTHERS = "(others)"
_MAX_NAME_CHARACTERS = 200


def count(tally: Tally, path: Iterable[str], more: int = 1) -> None:
    """Adds to the count at a path of names.

    Bounded, whatever names a file has: beyond `MAX_NAMES` beside each other a new one counts as `(others)`, and a name
    is cut to 200 characters.
    """
    *above, last = (_fitting(name) for name in path)
    for name in above:
        below = tally.setdefault(_room(tally, name), {})
        assert isinstance(below, dict), "a path ends where another goes on"
        tally = below
    last = _room(tally, last)
    so_far = tally.get(last, 0)
    assert isinstance(so_far, int), "a path ends where another goes on"
    tally[last] = so_far + more


def add(tally: Tally, other: Mapping[str, "int | Tally"]) -> None:
    """Adds all counts of another tally."""
    for name, value in other.items():
        if isinstance(value, int):
            so_far = tally.get(name, 0)
            assert isinstance(so_far, int)
            tally[name] = so_far + value
        else:
            below = tally.setdefault(name, {})
            assert isinstance(below, dict)
            add(below, value)


def counts_at(tally: Mapping[str, "int | Tally"], *path: str) -> dict[str, int]:
    """The counts directly below a path; none where there is nothing."""
    found: Mapping[str, int | Tally] = tally
    for name in path:
        below = found.get(name, {})
        found = below if isinstance(below, dict) else {}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def names_at(tally: Mapping[str, "int | Tally"], *path: str) -> list[str]:
    """The names directly below a path, sorted."""
    found: Mapping[str, int | Tally] = tally
    for name in path:
        below = found.get(name, {})
        found = below if isinstance(below, dict) else {}
    return sorted(found)


def _room(tally: Tally, name: str) -> str:
    return name if name in tally or len(tally) < MAX_NAMES else OTHERS


def _fitting(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else name[:_MAX_NAME_CHARACTERS] + "…"
