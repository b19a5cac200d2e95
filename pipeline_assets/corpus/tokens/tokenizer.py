"""Interface of tokenizers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.token_runs import ControlledIds, TokenRuns


class Tokenizer(ABC):
    """Tokenizer that runs in one thread.

    Text is ordinary text: only builders write ids with a special meaning.

    Attributes:
        driver: Library that encodes.
        vocabulary_size: Upper bound of ids, exclusive.
        end_of_document: Id that closes a document.
        padding: Id that fills rows; `end_of_document` if the tokenizer has no padding id that no text gives.
        special_ids: Ids of the tokens that no text gives, by name.
    """

    driver: str
    vocabulary_size: int
    end_of_document: int
    padding: int
    special_ids: Mapping[str, int]

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Encode texts; every text must pass `can_encode`."""

    def encode_controlled(self, texts: Sequence[bytes], controls: Sequence[str]) -> list[ControlledIds]:
        """Encode texts with control tokens; each part between them is encoded separately.

        Args:
            texts: Texts in UTF-8, whose parts must pass `can_encode`.
            controls: Names of `special_ids` that are control tokens in the texts.
        """
        by_name = re.compile(f"({'|'.join(map(re.escape, controls))})")
        encoded = []
        for text in texts:
            parts = by_name.split(text.decode())
            runs = self.encode(parts[::2])
            before = np.cumsum(runs.lengths[:-1], dtype=np.int64)
            ids = np.insert(runs.ids, before, [self.special_ids[control] for control in parts[1::2]])
            encoded.append(ControlledIds(ids, before + np.arange(len(before)), runs.losses))
        return encoded

    @abstractmethod
    def decode(self, ids: NDArray[np.int32]) -> str:
        """Decode ids for people; a part of a character becomes a replacement character."""

    @abstractmethod
    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        """Check for an id that only a builder may write."""

    def can_encode(self, text: str) -> bool:
        """Check whether the library can encode the text without a crash."""
        return True

    def oracle_ids(self, text: str) -> NDArray[np.int32] | None:
        """Encode a text with a second library; None if the tokenizer has no second one."""
        return None
