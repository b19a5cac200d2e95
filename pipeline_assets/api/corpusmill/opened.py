"""Opened artifacts: the manifest, rows, documents and origins of a sealed folder."""

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from corpusmill.display import Plot, Traces, html_table, plot_column
from pipeline_assets.build.argument_names import name_arguments
from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.rows.trace import trace_id, trace_row, trace_token
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.memmap import PackedSet, open_packed
from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.artifact import hash_error, open_artifact, repair_hint
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.replacement import forbid_replacement, replaced_error
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS

_REOPEN_HINT = "open the folder again"


class OpenedArtifact:
    """A sealed artifact: its manifest, rows, documents and traces.

    A method that does not apply to the artifact's kind raises `InputError`. If another artifact has replaced this one,
    methods that read rows raise `RetryableError`.
    """

    @check_arguments
    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()  # so that `os.chdir` does not lose it
        with forbid_replacement(self.folder, _REOPEN_HINT):
            require_manifest(self.folder)  # names a missing folder, and an exported copy, whose files differ
            self.manifest: Manifest = open_artifact(self.folder).manifest
            self._opened_stat = self._manifest_stat()

    def __repr__(self) -> str:
        counts = self.manifest.identity.counts
        sizes = [f"{counts[name]:,} {name}" for name in ("documents", "tokens") if isinstance(counts.get(name), int)]
        return f"<{' '.join([self.manifest.kind, str(self.folder), ', '.join(sizes)]).rstrip()}>"

    def _repr_html_(self) -> str:
        identity = self.manifest.identity
        facts = {"folder": self.folder, "digest": self.manifest.digest, "stage": identity.stage}
        facts |= {name: f"{count:,}" for name, count in identity.counts.items() if isinstance(count, int)}
        facts |= {"rows": identity.ledger} if "ledger" in identity.counts else {}
        rows = [[name, str(fact)] for name, fact in facts.items()]
        table: str = html_table([self.manifest.kind, self.manifest.name], rows)
        return table

    @property
    def rows(self) -> RowStore:
        """Store of the rows, with `len(rows)`, `rows.row_at(0)` and `rows.find("an id")`."""
        with self._open_rows() as rows:
            return rows

    @contextlib.contextmanager
    def _open_rows(self) -> Iterator[RowStore]:
        """Yield the row store; RetryableError if the folder is being or was replaced."""
        with forbid_replacement(self.folder, _REOPEN_HINT):
            if self._manifest_stat() != self._opened_stat:
                require_manifest(self.folder)  # names a folder that was removed
                raise replaced_error(self.folder, _REOPEN_HINT)
            yield self._row_store

    @cached_property
    def _row_store(self) -> RowStore:
        return open_rows(self.folder, SYSTEMS.kinds)

    def _manifest_stat(self) -> tuple[int, int, int] | None:
        with contextlib.suppress(OSError):
            stat = (self.folder / MANIFEST_FILE).stat()
            return stat.st_dev, stat.st_ino, stat.st_mtime_ns
        return None

    def documents(self) -> Iterator[Document]:
        """Yield the documents of a corpus in stored order, reading one block at a time.

        Hashes are not compared with the manifest; `corpusmill verify` does that.
        """
        with self._open_rows() as rows:
            if not isinstance(rows, DocumentRows):
                fix = "open a normalized, filtered, deduplicated or decontaminated corpus"
                raise UsageError(f"expected a corpus of documents, got {self.manifest.kind}", self.folder, fix)
            yield from rows.documents()

    def table(self) -> pa.Table:
        """Return all text rows in stored order as one Arrow table in memory.

        Each file is hashed before it is read; InputError if its hash is not the sealed one.
        """
        tables = list[pa.Table]()
        sealed = {self.folder / stored.path: stored for stored in self.manifest.storage}
        with self._open_rows() as rows:
            for shard in rows.table_shards():
                if (problem := hash_error(self.folder, sealed[shard.file])) is not None:
                    raise InputError(problem, shard.file, repair_hint(self.folder))
                tables += [shard.schema.empty_table(), *shard.tables()]  # a file may have no rows
        return pa.concat_tables(tables or [pa.table({})])

    @check_arguments
    def plot(self, column: str) -> Plot:
        """Plot a column of the text rows; raise UsageError if the column does not exist.

        Texts with few distinct values, such as `source`, are plotted by value; other texts are plotted by length.
        Columns within a struct have dotted names, such as `meta.title`. Each number that is not an integer needs about
        30 bytes of memory.
        """
        with self._open_rows() as rows:
            shards = rows.table_shards()
            names = [field.name for column in (shards[0].schema if shards else ()) for field in column.flatten()]
            if column not in names:
                raise UsageError(f"no column {column!r}", self.folder, f"choose one of: {', '.join(names) or 'none'}")
            tables = (table.select([column.partition(".")[0]]) for shard in shards for table in shard.tables())
            return plot_column(column, (table.flatten()[column] for table in tables))

    @check_arguments
    @name_arguments()
    def trace(self, *, row: int | None = None, doc_id: str | None = None, token: int | None = None) -> Traces:
        """Trace one row, document or token to its source rows; pass one of the arguments.

        Args:
            row: Number of a row, from 0. A packed row has a result for each of its parts.
            doc_id: Id of a document; a packed set may contain several parts of the document.
            token: Position of a token in the token file, from 0.

        Raises:
            UsageError: No or several arguments are passed, one has a wrong type, or the row, document or token does not
                exist.
            InputError: An input of the artifact is missing or damaged.
        """
        selectors = (row is not None) + (doc_id is not None) + (token is not None)
        if selectors != 1:
            what = f"expected one of row, doc_id and token, got {selectors or 'none'}"
            raise UsageError(what, self.folder, "pass one of them")
        with self._open_rows() as rows:
            if token is not None:
                return Traces([trace_token(rows, token)])
            return Traces(trace_id(rows, doc_id) if doc_id is not None else trace_row(rows, row or 0))

    def packed(self) -> PackedSet:
        """Open the artifact as a packed set, which reads rows and segments as arrays."""
        return open_packed(self.folder, self.manifest.digest)
