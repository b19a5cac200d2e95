"""Rows in JSON lines or Parquet files, read by a schema of their columns."""

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from pipeline_assets.build.rows.store import Content, Fate, Part, Row, RowStore, Source, UpstreamRow, source_in
from pipeline_assets.build.rows.table_shard import TableShard
from pipeline_assets.corpus.formats.jsonl_zst import read_line, read_structs
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.formats.parquet_rows import find_row, read_row
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage

S = TypeVar("S", bound=msgspec.Struct)
_BATCH_ROWS = 256  # of Parquet files; some rows have megabytes


@dataclass(frozen=True)
class RowSchema:
    """Columns of rows and format of their files; nested columns have dotted names.

    Attributes:
        folder: Prefix of the paths of the files.
        struct: Record of a JSON line; None for Parquet files.
        key: Columns that together identify a row; the last one is its id.
        source, text: Columns of each part.
        file, row: Columns of the source file, and of the row in it, that a row came from.
        labels: Columns that are compared in addition to the text.
        tokens: Column of the number of tokens; None if they are not counted.
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
        """Yield columns of each row of a file, in order."""
        if self.struct is not None:
            getters = [operator.attrgetter(name) for name in columns]
            for line in read_structs(path, _file_part(self.struct, tuple(columns))):
                yield tuple(get(line) for get in getters)
            return
        with open_parquet(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    def find(self, path: Path, values: Mapping[str, Any]) -> int | None:
        """Find the first row of a file with these values by column; None if none does."""
        if self.struct is None:
            return find_row(path, values)
        expected = tuple(values.values())
        return next((row for row, actual in enumerate(self.read(path, [*values])) if actual == expected), None)

    def record_at(self, path: Path, row: int) -> Any:
        """Return the record of one row, or raise InputError for a damaged file."""
        return read_row(path, row) if self.struct is None else read_line(path, row, self.struct)

    def read_columns(self, record: Any, *columns: str) -> tuple[Any, ...]:
        """Return columns of a record."""
        get = operator.itemgetter if self.struct is None else operator.attrgetter
        return tuple(get(name)(record) for name in columns)


@functools.cache
def _file_part(struct: type[msgspec.Struct], columns: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a struct of some columns, which reads several times as fast as all."""
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
    """Rows in files of an artifact.

    Attributes:
        files: Row count of each file, in manifest order.
    """

    schema: ClassVar[RowSchema]

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        super().__init__(artifact, lineage)
        files = artifact.manifest.identity.files
        self.files = {file.path: file.rows for file in files if file.path.startswith(self.schema.folder)}

    def __len__(self) -> int:
        return sum(self.files.values())

    def read(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield columns of each row, in order."""
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
        """Return the first row with an id, which may be unique only within its source."""
        place = self.find_place({self.schema.id: row_id})
        return [] if place is None else [self.row_number(*place)]

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        place = self.find_place({self.schema.file: file, self.schema.row: source_row})
        return None if place is None else (self.row_number(*place), False)

    def find_place(self, values: Mapping[str, Any], files: Iterable[str] | None = None) -> tuple[str, int] | None:
        """Find the file, and the row in it, of the first row with these values."""
        for name in self.files if files is None else files:
            row = self.schema.find(self.artifact.path(name), values)
            if row is not None:
                return name, row
        return None

    def origin(self, part: Part) -> UpstreamRow | Source:
        """Return the source of a row that was read from a file; its licence is unknown."""
        file, row = self.source_place(part)
        return source_in(self.listing(part.source), file, [row], "not stated", "recipe")

    def source_place(self, part: Part) -> tuple[str, int]:
        """Return the source file, and the row in it, that a part came from."""
        file, row = self.schema.read_columns(part.record, self.schema.file, self.schema.row)
        return file, row

    def table_shards(self) -> list[TableShard]:
        return [TableShard(self.artifact.path(name)) for name in self.files]

    def locate_row(self, number: int) -> tuple[str, int]:
        """Return the file, and the row in it, of a row, or raise UsageError."""
        self.check_range("row", number, len(self))
        for name, rows in self.files.items():
            if number < rows:
                return name, number
            number -= rows
        raise AssertionError("the range was checked")

    def row_number(self, file: str, row: int) -> int:
        """Return the number of a row of one file, or raise InputError."""
        if file not in self.files:
            what = f"{file} not found, but a downstream artifact refers to it"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on both")
        names = [*self.files]
        return sum(self.files[name] for name in names[: names.index(file)]) + row

    def upstream_row(self, part: Part) -> UpstreamRow:
        """Return the row that a downstream part refers to, or raise InputError."""
        return UpstreamRow(self, self.row_number(part.shard, part.shard_row))

    def upstream_row_for_source(self, file: str, source_row: int) -> UpstreamRow:
        """Return the row that a source row became here, on its way to a downstream part."""
        match = self.find_source(file, source_row)
        assert match is not None, "the downstream part came from a row of this artifact"
        return UpstreamRow(self, match[0])

    def fate_at(
        self, file: str, row: int, lines: Sequence[str], details: Mapping[str, Any] | None = None, outcome: str = "kept"
    ) -> Fate:
        """Return the fate of a document that a row of a file contains."""
        place, number = {"shard": file, "shard_row": row}, self.row_number(file, row)
        return Fate(self.artifact, outcome, place=place, row=number, details=details or {}, lines=lines)
