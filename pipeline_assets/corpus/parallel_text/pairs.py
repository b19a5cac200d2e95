"""What a sentence pair is, which are equal, and which are left out.

Text is compared, measured and tokenised in one form, `canonical`: NFKC (Unicode Standard Annex 15) without blanks
around it. What is kept is the text as it came.
"""

import hashlib
import re
import unicodedata
from typing import Annotated, Literal

import msgspec
import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.spine.recipe import Option, RecipePart

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Code = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
_UID_DIGITS = 32
_LETTER = re.compile(r"[^\W_]")
_LEAST_SLOTS, _MIX, _SHIFT = 1 << 10, np.uint64(0x9E3779B97F4A7C15), np.uint64(20)


class Languages(RecipePart):
    """From which language to which, by the keys of the column `translation`."""

    src: Annotated[Code, Option("Language of the source side.")]
    tgt: Annotated[Code, Option("Language of the target side.")]

    @pydantic.model_validator(mode="after")
    def _are_two(self) -> "Languages":
        if self.src == self.tgt:
            raise ValueError(f"both sides are {self.src}: name two languages")
        return self


class PairFilters(RecipePart):
    """What a pair must be, on both sides; characters are those of the canonical text.

    Attributes:
        letters: some letter or digit is there, of any script: not punctuation and symbols alone.
    """

    min_chars: Annotated[int, Option("Characters a side, at least.")] = pydantic.Field(default=2, ge=1)
    max_chars: Annotated[int, Option("Characters a side, at most.")] = pydantic.Field(default=256, ge=1)
    letters: bool = True

    def refuses(self, src: str, tgt: str) -> str | None:
        """The reason why a pair of canonical texts is left out; None where it isn't."""
        shorter, longer = (len(src), len(tgt)) if len(src) < len(tgt) else (len(tgt), len(src))
        if not shorter:
            return "empty"
        if shorter < self.min_chars:
            return "too_short"
        if longer > self.max_chars:
            return "too_long"
        return None if not self.letters or (_LETTER.search(src) and _LETTER.search(tgt)) else "only_punctuation"


class Pair(msgspec.Struct, frozen=True):
    """A row of a translation set.

    Attributes:
        uid: of languages and canonical texts, so equal pairs have one.
        src_text, tgt_text: as they came.
        file, row: where it stands: rows of a file count from 0, without blank lines.
    """

    uid: str
    src_text: str
    tgt_text: str
    file: str
    row: int


def canonical(text: str) -> str:
    """The text as it is hashed, measured and tokenised."""
    return unicodedata.normalize("NFKC", text).strip()


def pair_uid(languages: Languages, src: str, tgt: str) -> str:
    """The first 128 bits of the sha256 of the JSON list of both codes and both canonical texts, as hex digits."""
    told = msgspec.json.encode([languages.src, languages.tgt, src, tgt])
    return hashlib.sha256(told).hexdigest()[:_UID_DIGITS]


class SeenUids:
    """Which uids came before, by their first 64 bits: two pairs of a billion different ones are taken for equal with a
    chance of 1 in 37; of the 40 million of WMT14, 1 in 23,000. Memory: `stream_set_bytes`.
    """

    def __init__(self, rows: int = 0) -> None:
        self._slots = np.zeros(_slots_for(rows), np.uint64)
        self._held = 0

    def add(self, uid_bits: int) -> bool:
        """Whether this is the first time."""
        if 2 * (self._held + 1) > len(self._slots):
            former, self._slots = self._slots, np.zeros(2 * len(self._slots), np.uint64)
            _insert_all(self._slots, former)
        is_new = bool(_insert(self._slots, np.uint64(uid_bits or 1)))  # 0 is an empty slot
        self._held += is_new
        return is_new


def uid_bits(uid: str) -> int:
    """What `SeenUids` knows it by."""
    return int(uid[:16], 16)


def stream_set_bytes(rows: int) -> int:
    """Memory that a set of so many uids takes: 16 to 32 bytes a row; half more while it grows, if it wasn't told."""
    return 8 * _slots_for(rows)


def _slots_for(rows: int) -> int:
    return max(_LEAST_SLOTS, 1 << (2 * rows - 1).bit_length())


@compiled
def _insert(slots: NDArray[np.uint64], bits: np.uint64) -> bool:
    """Linear probing."""
    last = np.uint64(len(slots) - 1)
    place = ((bits * _MIX) >> _SHIFT) & last
    while slots[place] != 0:
        if slots[place] == bits:
            return False
        place = (place + np.uint64(1)) & last
    slots[place] = bits
    return True


@compiled
def _insert_all(slots: NDArray[np.uint64], former: NDArray[np.uint64]) -> None:
    for bits in former:
        if bits != 0:
            _insert(slots, bits)
