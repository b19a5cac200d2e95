"""What a tokenizer is to those that build with it, whatever its family."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.token_runs import TokenRuns


class Tokenizer(Protocol):
    """Text to ids, in one thread. Text is ordinary text: ids that mean something to a model come from builders alone.

    Attributes:
        driver: the library that encodes.
        vocabulary_size: every id is below it.
        end_of_document: the id that closes a document.
        padding: the id that fills up a row; `end_of_document` where there is none of its own that no text gives.
    """

    @property
    def driver(self) -> str: ...

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def end_of_document(self) -> int: ...

    @property
    def padding(self) -> int: ...

    def can_encode(self, text: str) -> bool:
        """Whether the library survives the text."""

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Ids of each text, which must be encodable.

        Raises:
            InputError: the library can't encode one, because of the tokenizer's file.
        """

    def decode(self, ids: NDArray[np.int32]) -> str:
        """A text of ids, for people: that of a part of a character is a replacement character."""

    def oracle_ids(self, text: str) -> NDArray[np.int32] | None:
        """Ids by a second library, that the first is held against; None where there is none."""

    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        """Whether there is an id among them that only a builder may write."""
