"""Footers of a dataset's files, several at a time where it is known that they will be needed."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from pipeline_assets.corpus.readers.column_map import another_column
from pipeline_assets.corpus.readers.column_paths import column_paths, has_column
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles, Span
from pipeline_assets.corpus.readers.hub_parquet import RowGroup, read_footer, row_groups
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.errors import UsageError, key

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Tail:
    """The end of a file, which came with its footer. The footer itself is not kept: one of a thousand row groups takes
    10 MB of memory, and a sample over all dumps reads hundreds.

    Attributes:
        spans: up to the file's end, in order.
        row_groups: how many the file has.
        columns: their names.
    """

    spans: tuple[Span, ...]
    row_groups: int
    columns: tuple[str, ...]

    @property
    def start(self) -> int:
        """From here on the file's bytes are here."""
        return self.spans[0].start


class FooterReader:
    """Reads the footers of files, each once.

    Attributes:
        tails: by path, of the files that were asked for.
    """

    def __init__(self, hub: HubFiles, recipe: SnapshotRecipe, threads: int, log_every_s: float) -> None:
        self.tails: dict[str, Tail] = {}
        self._hub, self._recipe, self._log_every_s = hub, recipe, log_every_s
        self._pool = ThreadPoolExecutor(threads)
        self._asked: dict[str, Future[tuple[Tail, list[RowGroup]]]] = {}
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def soon(self, files: Sequence[HubFile]) -> None:
        """These will be asked for."""
        for file in files:
            if file.path not in self._asked:
                self._asked[file.path] = self._pool.submit(self._read, file)

    def row_groups(self, file: HubFile) -> list[RowGroup]:
        """Row groups of a file, in file order, with the bounds of the columns that the recipe filters by.

        Raises:
            InputError: from the hub.
            UsageError: there is no column that the recipe names.
        """
        self.soon([file])
        self.tails[file.path], groups = self._asked[file.path].result()
        now = time.monotonic()
        if now - self._spoke >= self._log_every_s:
            self._spoke = now
            fetched = self._hub.traffic.bytes / 1e6
            logger.info("footers %s: %d files, %.1f MB fetched", self._recipe.source, len(self.tails), fetched)
        return groups

    def _read(self, file: HubFile) -> tuple[Tail, list[RowGroup]]:
        recipe = self._recipe
        where = f"{recipe.dataset}@{recipe.revision}:{file.path}"
        footer = read_footer(self._hub, recipe.dataset, recipe.revision, file)
        schema = footer.metadata.schema.to_arrow_schema()
        _check_columns(schema, recipe, where)
        filtered = [rule.column for rule in recipe.row_rules(schema.names)]
        groups = row_groups(footer, file, recipe.columns.text, where, filtered)
        return Tail(footer.spans, footer.metadata.num_row_groups, tuple(schema.names)), groups


def _check_columns(schema: pa.Schema, recipe: SnapshotRecipe, where: str) -> None:
    """
    Raises:
        UsageError: no such column for the id, the date or a rule (names those present).
    """
    columns = recipe.columns
    for field, column in (("id", columns.id), ("created_at", columns.created_at)):
        if column is not None and not has_column(schema, column):
            what = f"there is no column `{column}`; it has {', '.join(column_paths(schema))}"
            raise UsageError(what, where, another_column(field))
    for rule in recipe.parsed_rules():
        if rule.column not in schema.names:
            what = f"there is no column `{rule.column}`; it has {', '.join(schema.names)}"
            raise UsageError(what, where, f"correct the rule `{rule.text}` of {key('rules', 'the recipe')}")
