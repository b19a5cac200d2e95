"""Sentence pairs: what one is, which are equal, which are left out; and the rows of the translation set they come from.

Text is compared, measured and tokenised in one form, `canonical`: NFKC (Unicode Standard Annex 15) without blanks
around it. What is kept is the text as it came.

A set has a column `translation`, which holds {language: text}, in Parquet or JSON lines. A file is a sequence of
blocks, each of which knows how many rows it has before one of them is decoded: rows that nobody wants are passed over
at the cost of counting lines, or of reading a footer.
"""

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa
import pydantic

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.lines import line_blocks, read_row, refuse_document
from pipeline_assets.corpus.readers.parquet import RowGroupRun, parquet_rows, read_local_footer, row_group_runs
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, Option, RecipePart

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Code = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
_UID_DIGITS = 32
_LETTER = re.compile(r"[^\W_]")
TRANSLATION, _HEAD_ROWS, _RUN_BYTES = "translation", 100, 1 << 23
_FIX = "name what is there, or another set or file"


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


@dataclass(frozen=True)
class TranslationFile:
    """A file of a translation set: its path there, and where its bytes are, asked when they are read."""

    name: str
    local: Callable[[], Path]


class Sides(NamedTuple):
    """What a row has, of whatever type: two texts and a weight; None for what it lacks."""

    src: Any
    tgt: Any
    weight: Any


class _Lines:
    """JSON lines, the first of which begins at `first` of the file; blank ones are no rows. Of a line as it should be,
    which nearly all are, nothing is made but what is asked for.
    """

    def __init__(self, first: int, data: bytes, decode: Callable[[bytes], Any]) -> None:
        self._decode = decode
        text = np.frombuffer(data, np.uint8)
        starts = np.append(0, np.flatnonzero(text == ord("\n")) + 1)
        starts = starts[starts < len(text)]
        self._first, self._data, self._starts = first, data, starts.tolist()
        may_be_blank: list[int] = np.flatnonzero(text[starts] <= ord(" ")).tolist()
        if blank := [number for number in may_be_blank if self.line(number).isspace()]:
            self._starts = np.delete(starts, blank).tolist()
        self.rows = len(self._starts)

    def line(self, number: int) -> bytes:
        """Up to the newline, which may be missing in the last."""
        start = self._starts[number]
        return self._data[start : self._data.find(b"\n", start) + 1 or None]

    def row(self, number: int) -> Sides | dict[str, Any] | Fault:
        line = self.line(number)
        try:
            row = self._decode(line)
        except (ValueError, RecursionError):  # it isn't as it should be
            return read_row(line)
        return Sides(row.sides.src, row.sides.tgt, row.weight)

    def place(self, number: int) -> int:
        start: int = self._starts[number]
        return self._first + start


class _RowGroups:
    """Row groups of Parquet; rows are asked for in their order."""

    def __init__(self, run: RowGroupRun) -> None:
        self.rows, self._first, self._coming = run.rows, run.first_row, parquet_rows(run)

    def row(self, number: int) -> dict[str, Any] | Fault:
        return next(row for place, row in self._coming if place == self.place(number))

    def place(self, number: int) -> int:
        return self._first + number


class Rows:
    """Rows of a file, in order; some can be passed over unread. Raises InputError where it can't be read, UsageError
    where none of its first rows has a translation, the languages or the weight (names what is there).
    """

    def __init__(self, file: TranslationFile, languages: Languages, weight_column: str | None = None) -> None:
        path = file.local()
        source = SourceFile(path, file.name, path.stat().st_size)
        self._languages, self._weight_column = languages, weight_column
        read = self._parquet if file.name.endswith(".parquet") else self._lines
        self._blocks: Iterator[_Lines | _RowGroups] = read(source)
        self._block: _Lines | _RowGroups | None = None
        self._at = 0
        self._next_block()

    def __iter__(self) -> Iterator[Sides | Fault]:
        return self

    def __next__(self) -> Sides | Fault:
        if self._block is not None and self._at == self._block.rows:
            self._next_block()
        if self._block is None:
            raise StopIteration
        row = self._block.row(self._at)
        self._at += 1
        if isinstance(row, Sides | Fault):
            return row
        sides = row.get(TRANSLATION) or {}
        if not isinstance(sides, dict):
            return Fault("wrong_type", f"its translation is {type(sides).__name__}")
        weight = None if self._weight_column is None else row.get(self._weight_column)
        return Sides(sides.get(self._languages.src), sides.get(self._languages.tgt), weight)

    def skip(self, rows: int) -> int:
        """Passes over so many rows; how many of them there were."""
        left = rows
        while self._block is not None and left > self._block.rows - self._at:
            left -= self._block.rows - self._at
            self._next_block()
        if self._block is not None:
            self._at, left = self._at + left, 0
        return rows - left

    @property
    def place(self) -> int:
        """Of the row that came last: its number in a Parquet file, in others the bytes before it, uncompressed."""
        assert self._block is not None
        return self._block.place(self._at - 1)

    def _next_block(self) -> None:
        self._at, self._block = 0, next((block for block in self._blocks if block.rows), None)

    def _parquet(self, source: SourceFile) -> Iterator[_RowGroups]:
        schema = read_local_footer(source).schema.to_arrow_schema()
        sides = schema.field(TRANSLATION).type if TRANSLATION in schema.names else pa.null()
        codes = {field.name for field in sides} if pa.types.is_struct(sides) else set[str]()
        self._check(set(schema.names), codes, source.name)
        yield from map(_RowGroups, row_group_runs(source, None, _RUN_BYTES))

    def _lines(self, source: SourceFile) -> Iterator[_Lines]:
        decode = msgspec.json.Decoder(self._row_type()).decode
        blocks = (_Lines(first, block, decode) for first, block in line_blocks(source))
        for first in itertools.islice((block for block in blocks if block.rows), 1):
            read = [read_row(first.line(number)) for number in range(min(first.rows, _HEAD_ROWS))]
            head = [row for row in read if isinstance(row, dict)]
            if isinstance(read[0], Fault):
                refuse_document(first.line(0), source.name)
                if not head:
                    what = f"none of its first rows can be read; the first: {read[0].reason} ({read[0].detail})"
                    raise InputError(what, source.name, "look at the file, or leave it out")
            codes = {code for row in head if isinstance(row.get(TRANSLATION), dict) for code in row[TRANSLATION]}
            self._check({name for row in head for name in row}, codes, source.name)
            yield first
        yield from blocks

    def _row_type(self) -> type[msgspec.Struct]:
        """What of a line is read."""
        codes = {"src": self._languages.src, "tgt": self._languages.tgt}
        sides = msgspec.defstruct("_Sides", [("src", str), ("tgt", str)], rename=codes)
        if self._weight_column is None:
            return msgspec.defstruct(
                "_Row", [("sides", sides)], rename={"sides": TRANSLATION}, namespace={"weight": None}
            )
        names = {"sides": TRANSLATION, "weight": self._weight_column}
        return msgspec.defstruct("_Row", [("sides", sides), ("weight", Any, None)], rename=names)

    def _check(self, columns: set[str], codes: set[str], where: str) -> None:
        missing = [code for code in (self._languages.src, self._languages.tgt) if code not in codes]
        if not codes:
            what, there = f"there is no column `{TRANSLATION}` of texts by language", columns
        elif missing:
            what, there = f"its translations have no {' and no '.join(missing)}", codes
        elif self._weight_column not in (None, *columns):
            what, there = f"there is no column `{self._weight_column}` to weigh rows by", columns
        else:
            return
        raise UsageError(f"{what}; there is {', '.join(sorted(there)) or 'none'}", where, _FIX)
