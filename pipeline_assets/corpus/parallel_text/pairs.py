"""What a sentence pair is, which are equal, and which are left out.

Text is compared, measured and tokenised in one form, `canonical`: NFKC (Unicode Standard Annex 15) without blanks
around it. What is kept is the text as it came.
"""

import hashlib
import re
import unicodedata
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, Option, RecipePart

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Code = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
_UID_DIGITS = 32
_LETTER = re.compile(r"[^\W_]")


class Languages(RecipePart):
    """From which language to which, by the keys of the column `translation`."""

    src: Annotated[Code, Option("Language of the source side.")] = "fr"
    tgt: Annotated[Code, Option("Language of the target side.")] = "en"

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


class PairSource(RecipePart):
    """A translation set: of a hub at a commit, or a folder of files of the same layout.

    Attributes:
        path: the folder, absolute or below the data root; None of a hub.
        splits: of the set, in the order in which they are read.
        files: patterns of paths in it, in which `{split}` stands for each split in turn.
    """

    dataset: str | None = None
    revision: Annotated[str, pydantic.Field(pattern=COMMIT_PATTERN)] | None = None
    path: str | None = None
    splits: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)] = ("train", "validation")
    files: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.field_validator("splits")
    @classmethod
    def _are_different(cls, splits: tuple[str, ...]) -> tuple[str, ...]:
        if len({*splits}) < len(splits):
            raise ValueError("a split is there twice: name each once")
        return splits

    @pydantic.model_validator(mode="after")
    def _lies_somewhere(self) -> Self:
        on_hub = self.dataset is not None and self.revision is not None
        if on_hub == (self.path is not None):
            raise ValueError("give `dataset` and `revision` of a hub, or the `path` of a folder here")
        return self

    def patterns(self) -> tuple[str, ...]:
        """Of all splits, in order."""
        return tuple(pattern.replace("{split}", split) for split in self.splits for pattern in self.files)

    def content_of_files(self) -> dict[str, Any]:
        """What decides which files are read."""
        of_hub = {} if self.path is not None else {"dataset": self.dataset, "revision": self.revision}
        return {**of_hub, "files": list(self.patterns())}
