"""Sentence pairs: what one is, which are equal, which are left out; and the rows of the translation set they come from.

Text is compared, measured and tokenised in one form, `canonical`: NFKC (Unicode Standard Annex 15) without blanks
around it. What is kept is the text as it came.

A set has a column `translation`, which holds {language: text}, in Parquet or JSON lines.
"""

import hashlib
import re
import unicodedata
from typing import Annotated, Literal

import msgspec
import pydantic

from pipeline_assets.spine.section import Option, RecipeSection

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Code = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
_UID_DIGITS = 32
_LETTER = re.compile(r"[^\W_]")


class Languages(RecipeSection):
    """From which language to which, by the keys of the column `translation`."""

    src: Annotated[Code, Option("Language of the source side.")] = "fr"
    tgt: Annotated[Code, Option("Language of the target side.")] = "en"

    @pydantic.model_validator(mode="after")
    def _are_two(self) -> "Languages":
        if self.src == self.tgt:
            raise ValueError(f"both sides are {self.src}: name two languages")
        return self


class PairFilters(RecipeSection):
    """What a pair must be, on both sides; characters are those of the canonical text.

    Attributes:
        letters: some letter or digit is there, of any script: not punctuation and symbols alone.
    """

    min_chars: Annotated[int, Option("Characters a side, at least.")] = pydantic.Field(default=2, ge=1)
    max_chars: Annotated[int, Option("Characters a side, at most.")] = pydantic.Field(default=256, ge=1)
    letters: bool = True

    def rejection_reason(self, src: str, tgt: str) -> str | None:
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
        file, row: where it stands: its number in a Parquet file, in others the bytes before it, uncompressed.
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
