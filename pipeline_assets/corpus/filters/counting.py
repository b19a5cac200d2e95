"""A batch of documents, counted: one call of compiled code for all of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.eight_bytes import eight_bytes_at_each
from pipeline_assets.corpus.filters.code_points import CharacterClasses
from pipeline_assets.corpus.filters.repetition import Scratch, count_repetition, scratch_for
from pipeline_assets.corpus.filters.thresholds import Limits, first_beyond
from pipeline_assets.corpus.filters.words import Words, count_characters, find_lines, find_words, room_for
from pipeline_assets.corpus.spine.errors import InputError

_PADDING = bytes(16)  # compiled code reads a few bytes beyond the last document
_MAX_TEXT_BYTES = 2**31 - 1


class Batch(NamedTuple):
    """Documents one after the other, as UTF-8.

    Attributes:
        text: uint8, with some zeros beyond the last document.
        offsets: where each begins, and where the last ends; int64.
    """

    text: NDArray[np.uint8]
    offsets: NDArray[np.int64]


def batch_of(texts: Sequence[bytes]) -> Batch:
    """The documents as a batch.

    Raises:
        InputError: a document is too long to count in 32 bits.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(lengths) and lengths.max() > _MAX_TEXT_BYTES:
        fix = "cut the document before it is filtered"
        raise InputError(f"a text of {lengths.max():,} bytes", f"document {int(lengths.argmax())} of a block", fix)
    text = np.frombuffer(b"".join([*texts, _PADDING]), np.uint8)
    return Batch(text, np.concatenate(([0], np.cumsum(lengths))))


class Workspace:
    """Arrays that counting needs, kept from batch to batch while documents are of a common size."""

    _KEPT_FOR = 4 << 20

    def __init__(self) -> None:
        self._kept = self._new(self._KEPT_FOR)

    def arrays(self, longest: int) -> tuple[Words, Scratch]:
        """Arrays for documents of up to `longest` bytes."""
        return self._kept if longest <= self._KEPT_FOR else self._new(longest)

    @staticmethod
    def _new(longest: int) -> tuple[Words, Scratch]:
        return room_for(longest), scratch_for(longest)


def count_batch(
    batch: Batch,
    classes: CharacterClasses,
    workspace: Workspace,
    counts: NDArray[np.int64],
    before_repetition: Limits,
    counts_repetition: bool,
) -> None:
    """Adds to `counts`, shape (documents, kinds), what the words, lines and paragraphs of each document tell.

    Args:
        before_repetition: a document beyond one of these limits is not searched for repetition, which takes longest.
    """
    longest = int(np.diff(batch.offsets).max(initial=0))
    words, scratch = workspace.arrays(longest)
    eights = eight_bytes_at_each(batch.text)
    _count(batch.text, eights, batch.offsets, classes, words, scratch, before_repetition, counts_repetition, counts)


@compiled
def _count(
    text: NDArray[np.uint8],
    eights: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    classes: CharacterClasses,
    words: Words,
    scratch: Scratch,
    before_repetition: Limits,
    counts_repetition: bool,
    counts: NDArray[np.int64],
) -> None:
    for document in range(len(offsets) - 1):
        start = offsets[document]
        own = text[start : offsets[document + 1]]
        count_characters(own, counts[document])
        find_words(own, classes, words, counts[document])
        find_lines(own, classes, words, counts[document])
        if counts_repetition and first_beyond(counts[document], before_repetition) < 0:
            count_repetition(eights[start:], words, scratch, counts[document])


@compiled
def first_failed(counts: NDArray[np.int64], limits: Limits) -> NDArray[np.int64]:
    """For each document the first limit that it is beyond, -1 if it is within all; shape (documents,)."""
    failed = np.empty(len(counts), np.int64)
    for document in range(len(counts)):
        failed[document] = first_beyond(counts[document], limits)
    return failed
