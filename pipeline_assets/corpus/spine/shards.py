"""Shards planned from content, never from the number of workers: a restart with other workers reuses every finished
one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def grouped_by_size(pieces: Iterable[T], size_of: Callable[[T], int], at_least: int) -> Iterator[list[T]]:
    """Runs of consecutive pieces, each closed by the piece that brings it to `at_least`; the last may stay below."""
    group: list[T] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += size_of(piece)
        if size >= at_least:
            yield group
            group, size = [], 0
    if group:
        yield group
