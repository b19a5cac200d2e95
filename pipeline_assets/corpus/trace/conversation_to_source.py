"""From a normalised conversation to the row of the file that it was made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.nemotron.normalise_split import HF_LAYOUT_STAGE
from pipeline_assets.corpus.nemotron.row_checks import asked
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE
from pipeline_assets.corpus.nemotron.schema import data_files
from pipeline_assets.corpus.readers.source_folder import folder_path
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.lineage import locate
from pipeline_assets.corpus.trace.snapshot_rows import check_range
from pipeline_assets.corpus.trace.source_row import AnyRow, FileRow, SourceRow, listed_file

_BEGINNING = 160  # characters


@dataclass(frozen=True)
class Conversation:
    """One row of normalised rows.

    Attributes:
        row: over all files, in manifest order.
        shard, shard_row: its file, below the artifact's folder, and its number there.
        columns: those that were asked for.
    """

    row: int
    shard: str
    shard_row: int
    columns: dict[str, Any]


@dataclass(frozen=True)
class ConversationTrace:
    """A conversation back to its source.

    Attributes:
        source_digest: of the file of its row, as it was listed when it was read.
        asked: how what is asked first begins.
    """

    folder: Path
    id: str
    shard: str
    shard_row: int
    tokens: int
    completion_tokens: int
    source: AnyRow
    source_digest: str
    license: str | None
    asked: str


def holds_conversations(artifact: Artifact) -> bool:
    """Whether it holds normalised rows, of a split or of a whole dataset."""
    return artifact.manifest.identity.stage.name in (NORMALISE_STAGE.name, HF_LAYOUT_STAGE.name)


def trace_conversation(rows: Artifact, root: Path, row_id: str | None, row: int | None) -> ConversationTrace:
    """Where a conversation came from.

    Args:
        root: the data root below which lies what the rows were made from.
        row_id, row: the one of them that is not None says which; rows are counted over files in manifest order.
    Raises:
        UsageError: there is no such row.
        InputError: what the rows were made from is gone, or a file damaged.
    """
    columns = ["id", "split", "text", "stats_tokens", "stats_completion_tokens", "source_file", "source_row"]
    number = _number_of(rows, row_id) if row_id is not None else row or 0
    found = read_conversation(rows, number, [*columns, "meta_license"])
    raw = _raw_of(rows, found.columns["split"], root)
    file, place = found.columns["source_file"], found.columns["source_row"]
    folder, recipe = folder_path(raw.manifest, root), raw.manifest.identity.recipe
    source: AnyRow = (
        SourceRow(recipe["dataset"], recipe["revision"], file, place)
        if folder is None
        else FileRow(folder / file, place)
    )
    return ConversationTrace(
        folder=rows.folder,
        id=found.columns["id"],
        shard=found.shard,
        shard_row=found.shard_row,
        tokens=found.columns["stats_tokens"],
        completion_tokens=found.columns["stats_completion_tokens"],
        source=source,
        source_digest=listed_file(raw, source.file if isinstance(source, SourceRow) else file)["digest"],
        license=found.columns["meta_license"],
        asked=asked(found.columns["text"])[:_BEGINNING],
    )


def read_conversation(rows: Artifact, row: int, columns: Sequence[str]) -> Conversation:
    """Columns of one row, read from its row group alone.

    Raises:
        UsageError: there is no such row.
    """
    files = data_files(rows)
    sizes = {file.path: file.rows for file in rows.manifest.identity.files}
    check_range("row", row, sum(sizes[name] for name in files), rows.folder)
    first = 0
    for name in files:
        if row < first + sizes[name]:
            break
        first += sizes[name]
    with open_parquet(rows.path(name)) as file:
        left, group = row - first, 0
        while left >= file.metadata.row_group(group).num_rows:
            left -= file.metadata.row_group(group).num_rows
            group += 1
        [values] = file.read_row_group(group, columns=list(columns), use_threads=False).slice(left, 1).to_pylist()
    return Conversation(row, name, row - first, values)


def _number_of(rows: Artifact, row_id: str) -> int:
    """The row that has an id, the first of several.

    Raises:
        UsageError: none has.
    """
    first = 0
    for name in data_files(rows):
        with open_parquet(rows.path(name)) as file:
            place: int = pc.index(file.read(["id"], use_threads=False)["id"], row_id).as_py()
            if place >= 0:
                return first + place
            first += file.metadata.num_rows
    raise UsageError(f"no row has the id {row_id!r}", rows.folder, "the column `id` has them; --row takes a number")


def _raw_of(rows: Artifact, split: str, root: Path) -> Artifact:
    """What lists the files of a split."""
    if rows.manifest.identity.stage.name == HF_LAYOUT_STAGE.name:
        [digest] = [
            entry["digest"] for entry in rows.manifest.identity.inputs if entry["name"].rpartition("/")[2] == split
        ]
        rows = locate(root, digest)
    return locate(root, rows.manifest.identity.inputs[0]["digest"])
