"""Rows that lie in files: numbered over all of them, and read from Parquet row group by row group."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.rows.store import Fate, Line, Part, RowStore
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Lineage


class FileRows(RowStore):
    """Rows that lie in the files of one folder of the artifact, whose counts of rows are `files`, in manifest order."""

    folder: ClassVar[str]

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        super().__init__(artifact, lineage)
        files = artifact.manifest.identity.files
        self.files = {file.path: file.rows for file in files if file.path.startswith(self.folder)}

    def __len__(self) -> int:
        return sum(self.files.values())

    def place_of(self, number: int) -> tuple[str, int]:
        """(file, row in it) of a row. Raises UsageError where there is no such row."""
        self.check_range("row", number, len(self))
        for name, rows in self.files.items():
            if number < rows:
                return name, number
            number -= rows
        raise AssertionError("the range was checked")

    def number_of(self, file: str, row: int) -> int:
        """The number of a row of one file. Raises InputError where there is no such file."""
        if file not in self.files:
            what = f"it has no {file}, which something was made from"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it, and on what was made from it")
        names = [*self.files]
        return sum(self.files[name] for name in names[: names.index(file)]) + row

    def line(self, part: Part) -> Line:
        """The line that a part of what was made of this names. Raises as `number_of`."""
        return Line(self, self.number_of(part.shard, part.shard_row))

    def fate_at(
        self, file: str, row: int, lines: Sequence[str], told: Mapping[str, Any] | None = None, outcome: str = "kept"
    ) -> Fate:
        """The fate of what lies in a row of a file."""
        place, number = {"shard": file, "shard_row": row}, self.number_of(file, row)
        return Fate(self.artifact, outcome, place=place, row=number, told=told or {}, lines=lines)


def row_of_file(path: Path, row: int, columns: Sequence[str]) -> dict[str, Any]:
    """Some columns of a row of a Parquet file, read from its row group alone. Raises InputError where it has fewer."""
    first_row = 0
    with open_parquet(path) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < first_row + rows:
                table = file.read_row_group(group, columns=columns, use_threads=False)
                [found] = table.slice(row - first_row, 1).to_pylist()
                return dict(found)
            first_row += rows
    raise InputError(f"it has {first_row:,} rows, none is row {row:,}", path, "run `corpusmill verify` on its folder")


def find_in_file(path: Path, values: Mapping[str, Any]) -> int | None:
    """The first row of a Parquet file that has these values, by column; no other column is read."""
    import pyarrow.compute as pc

    first_row = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(columns=[*values], use_threads=False):
            matches = [pc.equal(batch.column(name), value) for name, value in values.items()]
            found: int = pc.index(functools.reduce(pc.and_, matches), True).as_py()
            if found >= 0:
                return first_row + found
            first_row += batch.num_rows
    return None
