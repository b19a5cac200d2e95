"""Sentence pairs: their canonical text, identity and filters.

Texts are compared, measured and tokenized in canonical form: NFKC (Unicode Standard Annex 15) without surrounding
whitespace. Samples store the original texts.
"""

import hashlib
import re
import unicodedata
from typing import Annotated, Literal

import msgspec
import pydantic

from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import pattern_rule
from pipeline_assets.spine.section import RecipeSection

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
LanguageCode = Annotated[str, pattern_rule("[A-Za-z][A-Za-z0-9_-]*", "must be a language code, such as fr or zh-CN")]
_ALNUM = re.compile(r"[^\W_]")


class Languages(RecipeSection):
    """Source and target language, as keys of the column `translation`."""

    src: Annotated[LanguageCode, Option("Language of the source side.")] = "fr"
    tgt: Annotated[LanguageCode, Option("Language of the target side.")] = "en"

    @pydantic.model_validator(mode="after")
    def _check_languages_differ(self) -> "Languages":
        if self.src == self.tgt:
            raise ValueError(f"src and tgt must be two languages, got {self.src} for both")
        return self


class PairFilters(RecipeSection):
    """Filters for both sides of a pair; characters are counted in canonical text.

    Attributes:
        letters: Whether each side needs a letter or digit of any script.
    """

    min_chars: Annotated[int, Option("Minimum characters per side.")] = pydantic.Field(default=2, ge=1)
    max_chars: Annotated[int, Option("Maximum characters per side.")] = pydantic.Field(default=256, ge=1)
    letters: bool = True

    def drop_reason(self, src: str, tgt: str) -> str | None:
        """Return the reason code for dropping a pair of canonical texts; None to keep it."""
        shorter, longer = (len(src), len(tgt)) if len(src) < len(tgt) else (len(tgt), len(src))
        if not shorter:
            return "empty"
        if shorter < self.min_chars:
            return "too_short"
        if longer > self.max_chars:
            return "too_long"
        return None if not self.letters or (_ALNUM.search(src) and _ALNUM.search(tgt)) else "only_punctuation"


class Pair(msgspec.Struct, frozen=True):
    """Sentence pair: a row of a translation set, with its original texts."""

    uid: str  # hash of languages and canonical texts (`pair_uid`)
    src_text: str
    tgt_text: str
    file: str  # path in the set
    row: int  # number of the row in a Parquet file; in other files, the number of uncompressed bytes before it


def canonical_text(text: str) -> str:
    """Return the NFKC form of a text, without surrounding whitespace."""
    return unicodedata.normalize("NFKC", text).strip()


def pair_uid(languages: Languages, src: str, tgt: str) -> str:
    """Compute the uid of a pair of canonical texts.

    The uid is the first 128 bits, in hex, of the sha256 of a JSON list: both language codes, then both texts.
    """
    data = msgspec.json.encode([languages.src, languages.tgt, src, tgt])
    return hashlib.sha256(data).hexdigest()[:32]
