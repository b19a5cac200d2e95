"""The largest groups of duplicates: templates, mirrors, boilerplate that filters let through."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.order import document_numbers, number_of
from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.parquet import read_columns

GROUPS, MEMBERS = 10, 3  # so many are shown, with so many of the documents that went
_BLOCK = 1 << 20


@dataclass(frozen=True)
class LargeGroup:
    """A group by the numbers of its documents.

    Attributes:
        kept: the document that stays.
        gone: how many went for it.
        members: the first of those.
    """

    kept: int
    gone: int
    members: Sequence[int]


def largest_groups(
    documents: int, exact: Sequence[Path], near: Sequence[Path], of_firsts: Path | None, scratch: Path
) -> list[LargeGroup]:
    """The groups from which most documents went, the largest first, of equals the one whose document comes first.

    Args:
        documents: in the corpus.
        exact, near, of_firsts: runs, as `DecidedShard` has them.
        scratch: a file for four bytes a document, so that they need no memory.
    """
    gone = np.memmap(scratch, np.uint32, "w+", shape=(max(documents, 1),))
    for run in exact:
        _count(gone, numbers(read_columns(run, ["first"])["first"]), 1)
    kept_of: dict[int, int] = {}
    if of_firsts is not None:
        moved = read_columns(of_firsts, ["number", "first"])
        firsts = document_numbers(numbers(moved["first"]))
        kept_of = dict(zip(numbers(moved["number"]).tolist(), firsts.tolist(), strict=True))
        _move(gone, numbers(moved["number"]), firsts)
    for run in near:
        _count(gone, numbers(read_columns(run, ["first"])["first"]), 1)
    largest = heapq.nsmallest(GROUPS, _candidates(gone))
    members = _members([*near, *exact], kept_of, {number for _, number in largest})
    return [LargeGroup(number, -negated, members[number]) for negated, number in largest]


@compiled
def _count(gone: NDArray[np.uint32], orders: NDArray[np.uint64], by: int) -> None:
    for order in orders:
        gone[number_of(order)] += by


@compiled
def _move(gone: NDArray[np.uint32], sources: NDArray[np.uint64], targets: NDArray[np.uint64]) -> None:
    for place in range(len(sources)):
        gone[targets[place]] += gone[sources[place]]
        gone[sources[place]] = 0


def _candidates(gone: NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """(minus how many went, number), of each block those that may be among the largest."""
    for start in range(0, len(gone), _BLOCK):
        block = gone[start : start + _BLOCK]
        if len(block) > GROUPS:
            least = np.partition(block, -GROUPS)[-GROUPS]
            found = np.flatnonzero(block >= max(int(least), 1))
        else:
            found = np.flatnonzero(block)
        counted = sorted(zip((-block[found].astype(np.int64)).tolist(), (found + start).tolist(), strict=True))
        yield from counted[:GROUPS]


def _members(runs: Sequence[Path], kept_of: dict[int, int], wanted: set[int]) -> dict[int, list[int]]:
    """The first documents that went for each wanted one, by number."""
    members: dict[int, list[int]] = {number: [] for number in wanted}
    sources = np.array(sorted({*wanted, *(number for number, kept in kept_of.items() if kept in wanted)}), np.uint64)
    for run in runs:
        table = read_columns(run, ["number", "first"])
        firsts = document_numbers(numbers(table["first"]))
        of_wanted = np.isin(firsts, sources)
        pairs = zip(firsts[of_wanted].tolist(), numbers(table["number"])[of_wanted].tolist(), strict=True)
        for first, number in pairs:
            kept = kept_of.get(first, first)
            members[kept] = heapq.nsmallest(MEMBERS, [*members[kept], number])
    return members
