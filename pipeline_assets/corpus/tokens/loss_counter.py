"""Counter of the text that a tokenizer loses while it encodes.

Unknown tokens are counted by their id, lost characters by the difference between the length of a text and the length of
the text that its other tokens decode to, both in NFKC without blanks. SentencePiece writes one unknown token for a run
of unknown characters, so characters are counted as well as tokens.
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses

_BLANK_MARK, _NO_TEXT = "\u2581", "\ufffd"  # blanks of SentencePiece and Metaspace; bytes that are not UTF-8


@dataclass(frozen=True)
class LossCounter:
    """Counter of the text that a tokenizer loses.

    Attributes:
        unknown: Id of text without a token; -1 for a tokenizer without such an id, which drops that text or raises.
        decode: Function from ids to text.
        drops: Text can vanish without an unknown token, so every text is decoded.
    """

    unknown: int
    decode: Callable[[list[int]], str]
    drops: bool = False

    def count(self, texts: Iterable[str], runs: Iterable[NDArray[np.int32]]) -> Losses:
        """Count the losses of texts from their ids, one array per text."""
        losses = NO_LOSSES
        for text, ids in zip(texts, runs, strict=True):
            known = ids[ids != self.unknown]
            characters, unknown, lost = _count_characters(text), len(ids) - len(known), 0
            if unknown or self.drops:
                # Compatibility forms, since normalisation may compose and decompose characters.
                whole, kept = (unicodedata.normalize("NFKC", form) for form in (text, self.decode(known.tolist())))
                characters = _count_characters(whole)
                lost = max(characters - _count_characters(kept), unknown)
            losses += Losses(len(ids), unknown, max(characters, lost), lost)
        return losses


def _count_characters(text: str) -> int:
    """Count characters without blanks, marks of blanks, and replacement characters."""
    return len("".join(text.replace(_BLANK_MARK, " ").replace(_NO_TEXT, " ").split()))
