"""Interface of tokenizers, which encode texts with a file pinned by its sha256."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pydantic
from numpy.typing import ArrayLike, NDArray

from pipeline_assets.corpus.tokens.losses import NO_LOSSES, LossCounter, Losses
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.section import RecipeSection


@dataclass(frozen=True)
class TokenRuns:
    """Ids of several texts, one after another.

    Attributes:
        ids: Shape (tokens,).
        lengths: Tokens of each text, shape (texts,).
        text_bytes: UTF-8 bytes of all texts.
        losses: Text that the ids do not represent.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    text_bytes: int
    losses: Losses = NO_LOSSES

    @classmethod
    def from_lists(cls, runs: Sequence[ArrayLike], text_bytes: int) -> "TokenRuns":
        """Join runs of ids, one array or list per text."""
        arrays = [np.asarray(run, np.int32) for run in runs]
        ids = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        return cls(ids, np.fromiter(map(len, arrays), np.int32, len(arrays)), text_bytes)

    def each(self) -> Iterator[NDArray[np.int32]]:
        """Yield the ids of each text."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        for start, end in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True):
            yield self.ids[start:end]

    def closed_by(self, end: int) -> "TokenRuns":
        """Return the runs with the token `end` after each, which its length includes."""
        ids = np.insert(self.ids, np.cumsum(self.lengths, dtype=np.int64), end)
        return TokenRuns(ids, self.lengths + np.int32(1), self.text_bytes, self.losses)

    def counted_by(self, counter: LossCounter | None, texts: Sequence[str]) -> "TokenRuns":
        """Return the runs with the losses of their texts."""
        return self if counter is None else replace(self, losses=counter.count(texts, self.each()))


class ControlledIds(NamedTuple):
    """Ids of a text with control tokens.

    Attributes:
        ids: Shape (tokens,).
        controls: Positions of the control tokens in `ids`, shape (controls,).
        losses: Text that the ids do not represent.
    """

    ids: NDArray[np.int32]
    controls: NDArray[np.int64]
    losses: Losses = NO_LOSSES


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
        """Encode texts; every text must pass `can_encode`.

        Raises:
            InputError: The library cannot encode a text with this tokenizer file.
        """

    def encode_controlled(self, texts: Sequence[bytes], controls: Sequence[str]) -> list[ControlledIds]:
        """Encode texts with control tokens; each part between them is encoded separately.

        Args:
            texts: Texts in UTF-8, whose parts must pass `can_encode`.
            controls: Names of `special_ids` that are control tokens in the texts.

        Raises:
            InputError: The library cannot encode a text with this tokenizer file.
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


Sha256 = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]


class FileTokenizerRecipe(RecipeSection):
    """Tokenizer pinned by the sha256 of its file, with its end-of-document token."""

    family: Literal["hf_tokenizer", "sentencepiece"]
    sha256: Sha256
    end_of_document: str


def read_pinned(path: Path, sha256: str, fix: str) -> bytes:
    """Read a tokenizer file and check its hash.

    Args:
        path: Tokenizer file.
        sha256: Pinned hash.
        fix: Advice if the file cannot be read.

    Raises:
        InputError: The file cannot be read or differs from the pinned hash; the message has both hashes.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the tokenizer file ({error.strerror})", path, fix) from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        remedy = "restore the file, or pin the hash of the intended file"
        raise InputError(f"sha256 is {actual}, pinned {sha256}", path, remedy)
    return data
