"""Selection of byte windows by their content.

A window is `window_bytes` consecutive bytes of a document's UTF-8. Its hash is the polynomial of its bytes, each
increased by one so that zeros count, in an odd constant modulo 2**64. It is rolled from window to window (Karp and
Rabin 1987, "Efficient randomized pattern-matching algorithms") and mixed by SplitMix64's finalizer. Windows whose hash
is a multiple of `every` are selected: by content, so a moved passage keeps its selected windows (Manber 1994, "Finding
similar files in a large file system"). Without such a window, the one with the smallest hash is selected. A document
shorter than a window is one window. A window that a document repeats counts once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.words import POLYNOMIAL
from pipeline_assets.corpus.packing.hashed_order import split_mix

_ONE_64, _ALL = np.uint64(1), np.uint64(2**64 - 1)


class SelectedWindows(NamedTuple):
    """Selected windows of documents, in the order of the texts, repetitions included.

    Attributes:
        hashes: Shape (windows,).
        windows: Windows of each document, at least 1; shape (documents,).
    """

    hashes: NDArray[np.uint64]
    windows: NDArray[np.int64]


def select_windows(texts: Sequence[bytes], window_bytes: int, every: int) -> SelectedWindows:
    """Select windows of documents.

    Args:
        texts: UTF-8 of each document.
        window_bytes: Bytes in a window.
        every: A window is selected if its hash is a multiple of this.
    """
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    text = np.frombuffer(b"".join(texts), np.uint8)
    hashes = np.empty(len(text) + len(texts) + 1, np.uint64)  # pages that are never written take no memory
    windows = np.empty(len(texts), np.int64)
    selected = _select(text, offsets, window_bytes, np.uint64(every), hashes, windows)
    return SelectedWindows(hashes[:selected].copy(), windows)


@compiled
def _select(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    window_bytes: int,
    every: np.uint64,
    hashes: NDArray[np.uint64],
    windows: NDArray[np.int64],
) -> int:
    """Fill `hashes` and `windows`, and return the number of selected windows.

    Each hash is written to the next free place, and the next one overwrites it unless it was selected.
    """
    # The coefficient of the byte that leaves a window, after one more multiplication.
    power = _ONE_64
    for _ in range(window_bytes):
        power = power * POLYNOMIAL
    count = 0
    for document in range(len(windows)):
        first, stop = count, offsets[document + 1]
        end = min(offsets[document] + window_bytes, stop)
        rolled = np.uint64(0)
        # The first window, or the whole text if it is shorter.
        for position in range(offsets[document], end):
            rolled = rolled * POLYNOMIAL + (np.uint64(text[position]) + _ONE_64)
        smallest = _ALL
        while True:
            hashed = split_mix(rolled)
            smallest = min(smallest, hashed)
            hashes[count] = hashed
            count += hashed % every == 0
            if end >= stop:
                break
            # Add the next byte and remove the first one of the window.
            removed = (np.uint64(text[end - window_bytes]) + _ONE_64) * power
            rolled = rolled * POLYNOMIAL + (np.uint64(text[end]) + _ONE_64 - removed)
            end += 1
        if count == first:  # no multiple of `every`
            hashes[count] = smallest
            count += 1
        windows[document] = count - first
    return count
