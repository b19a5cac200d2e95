"""Selection of byte windows by their content.

A window is `window_bytes` consecutive bytes of a document's UTF-8. Its hash is a rolling polynomial modulo 2**64 (Karp
and Rabin 1987, "Efficient randomized pattern-matching algorithms"), mixed by SplitMix64's finalizer. The base is the
odd constant `POLYNOMIAL`; the coefficients are the bytes, each increased by one so that zero bytes change the hash.
Windows whose hash is a multiple of `divisor` are selected. So the selection depends only on the content of a window,
and a moved passage keeps its selected windows (Manber 1994, "Finding similar files in a large file system"). If no hash
in a document is a multiple of `divisor`, the window with the smallest hash is selected. A document that is shorter than
`window_bytes` is a single window.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.words import POLYNOMIAL
from pipeline_assets.corpus.packing.hashed_order import split_mix

_ONE_64, _MAX_HASH = np.uint64(1), np.uint64(2**64 - 1)


def select_windows(
    texts: Sequence[bytes], window_bytes: int, divisor: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Select windows of UTF-8 texts by the rule in this module's docstring.

    Returns:
        The hash of each selected window, text after text; a window that occurs repeatedly has repeated entries. Then
        the number of selected windows of each text, at least 1.
    """
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    text = np.frombuffer(b"".join(texts), np.uint8)
    # At most a window per byte, and one for an empty text; the kernel writes one entry beyond the last. Pages that are
    # never written take no memory.
    hashes = np.empty(len(text) + len(texts) + 1, np.uint64)
    window_counts = np.empty(len(texts), np.int64)
    selected = _fill_windows(text, offsets, window_bytes, np.uint64(divisor), hashes, window_counts)
    return hashes[:selected].copy(), window_counts


@compiled
def _fill_windows(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    window_bytes: int,
    divisor: np.uint64,
    hashes: NDArray[np.uint64],
    window_counts: NDArray[np.int64],
) -> int:
    """Fill `hashes` and `window_counts`; return the number of selected windows."""
    # Horner's rule: each new byte multiplies the sum by the base once more. So after `window_bytes` further bytes, a
    # byte contributes (byte + 1) * base ** window_bytes. The rolling hash subtracts this when the byte leaves.
    power = _ONE_64
    for _ in range(window_bytes):
        power = power * POLYNOMIAL
    count = 0
    for document in range(len(window_counts)):
        first, stop = count, offsets[document + 1]
        end = min(offsets[document] + window_bytes, stop)
        rolled = np.uint64(0)
        # Hash the first window, or the whole text if it is shorter.
        for position in range(offsets[document], end):
            rolled = rolled * POLYNOMIAL + (np.uint64(text[position]) + _ONE_64)
        smallest = _MAX_HASH
        while True:
            hashed = split_mix(rolled)
            smallest = min(smallest, hashed)
            # Write without a branch: the next hash overwrites this one unless it is selected.
            hashes[count] = hashed
            count += hashed % divisor == 0
            if end >= stop:
                break
            # Roll: multiply the sum by the base, add the next byte and subtract the first byte of the old window.
            removed = (np.uint64(text[end - window_bytes]) + _ONE_64) * power
            rolled = rolled * POLYNOMIAL + (np.uint64(text[end]) + _ONE_64 - removed)
            end += 1
        if count == first:  # no multiple of `divisor`
            hashes[count] = smallest
            count += 1
        window_counts[document] = count - first
    return count
