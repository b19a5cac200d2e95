"""Rows that lie in files of an artifact, JSON lines or Parquet: a schema says which of their columns are what."""

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from pipeline_assets.build.rows.store import (
    Content,
    Fate,
    Part,
    Row,
    RowStore,
    Source,
    TableShard,
    UpstreamRow,
    source_in,
)
from pipeline_assets.corpus.formats.jsonl_zst import read_line, read_structs
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.formats.parquet_rows import find_in_file, row_of_file
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage

S = TypeVar("S", bound=msgspec.Struct)
_BATCH_ROWS = 256  # of Parquet files; some rows have megabytes


@dataclass(frozen=True)
class RowSchema:
    """Columns of rows, and how their files are read. Of a nested column the name is dotted.

    Attributes:
        folder: What the paths of the files begin with.
        struct: Record of a JSON line; None for Parquet files.
        key: Columns that identify a row together; the last one is its id.
        source, text: Columns of each part.
        file, row: Columns of the source's file that a row came from, and of the row in it.
        labels: Columns that are compared besides the text.
        tokens: Column of the number of tokens; None if nobody counted them.
    """

    folder: str
    struct: type[msgspec.Struct] | None
    key: tuple[str, ...]
    source: str
    text: str
    file: str
    row: str
    labels: tuple[str, ...] = ()
    tokens: str | None = None

    @property
    def id(self) -> str:
        """Column of the ids."""
        return self.key[-1]

    def read(self, path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Columns of each row of a file, in order."""
        if self.struct is not None:
            getters = [operator.attrgetter(name) for name in columns]
            for line in read_structs(path, _file_part(self.struct, tuple(columns))):
                yield tuple(get(line) for get in getters)
            return
        with open_parquet(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    def find(self, path: Path, values: Mapping[str, Any]) -> int | None:
        """The first row of a file that has these values, by column; None where none has."""
        if self.struct is None:
            return find_in_file(path, values)
        wanted = tuple(values.values())
        return next((row for row, found in enumerate(self.read(path, [*values])) if found == wanted), None)

    def record_at(self, path: Path, row: int) -> Any:
        """The record of a row, read alone. Raises InputError where the file is shorter, or damaged."""
        return row_of_file(path, row) if self.struct is None else read_line(path, row, self.struct)

    def read_columns(self, record: Any, *columns: str) -> tuple[Any, ...]:
        """Columns of a record."""
        get = operator.itemgetter if self.struct is None else operator.attrgetter
        return tuple(get(name)(record) for name in columns)


@functools.cache
def _file_part(struct: type[msgspec.Struct], columns: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a struct of some columns: the others are skipped, which is several times as fast."""
    fields = []
    for field in msgspec.structs.fields(struct):
        inner = [name.removeprefix(f"{field.name}.") for name in columns if name.startswith(f"{field.name}.")]
        if inner or field.name in columns:
            default: Any = {"default": field.default, "default_factory": field.default_factory}
            fields.append(
                (field.name, _file_part(field.type, tuple(inner)) if inner else field.type, msgspec.field(**default))
            )
    return msgspec.defstruct(struct.__name__, fields, kw_only=True)


class FileRows(RowStore):
    """Rows in files of the artifact, whose counts of rows are `files`, in manifest order."""

    schema: ClassVar[RowSchema]

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        super().__init__(artifact, lineage)
        files = artifact.manifest.identity.files
        self.files = {file.path: file.rows for file in files if file.path.startswith(self.schema.folder)}

    def __len__(self) -> int:
        return sum(self.files.values())

    def read(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Columns of each row, in order."""
        return itertools.chain.from_iterable(self.schema.read(self.artifact.path(name), columns) for name in self.files)

    def __iter__(self) -> Iterator[Content]:
        keys = len(self.schema.key)
        for values in self.read(*self.schema.key, self.schema.text, *self.schema.labels):
            yield Content("\0".join(values[:keys]), values[keys].encode(), msgspec.json.encode(values[keys + 1 :]))

    def row_at(self, number: int) -> Row:
        name, row = self.locate_row(number)
        record = self.schema.record_at(self.artifact.path(name), row)
        row_id, source, text = self.schema.read_columns(record, self.schema.id, self.schema.source, self.schema.text)
        tokens = None if self.schema.tokens is None else record[self.schema.tokens]
        return Row(number, (Part(row_id, source, name, row, text, tokens=tokens, record=record),))

    def find(self, row_id: str) -> list[int]:
        """The first of several: an id may be one of its source."""
        found = self.find_place({self.schema.id: row_id})
        return [] if found is None else [self.row_number(*found)]

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        found = self.find_place({self.schema.file: file, self.schema.row: source_row})
        return None if found is None else (self.row_number(*found), False)

    def find_place(self, values: Mapping[str, Any], files: Iterable[str] | None = None) -> tuple[str, int] | None:
        """(file, row in it) of the first row that has these values, in these files or any; None where none has."""
        for name in self.files if files is None else files:
            row = self.schema.find(self.artifact.path(name), values)
            if row is not None:
                return name, row
        return None

    def origin(self, part: Part) -> UpstreamRow | Source:
        """Of rows that were read from files; no licence is known of them."""
        file, row = self.source_place(part)
        return source_in(self.listing(part.source), file, [row], "not stated", "recipe")

    def source_place(self, part: Part) -> tuple[str, int]:
        """(file, row in it) of the source that a part came from."""
        file, row = self.schema.read_columns(part.record, self.schema.file, self.schema.row)
        return file, row

    def table_shards(self) -> list[TableShard]:
        return [TableShard(self.artifact.path(name)) for name in self.files]

    def locate_row(self, number: int) -> tuple[str, int]:
        """(file, row in it) of a row. Raises UsageError where there is no such row."""
        self.check_range("row", number, len(self))
        for name, rows in self.files.items():
            if number < rows:
                return name, number
            number -= rows
        raise AssertionError("the range was checked")

    def row_number(self, file: str, row: int) -> int:
        """The number of a row of one file. Raises InputError where there is no such file."""
        if file not in self.files:
            what = f"it has no {file}, which something was made from"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it, and on what was made from it")
        names = [*self.files]
        return sum(self.files[name] for name in names[: names.index(file)]) + row

    def upstream_row(self, part: Part) -> UpstreamRow:
        """The line that a part of what was made of this names. Raises as `number_of`."""
        return UpstreamRow(self, self.row_number(part.shard, part.shard_row))

    def upstream_row_for_source(self, file: str, source_row: int) -> UpstreamRow:
        """The line of a row of a source, from which something was made by way of this."""
        found = self.find_source(file, source_row)
        assert found is not None, "the part was made from one here"
        return UpstreamRow(self, found[0])

    def fate_at(
        self, file: str, row: int, lines: Sequence[str], told: Mapping[str, Any] | None = None, outcome: str = "kept"
    ) -> Fate:
        """The fate of what lies in a row of a file."""
        place, number = {"shard": file, "shard_row": row}, self.row_number(file, row)
        return Fate(self.artifact, outcome, place=place, row=number, details=told or {}, lines=lines)
