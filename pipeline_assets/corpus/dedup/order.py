"""The total order of documents, in which the first of several duplicates stays, and sets of documents as bits.

A document has a number, its place in the corpus: sources in the order of the recipe, their shards, their rows. Its
order is a uint64: what it is selected by in the upper 32 bits, smaller for better, its number in the lower ones. There
0 is kept for documents that were seen before: they come first.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.dedup.recipe import Selection
from pipeline_assets.corpus.spine.durable import DurableFile

MAX_DOCUMENTS = 2**32
_LAST = 2**32 - 1
_NUMBER = np.uint64(_LAST)
_32, _3, _7 = np.uint64(32), np.uint64(3), np.uint64(7)
_ONE = np.uint8(1)


class Selected(NamedTuple):
    """What documents are selected by; one of the two, or none.

    Attributes:
        text_bytes: int64.
        quality: float32, NaN where there is none.
    """

    text_bytes: NDArray[np.int64]
    quality: NDArray[np.float32]


def orders(numbers: NDArray[np.uint64], selection: Selection, selected: Selected) -> NDArray[np.uint64]:
    """The orders of documents of these numbers."""
    return _upper(selection, selected) << _32 | numbers


def _upper(selection: Selection, selected: Selected) -> NDArray[np.uint64]:
    match selection:
        case "first":
            return np.ones(len(selected.text_bytes), np.uint64)
        case "longest":
            return (_LAST - np.minimum(selected.text_bytes, _LAST - 1)).astype(np.uint64)
        case "quality":
            bits = (selected.quality + np.float32(0)).view(np.int32).astype(np.int64)  # -0.0 is 0.0
            ascending = np.where(bits < 0, -(2**31) - bits, bits)  # as floats ascend
            return np.where(np.isnan(selected.quality), _LAST, (2**31 - 2) - ascending).astype(np.uint64)


def is_seen(orders: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which documents were seen before."""
    return orders <= _NUMBER


@inner
def number_of(order: np.uint64) -> np.uint64:
    """The document's number."""
    return order & _NUMBER


def document_numbers(orders: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers of documents."""
    return orders & _NUMBER


def no_documents(documents: int) -> NDArray[np.uint8]:
    """The empty set of documents below a number: a bit for each."""
    return np.zeros((documents >> 3) + 1, np.uint8)


@compiled
def include(members: NDArray[np.uint8], orders: NDArray[np.uint64]) -> None:
    """Puts documents into a set, by their orders or numbers."""
    for order in orders:
        number = number_of(order)
        members[number >> _3] |= _ONE << np.uint8(number & _7)


@inner
def is_member(members: NDArray[np.uint8], order: np.uint64) -> bool:
    """Whether a document is in the set."""
    number = number_of(order)
    return bool(members[number >> _3] >> np.uint8(number & _7) & _ONE)


@compiled
def are_members(orders: NDArray[np.uint64], members: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which documents are in the set, by their orders or numbers."""
    answer = np.empty(len(orders), np.bool_)
    for place in range(len(orders)):
        answer[place] = is_member(members, orders[place])
    return answer


def members_between(members: NDArray[np.uint8], first: int, stop: int) -> NDArray[np.bool_]:
    """Which of the documents from number `first` to before `stop` are in the set."""
    bits = np.unpackbits(members[first >> 3 : (stop >> 3) + 1], bitorder="little")
    return bits[first & 7 : (first & 7) + stop - first].astype(bool)


def save(members: NDArray[np.uint8], path: Path) -> Path:
    """The set in a file, from which `load` maps it."""
    with DurableFile(path) as file:
        file.write(members.tobytes())
    return path


def load(path: Path) -> NDArray[np.uint8]:
    """A set that `save` wrote: pages of the file, which processes share."""
    return np.memmap(path, np.uint8, "r")
