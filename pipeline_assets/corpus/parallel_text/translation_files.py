"""Files of a translation set, read as rows with two sides."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import pyarrow as pa
import pydantic

from pipeline_assets.corpus.parallel_text.pairs import Languages
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.json_lines import json_rows
from pipeline_assets.corpus.readers.lines import lines
from pipeline_assets.corpus.readers.local_parquet import parquet_rows, read_local_footer, row_group_runs
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.section import COMMIT_PATTERN, RecipeSection

TRANSLATION, _HEAD_ROWS, _RUN_BYTES = "translation", 100, 1 << 23
Rows = Iterator[tuple[int, dict[str, Any] | Fault]]
_FIX = "name what is there, or another set or file"


class PairSource(RecipeSection):
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
    def _has_location(self) -> Self:
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
    """Texts and weight of a row, of whatever type; None for what it lacks."""

    src: Any
    tgt: Any
    weight: Any


def read_pairs(
    file: TranslationFile, languages: Languages, weight_column: str | None = None
) -> Iterator[tuple[int, Sides | Fault]]:
    """Read the place and the sides of each row of a file, or why a row cannot be read.

    A place is the row's number in a Parquet file, in others the bytes before it, uncompressed.

    Raises:
        InputError: The file cannot be read.
        UsageError: Translations, a language or the weights are missing in its schema, or in all of its first rows.
    """
    path = file.local()
    source = SourceFile(path, file.name, path.stat().st_size)
    rows, columns, codes = _parquet(source) if file.name.endswith(".parquet") else _json_lines(source)
    missing = [code for code in (languages.src, languages.tgt) if code not in codes]
    if not columns or not (missing or weight_column not in (None, *columns)):  # an empty file lacks nothing
        return ((place, _sides(row, languages, weight_column)) for place, row in rows)
    what, there = f"there is no column `{weight_column}` to weigh rows by", columns
    if not codes:
        what = f"there is no column `{TRANSLATION}` of texts by language"
    elif missing:
        what, there = f"its translations have no {' and no '.join(missing)}", codes
    raise UsageError(f"{what}; there is {', '.join(sorted(there))}", source.name, _FIX)


def _sides(row: dict[str, Any] | Fault, languages: Languages, weight_column: str | None) -> Sides | Fault:
    if isinstance(row, Fault):
        return row
    sides = row.get(TRANSLATION) or {}
    if not isinstance(sides, dict):
        return Fault("wrong_type", f"its translation is {type(sides).__name__}")
    return Sides(sides.get(languages.src), sides.get(languages.tgt), row.get(weight_column or ""))


def _parquet(source: SourceFile) -> tuple[Rows, set[str], set[str]]:
    """Return the rows of a Parquet file, its columns, and the languages of its translations."""
    schema = read_local_footer(source).schema.to_arrow_schema()
    sides = schema.field(TRANSLATION).type if TRANSLATION in schema.names else pa.null()
    codes = {field.name for field in sides} if pa.types.is_struct(sides) else set[str]()
    rows = itertools.chain.from_iterable(map(parquet_rows, row_group_runs(source, None, _RUN_BYTES)))
    return rows, set(schema.names), codes


def _json_lines(source: SourceFile) -> tuple[Rows, set[str], set[str]]:
    """Return the rows of a file of JSON lines, and the columns and languages of the first ones."""
    rows = json_rows(ByteRange(source), lines(ByteRange(source)))
    first = list(itertools.islice(rows, _HEAD_ROWS))
    objects = [row for _, row in first if isinstance(row, dict)]
    if first and not objects:
        [fault, *_] = [row for _, row in first if isinstance(row, Fault)]
        what = f"none of its first rows can be read; the first: {fault.reason} ({fault.detail})"
        raise InputError(what, source.name, "look at the file, or leave it out")
    translations = [row[TRANSLATION] for row in objects if isinstance(row.get(TRANSLATION), dict)]
    return itertools.chain(first, rows), set().union(*objects), set().union(*translations)
