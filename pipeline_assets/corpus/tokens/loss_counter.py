"""Counter of the text that a tokenizer loses while it encodes.

The text is compared with its decoded known tokens, both in NFKC and without whitespace. The number of lost characters
is the difference of the two lengths or the number of unknown tokens, whichever is larger: an unknown token replaces one
or more characters.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses
from pipeline_assets.corpus.tokens.token_runs import TokenRuns

_BLANK_MARK = "\u2581"  # spaces of SentencePiece and Metaspace
_REPLACEMENT_CHARACTER = "\ufffd"  # bytes that are not UTF-8


@dataclass(frozen=True)
class LossCounter:
    """Counter of the text that a tokenizer loses.

    Attributes:
        unknown_id: Id of the unknown token; -1 if the tokenizer instead drops unknown text or raises an error.
        decode: Function from ids to text.
        can_drop_text: Whether text can be lost without an unknown token. If True, every text is decoded.
    """

    unknown_id: int
    decode: Callable[[list[int]], str]
    can_drop_text: bool = False

    def count(self, texts: Iterable[str], runs: Iterable[NDArray[np.int32]]) -> Losses:
        """Count the losses of texts; `runs` has the token ids of each text."""
        losses = NO_LOSSES
        for text, ids in zip(texts, runs, strict=True):
            known = ids[ids != self.unknown_id]
            characters, unknown, lost = _count_characters(text), len(ids) - len(known), 0
            if unknown or self.can_drop_text:
                # Compatibility forms, since normalization may compose and decompose characters.
                whole, kept = (unicodedata.normalize("NFKC", form) for form in (text, self.decode(known.tolist())))
                characters = _count_characters(whole)
                lost = max(characters - _count_characters(kept), unknown)
            losses += Losses(len(ids), unknown, max(characters, lost), lost)
        return losses


def with_losses(runs: TokenRuns, counter: LossCounter | None, texts: Sequence[str]) -> TokenRuns:
    """Copy `runs` and set the losses of `texts`; without `counter`, return `runs`."""
    return runs if counter is None else replace(runs, losses=counter.count(texts, runs.split()))


def _count_characters(text: str) -> int:
    """Count characters, except whitespace, SentencePiece's \u2581 and U+FFFD."""
    return len("".join(text.replace(_BLANK_MARK, " ").replace(_REPLACEMENT_CHARACTER, " ").split()))
