"""Files of a translation set, read as rows with two sides.

A set is Parquet or JSON lines with a column `translation`, whose values map languages to texts.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import pyarrow as pa
import pydantic

from pipeline_assets.corpus.parallel_text.pairs import Languages
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.json_lines import json_rows
from pipeline_assets.corpus.readers.lines import piece_lines
from pipeline_assets.corpus.readers.local_parquet import parquet_rows, read_local_footer, row_group_runs
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.key_types import Commit, Patterns
from pipeline_assets.spine.section import RecipeSection

TRANSLATION_COLUMN, _HEAD_ROWS, _RUN_BYTES = "translation", 100, 1 << 23
Rows = Iterator[tuple[int, dict[str, Any] | Fault]]


class PairSource(RecipeSection):
    """Translation set: a hub dataset at a commit, or a folder with the same layout.

    Attributes:
        dataset: Hub dataset; None for a folder.
        revision: Commit of the hub dataset; None for a folder.
        path: Folder, absolute or relative to the data root; None for a hub dataset.
        splits: Splits of the set, in reading order.
        files: Patterns of file paths, in which `{split}` is replaced by each split.
    """

    dataset: str | None = None
    revision: Commit | None = None
    path: str | None = None
    splits: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)] = ("train", "validation")
    files: Patterns

    @pydantic.field_validator("splits")
    @classmethod
    def _check_splits(cls, splits: tuple[str, ...]) -> tuple[str, ...]:
        if len({*splits}) < len(splits):
            raise ValueError("a split is repeated; name each split once")
        return splits

    @pydantic.model_validator(mode="after")
    def _check_location(self) -> Self:
        on_hub = self.dataset is not None and self.revision is not None
        if on_hub == (self.path is not None):
            raise ValueError("the set must have one location; set `dataset` and `revision`, or `path`")
        return self

    def patterns(self) -> tuple[str, ...]:
        """Return the file patterns of each split, in the order of `splits`."""
        return tuple(pattern.replace("{split}", split) for split in self.splits for pattern in self.files)

    def file_selection(self) -> dict[str, Any]:
        """Return the values that determine which files are read."""
        hub = {} if self.path is not None else {"dataset": self.dataset, "revision": self.revision}
        return {**hub, "files": list(self.patterns())}


@dataclass(frozen=True)
class TranslationFile:
    """File of a translation set: its path in the set, and a function that fetches it."""

    name: str
    fetch: Callable[[], Path]


class TranslationRow(NamedTuple):
    """Texts of a row, None if missing, and its unchecked weight."""

    src: Any
    tgt: Any
    weight: Any


def read_translation_rows(
    file: TranslationFile, languages: Languages, weight_column: str | None = None
) -> Iterator[tuple[int, TranslationRow | Fault]]:
    """Yield the position of each row of a file, and the row or its fault.

    In a Parquet file, a position is the row's number; in JSON lines, the number of uncompressed bytes before the row.

    Raises:
        UsageError: A column or a language is missing from the schema of a Parquet file, or from the first 100 rows of a
            JSON lines file.
        InputError: A file is missing, a Parquet file is damaged, or the first 100 rows of a JSON lines file are all
            faulty.
    """
    if not (path := Path(file.fetch())).is_file():
        raise InputError("file not found", path, f"correct the path of {file.name}")
    source = SourceFile(path, file.name, path.stat().st_size)
    rows, columns, codes = _read_parquet(source) if file.name.endswith(".parquet") else _read_json_lines(source)
    missing = [code for code in (languages.src, languages.tgt) if code not in codes]
    if not columns or not (missing or weight_column not in (None, *columns)):  # an empty file lacks nothing
        return ((position, _to_row(row, languages, weight_column)) for position, row in rows)
    if not codes and TRANSLATION_COLUMN in columns:
        what = f"values of column `{TRANSLATION_COLUMN}` are not objects with a text for each language"
        raise UsageError(what, source.name, "convert them, or choose another set or file")
    what, present = f"column `{weight_column}` of row weights not found", columns
    fix = "choose one of these, or another set or file"
    if not codes:
        what = f"column `{TRANSLATION_COLUMN}` of texts by language not found"
        example = f'{{"{TRANSLATION_COLUMN}": {{"{languages.src}": "…", "{languages.tgt}": "…"}}}}'
        fix = f"write rows such as {example}, or choose another set or file"
    elif missing:
        what, present = f"language {' and '.join(missing)} not found in its translations", codes
    raise UsageError(f"{what} (present: {', '.join(sorted(present))})", source.name, fix)


def _to_row(row: dict[str, Any] | Fault, languages: Languages, weight_column: str | None) -> TranslationRow | Fault:
    if isinstance(row, Fault):
        return row
    sides = row.get(TRANSLATION_COLUMN) or {}
    if not isinstance(sides, dict):
        return Fault("wrong_type", f"its translation is {type(sides).__name__}")
    src, tgt = sides.get(languages.src), sides.get(languages.tgt)
    for code, text in ((languages.src, src), (languages.tgt, tgt)):
        if text is not None and not isinstance(text, str):
            return Fault("wrong_type", f"its {code} is {type(text).__name__}")
    return TranslationRow(src, tgt, row.get(weight_column or ""))


def _read_parquet(file: SourceFile) -> tuple[Rows, set[str], set[str]]:
    """Return a Parquet file's rows, and the columns and languages in its schema."""
    schema = read_local_footer(file).schema.to_arrow_schema()
    sides = schema.field(TRANSLATION_COLUMN).type if TRANSLATION_COLUMN in schema.names else pa.null()
    codes = {field.name for field in sides} if pa.types.is_struct(sides) else set[str]()
    rows = itertools.chain.from_iterable(map(parquet_rows, row_group_runs(file, None, _RUN_BYTES)))
    return rows, set(schema.names), codes


def _read_json_lines(file: SourceFile) -> tuple[Rows, set[str], set[str]]:
    """Return a file's rows, and the columns and languages in its first 100 rows."""
    rows = json_rows(ByteRange(file), piece_lines(ByteRange(file)))
    first = list(itertools.islice(rows, _HEAD_ROWS))
    objects = [row for _, row in first if isinstance(row, dict)]
    if first and not objects:
        [fault, *_] = [row for _, row in first if isinstance(row, Fault)]
        what = f"none of the first rows can be read; the first: {fault.reason} ({fault.detail})"
        raise InputError(what, file.name, "check the file, or remove it")
    translations = [row[TRANSLATION_COLUMN] for row in objects if isinstance(row.get(TRANSLATION_COLUMN), dict)]
    return itertools.chain(first, rows), set().union(*objects), set().union(*translations)
