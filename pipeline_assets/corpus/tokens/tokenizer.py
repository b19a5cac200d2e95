"""What a tokenizer is, whatever its family: text to TokenRuns, from a file pinned by its sha256."""

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
    """Encoded texts: ids (tokens,) int32, lengths (texts,) int32, the texts' UTF-8 bytes, and what the ids lose."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    text_bytes: int
    losses: Losses = NO_LOSSES

    @classmethod
    def from_lists(cls, runs: Sequence[ArrayLike], text_bytes: int) -> "TokenRuns":
        """Runs of ids, an array or a list a text, as one."""
        arrays = [np.asarray(run, np.int32) for run in runs]
        ids = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        return cls(ids, np.fromiter(map(len, arrays), np.int32, len(arrays)), text_bytes)

    def each(self) -> Iterator[NDArray[np.int32]]:
        """The ids of each text."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        for start, end in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True):
            yield self.ids[start:end]

    def closed_by(self, end: int) -> "TokenRuns":
        """The same runs, each followed by the token `end`, which its length then counts."""
        ids = np.insert(self.ids, np.cumsum(self.lengths, dtype=np.int64), end)
        return TokenRuns(ids, self.lengths + np.int32(1), self.text_bytes, self.losses)

    def counted_by(self, counter: LossCounter | None, texts: Sequence[str]) -> "TokenRuns":
        """Return the same runs, with what they lose of the texts."""
        return self if counter is None else replace(self, losses=counter.count(texts, self.each()))


class ControlledIds(NamedTuple):
    """The ids of a text with control tokens in it, shape (tokens,), the places of those, shape (controls,), and what is
    lost of the text.
    """

    ids: NDArray[np.int32]
    controls: NDArray[np.int64]
    losses: Losses = NO_LOSSES


class Tokenizer(ABC):
    """Text to ids, in one thread. Text is ordinary text: ids that mean something to a model come from builders alone.

    Attributes:
        driver: the library that encodes.
        vocabulary_size: every id is below it.
        end_of_document: the id that closes a document.
        padding: the id that fills up a row; `end_of_document` where there is none of its own that no text gives.
        special_ids: ids by the names of tokens that no text gives.
    """

    driver: str
    vocabulary_size: int
    end_of_document: int
    padding: int
    special_ids: Mapping[str, int]

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Ids of each text, which must be encodable.

        Raises:
            InputError: the library can't encode one, because of the tokenizer's file.
        """

    def encode_controlled(self, texts: Sequence[bytes], controls: Sequence[str]) -> list[ControlledIds]:
        """Ids of each text. What stands around control tokens is encoded by itself, and must be encodable.

        Args:
            texts: in UTF-8.
            controls: the names, of `special_ids`, that are tokens of their own in the texts.
        Raises:
            InputError: see `encode`.
        """
        by_name = re.compile(f"({'|'.join(map(re.escape, controls))})")
        found = []
        for text in texts:
            parts = by_name.split(text.decode())
            runs = self.encode(parts[::2])
            before = np.cumsum(runs.lengths[:-1], dtype=np.int64)
            ids = np.insert(runs.ids, before, [self.special_ids[control] for control in parts[1::2]])
            found.append(ControlledIds(ids, before + np.arange(len(before)), runs.losses))
        return found

    @abstractmethod
    def decode(self, ids: NDArray[np.int32]) -> str:
        """A text of ids, for people: that of a part of a character is a replacement character."""

    @abstractmethod
    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        """Whether there is an id among them that only a builder may write."""

    def can_encode(self, text: str) -> bool:
        """Whether the library survives the text."""
        return True

    def oracle_ids(self, text: str) -> NDArray[np.int32] | None:
        """Ids by a second library, that the first is held against; None where there is none."""
        return None


Sha256 = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]


class FileTokenizerRecipe(RecipeSection):
    """Which tokenizer: `sha256` of its file, and the token, or piece, that closes a document."""

    family: Literal["hf_tokenizer", "sentencepiece"]
    sha256: Sha256
    end_of_document: str


def read_pinned(path: Path, sha256: str, fix: str) -> bytes:
    """The bytes of a tokenizer file.

    Args:
        fix: what to do where there is none.
    Raises:
        InputError: it can't be read, or its hash is not the pinned one (names both).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the tokenizer file can't be read ({error.strerror})", path, fix) from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        cure = "restore the file, or pin the hash of the one you mean"
        raise InputError(f"sha256 is {actual}, pinned {sha256}", path, cure)
    return data
