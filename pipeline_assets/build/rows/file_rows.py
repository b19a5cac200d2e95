"""Rows in JSON lines or Parquet files, read by a schema of their columns."""

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from pipeline_assets.build.rows.row_values import ComparableRow, Fate, Part, Row
from pipeline_assets.build.rows.source_listing import TextSource
from pipeline_assets.build.rows.store import RowStore, UpstreamRow
from pipeline_assets.build.rows.table_shard import TableShard
from pipeline_assets.corpus.formats.jsonl_rows import read_line
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.formats.parquet_rows import find_row, read_row
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage

_BATCH_ROWS = 256  # of Parquet files; some rows have megabytes


@dataclass(frozen=True)
class RowSchema:
    """Schema of row files: their format, and the column of each property of a row.

    Names of nested columns are dotted.
    """

    path_prefix: str  # prefix of the files' paths
    struct: type[msgspec.Struct] | None  # class of the record in a JSON line; None for Parquet files
    key_columns: tuple[str, ...]  # columns that together identify a row; the last one is the id
    source_column: str  # column with the source or split of a row
    text_column: str
    file_column: str  # column with the source file of a row
    row_column: str  # column with the position of a row in its source file
    other_columns: tuple[str, ...] = ()  # columns that are compared in addition to the text
    tokens_column: str | None = None  # column with the number of tokens of a row

    @property
    def id_column(self) -> str:
        return self.key_columns[-1]

    def read(self, path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the values of `columns` for each row of a file, in order."""
        if self.struct is not None:
            getters = [operator.attrgetter(name) for name in columns]
            for line in read_structs(path, _column_struct(self.struct, tuple(columns))):
                yield tuple(get(line) for get in getters)
            return
        with StoredParquet(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    def find(self, path: Path, values: Mapping[str, Any]) -> int | None:
        """Return the row number of the first row whose columns have `values`, or None."""
        if self.struct is None:
            return find_row(path, values)
        expected = tuple(values.values())
        return next((row for row, actual in enumerate(self.read(path, [*values])) if actual == expected), None)

    def record_at(self, path: Path, row: int) -> Any:
        """Read one row as `struct`, or as a dictionary if the file is Parquet."""
        return read_row(path, row) if self.struct is None else read_line(path, row, self.struct)

    def read_columns(self, record: Any, *columns: str) -> tuple[Any, ...]:
        get = operator.itemgetter if self.struct is None else operator.attrgetter
        return tuple(get(name)(record) for name in columns)


@functools.cache
def _column_struct(struct: type[msgspec.Struct], columns: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a struct with only `columns`, which decodes several times faster."""
    fields = []
    for field in msgspec.structs.fields(struct):
        inner = [name.removeprefix(f"{field.name}.") for name in columns if name.startswith(f"{field.name}.")]
        if inner or field.name in columns:
            default: Any = {"default": field.default, "default_factory": field.default_factory}
            column_type = _column_struct(field.type, tuple(inner)) if inner else field.type
            fields.append((field.name, column_type, msgspec.field(**default)))
    return msgspec.defstruct(struct.__name__, fields, kw_only=True)


class FileRows(RowStore):
    """Rows in files of an artifact; `rows_by_file` maps paths to row counts, in order."""

    schema: ClassVar[RowSchema]
    repeats_rows: ClassVar[bool] = False  # a row may be in several folders, at most once in each

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        super().__init__(artifact, lineage)
        files = artifact.manifest.identity.files
        self.rows_by_file = {file.path: file.rows for file in files if file.path.startswith(self.schema.path_prefix)}

    def __len__(self) -> int:
        return sum(self.rows_by_file.values())

    def read(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of `columns` for each row of the artifact, in order."""
        return chain.from_iterable(self.schema.read(self.artifact.path(name), columns) for name in self.rows_by_file)

    def __iter__(self) -> Iterator[ComparableRow]:
        keys = len(self.schema.key_columns)
        columns = [*self.schema.key_columns, self.schema.text_column, *self.schema.other_columns]
        for name in self.rows_by_file:
            folder = [name.rpartition("/")[0]] if self.repeats_rows else []
            for values in self.schema.read(self.artifact.path(name), columns):
                row_id = "\0".join([*folder, *(value or "" for value in values[:keys])])  # pools may lack splits
                yield ComparableRow(row_id, values[keys].encode(), msgspec.json.encode(values[keys + 1 :]))

    def row_at(self, row_number: int) -> Row:
        schema, (name, row) = self.schema, self.locate_row(row_number)
        record = schema.record_at(self.artifact.path(name), row)
        row_id, source, text = schema.read_columns(record, schema.id_column, schema.source_column, schema.text_column)
        tokens = None if schema.tokens_column is None else record[schema.tokens_column]
        return Row(row_number, (Part(row_id, source, name, row, text, tokens=tokens, record=record),))

    def find(self, row_id: str) -> list[int]:
        """Return a list with the number of the first row with this id, or an empty list."""
        place = self.find_place({self.schema.id_column: row_id})
        return [] if place is None else [self.row_number(*place)]

    def find_by_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        place = self.find_place({self.schema.file_column: file, self.schema.row_column: source_row})
        return None if place is None else (self.row_number(*place), False)

    def find_place(self, values: Mapping[str, Any], files: Iterable[str] | None = None) -> tuple[str, int] | None:
        """Return (file, row) of the first row whose columns have `values`, or None."""
        for name in self.rows_by_file if files is None else files:
            row = self.schema.find(self.artifact.path(name), values)
            if row is not None:
                return name, row
        return None

    def origin(self, part: Part) -> UpstreamRow | TextSource:
        file, row = self.source_place(part)
        return self.listing(part.source).text_source(file, [row], "not stated", "recipe")

    def source_place(self, part: Part) -> tuple[str, int]:
        """Return the name of a part's source file, and the row in this file."""
        file, row = self.schema.read_columns(part.record, self.schema.file_column, self.schema.row_column)
        return file, row

    def table_shards(self) -> list[TableShard]:
        return [TableShard(self.artifact.path(name)) for name in self.rows_by_file]

    def locate_row(self, row_number: int) -> tuple[str, int]:
        """Convert a row number of the artifact to a file and the row in it."""
        self.check_range("row", row_number, len(self))
        for name, rows in self.rows_by_file.items():
            if row_number < rows:
                return name, row_number
            row_number -= rows
        raise AssertionError("the range was checked")

    def row_number(self, file: str, row: int) -> int:
        """Convert a file's row to a row of the artifact; InputError for an unknown file."""
        if file not in self.rows_by_file:
            what = f"{file} not found, but a downstream artifact refers to it"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on both")
        names = [*self.rows_by_file]
        return sum(self.rows_by_file[name] for name in names[: names.index(file)]) + row

    def upstream_row(self, part: Part) -> UpstreamRow:
        """Return the row of this artifact from which a downstream part came."""
        return UpstreamRow(self, self.row_number(part.shard, part.shard_row))

    def upstream_row_for_source(self, file: str, source_row: int) -> UpstreamRow:
        """Return the artifact's row that came from a source row; such a row must exist."""
        match = self.find_by_source(file, source_row)
        assert match is not None, "the downstream part came from a row of this artifact"
        return UpstreamRow(self, match[0])

    def fate_at(
        self, file: str, row: int, lines: Sequence[str], facts: Mapping[str, Any] | None = None, outcome: str = "kept"
    ) -> Fate:
        """Build a `Fate` from the arguments; its position is row `row` of `file`."""
        place, number = {"shard": file, "shard_row": row}, self.row_number(file, row)
        return Fate(self.artifact, outcome, place=place, row_number=number, facts=facts or {}, lines=lines)
