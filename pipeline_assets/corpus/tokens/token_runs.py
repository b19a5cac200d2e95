"""Encoded texts, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class TokenRuns:
    """Encoded texts: ids (tokens,) int32, lengths (texts,) int32, and the texts' UTF-8 bytes."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    text_bytes: int

    @classmethod
    def of(cls, runs: Sequence[ArrayLike], text_bytes: int) -> "TokenRuns":
        """Runs of ids, an array or a list a text, as one."""
        arrays = [np.asarray(run, np.int32) for run in runs]
        ids = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        return cls(ids, np.fromiter(map(len, arrays), np.int32, len(arrays)), text_bytes)

    @property
    def starts(self) -> NDArray[np.int64]:
        """First token of each run, shape (texts,)."""
        return np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    def closed_by(self, end: int) -> "TokenRuns":
        """The same runs, each followed by the token `end`, which its length then counts."""
        lengths = self.lengths + np.int32(1)
        ids = np.full(len(self.ids) + len(lengths), end, np.int32)
        is_text = np.ones(len(ids), bool)
        is_text[np.cumsum(lengths, dtype=np.int64) - 1] = False
        ids[is_text] = self.ids
        return TokenRuns(ids, lengths, self.text_bytes)
