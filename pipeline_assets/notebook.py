"""For notebooks and scripts: run a recipe, open what it made, follow a row to its source, train on a packed set.

    from pipeline_assets.notebook import open_folder, run

    made = run("notes", data="data")                              # by artifact: made["stage_a/packed"]
    corpus = open_folder("data/stage_a/notes/deduplicated/notes")
    next(corpus.documents()).text
    corpus.table().to_pandas()                                    # or polars.from_arrow(corpus.table())
    corpus.trace(row=0)[0].text.source                            # file, row, digest, licence

    from pipeline_assets.corpus.batching import loader
    for tokens, documents, rows in loader("data/stage_a/notes/packed/notes", batch=8, seed=1): ...

Loads no Dagster, and torch only where `batching` is imported.
"""

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.rows.trace import TracedRow, trace_id, trace_row, trace_token
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.memmap import PackedSet, open_packed
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.systems.registry import SYSTEMS


class Opened:
    """A sealed artifact: its manifest, and its rows where it has any."""

    def __init__(self, folder: Path | str) -> None:
        """
        Raises:
            InputError: nothing is sealed there.
        """
        self.folder = Path(folder)
        self.manifest: Manifest = open_artifact(self.folder).manifest

    def __repr__(self) -> str:
        counts = self.manifest.identity.counts
        told = [f"{counts[name]:,} {name}" for name in ("documents", "tokens") if isinstance(counts.get(name), int)]
        return f"<{self.manifest.kind} {self.folder} {', '.join(told)}>"

    @cached_property
    def rows(self) -> RowStore:
        """Rows by number and by id, of any artifact that has some.

        Raises:
            UsageError: it has none.
        """
        return open_rows(self.folder, SYSTEMS.kinds)

    def documents(self) -> Iterator[Document]:
        """The Documents of a corpus, in order, a block of them in memory at a time.

        Raises:
            UsageError: it is no corpus.
        """
        if not isinstance(self.rows, DocumentRows):
            fix = "give what is normalised, filtered, deduplicated or decontaminated"
            raise UsageError(f"this is {self.manifest.kind}, which has no Documents", self.folder, fix)
        yield from self.rows.documents()

    def table(self) -> pa.Table:
        """All rows of text as one Arrow table, in memory: shard by shard, see `TableShard`.

        Raises:
            UsageError: its rows are no text.
        """
        return pa.concat_tables([rows for shard in self.rows.table_shards() for rows in shard.tables()])

    def trace(self, *, row: int | None = None, doc_id: str | None = None, token: int | None = None) -> list[TracedRow]:
        """Where a row, a document or a token came from: exactly one of them.

        Raises:
            UsageError: there is no such one; InputError: what it was made from is gone.
        """
        if (row is not None) + (doc_id is not None) + (token is not None) != 1:
            raise UsageError("several things to trace, or none", self.folder, "give one of row, doc_id, token")
        if token is not None:
            return [trace_token(self.rows, token)]
        return trace_id(self.rows, doc_id) if doc_id is not None else trace_row(self.rows, row or 0)

    def packed(self) -> PackedSet:
        """The rows of a packed set as arrays, with their segments.

        Raises:
            InputError: it is none.
        """
        return open_packed(self.folder)


def open_folder(folder: Path | str) -> Opened:
    """What is sealed in a folder. Errors as of `Opened`."""
    return Opened(folder)


def run(recipe: str, data: Path | str = "data", workers: int = 2, replace: bool = False) -> dict[str, list[Opened]]:
    """Builds what a recipe asks for and isn't there; all that it asks for, by kind, in the order of its partitions.

    Args:
        recipe: name or path.
    Raises:
        InputError: as `corpusmill run`.
    """
    root = Path(data)
    wanted = SYSTEMS.read_recipe(recipe_path(recipe, root), root)
    wanted.check_local_files(root)
    made: dict[str, list[Opened]] = {}
    for outcome in run_targets(wanted.targets(), Run.from_settings(root, os.environ, workers=workers, replace=replace)):
        made.setdefault(outcome.target.kind.name, []).append(Opened(root / outcome.target.folder))
    return made
