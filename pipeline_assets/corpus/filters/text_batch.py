"""Batches of documents as one UTF-8 array, for compiled kernels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.spine.errors import InputError

_PADDING = bytes(8)  # compiled code reads a few bytes beyond the last document
MAX_TEXT_BYTES = 2**31 - 1  # kernels count in int32


class TextBatch(NamedTuple):
    """UTF-8 of several documents, one after another."""

    text: NDArray[np.uint8]  # with eight zeros after the last document
    offsets: NDArray[np.int64]  # first byte of each document, then the end of the last one; shape (documents + 1,)


def join_texts(texts: Sequence[bytes]) -> TextBatch:
    """Join texts into a batch; raise InputError if one exceeds `MAX_TEXT_BYTES`."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(lengths) and lengths.max() > MAX_TEXT_BYTES:
        what = f"the text has {lengths.max():,} bytes, at most {MAX_TEXT_BYTES:,} are supported"
        raise InputError(what, f"document {int(lengths.argmax())} of a block", "split the document before filtering")
    text = np.frombuffer(b"".join([*texts, _PADDING]), np.uint8)
    return TextBatch(text, np.concatenate(([0], np.cumsum(lengths))))
