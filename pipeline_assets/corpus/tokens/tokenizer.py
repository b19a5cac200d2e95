"""Interface of tokenizers, and the ids that they return."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses
from pipeline_assets.corpus.tokens.token_runs import TokenRuns


class ControlledIds(NamedTuple):
    """Token ids of one text with control tokens.

    Attributes:
        ids: Ids of the text, shape (tokens,).
        control_positions: Positions of the control tokens in `ids`, shape (controls,).
        losses: Number of tokens and characters, without control tokens, and how many of them are unknown or lost.
    """

    ids: NDArray[np.int32]
    control_positions: NDArray[np.int64]
    losses: Losses = NO_LOSSES


class Tokenizer(ABC):
    """Tokenizer that runs in one thread.

    Text is encoded as ordinary text; only a builder may add special ids, such as the end of a document.

    Attributes:
        driver: Name of the library that encodes.
        vocabulary_size: Upper bound, exclusive, of the ids in encoded texts.
        end_of_document_id: Id of the token after each document.
        padding_id: Id of the token that fills rows; equals `end_of_document_id` if the tokenizer has no suitable token.
        special_ids: Ids of special tokens by name; may be empty.
    """

    driver: str
    vocabulary_size: int
    end_of_document_id: int
    padding_id: int
    special_ids: Mapping[str, int]

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Encode texts; every text must pass `can_encode`."""

    def encode_controlled(self, texts: Sequence[bytes], controls: Sequence[str]) -> list[ControlledIds]:
        """Encode texts with control tokens; encode the text between them separately.

        Args:
            texts: UTF-8 texts; all text between control tokens must pass `can_encode`.
            controls: Names of control tokens; each occurrence in a text becomes the id in `special_ids`.
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
        """Decode ids for people; an incomplete character becomes U+FFFD."""

    @abstractmethod
    def contains_special(self, ids: NDArray[np.int32]) -> bool:
        """Check whether one of `ids` is special, such as the end of a document.

        Stage `encode` rejects documents with such an id.
        """

    def can_encode(self, text: str) -> bool:
        """Check whether the library can encode the text without crashing."""
        return True

    def oracle_ids(self, text: str) -> NDArray[np.int32] | None:
        """Return a text's ids from a second library, the oracle; None without an oracle."""
        return None
