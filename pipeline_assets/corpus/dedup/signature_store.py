"""Signature stores: hashes of earlier documents, to compare new documents with.

A store has the id of each document and the hash of its normalized text. Unless the mode is `exact`, the store also has
the shingles of each document, and either its binary sketch or the keys of its bands. With the store, a later corpus can
be deduplicated without the texts of the earlier one. The later corpus keeps the same documents as if both corpora were
deduplicated together, with the earlier corpus first.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.decision import SIGNATURES_STAGE
from pipeline_assets.corpus.dedup.document_order import document_numbers, is_from_seen_corpus
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.sorted_runs import KEYS_STOP, KeyRange
from pipeline_assets.corpus.formats.arrow_columns import bool_column, string_column, to_arrow, to_numpy
from pipeline_assets.corpus.formats.parquet import StoredParquet, read_footer
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError

SETS_SUFFIX, INDEX_SUFFIX = ".sets", ".index"
DOCUMENTS_FILE, HASHES_FOLDER, BANDS_FOLDER, SKETCHES_FOLDER = "documents.parquet", "hashes", "bands", "sketches"


class SeenRuns(NamedTuple):
    """Runs of a signature store, as Parquet files sorted by their first column.

    Attributes:
        paths: Files of the runs, in which the store's documents are numbered from 0.
        first_number: Number that the store's document 0 has in the new corpus.
    """

    paths: tuple[Path, ...]
    first_number: int

    @property
    def row_count(self) -> int:
        """Number of rows in all runs."""
        return sum(read_footer(path).num_rows for path in self.paths)

    def tables(self, low: int = 0, high: int = KEYS_STOP) -> Iterator[pa.Table]:
        """Yield the rows with `low <= key < high`, as one table per row group.

        A row group is skipped if its statistics show that it has no such key. In the column `order`, the priorities are
        replaced by the documents' numbers in the new corpus.
        """
        for path in self.paths:
            with StoredParquet(path) as file:
                for number in range(file.num_row_groups):
                    keys = file.metadata.row_group(number).column(0).statistics
                    if keys is not None and keys.max >= low and keys.min < high:
                        yield self._select_rows(file.read_row_group(number), low, high)

    def _select_rows(self, table: pa.Table, low: int, high: int) -> pa.Table:
        keys, priorities = to_numpy(table.column(0)), to_numpy(table["order"])
        numbers = document_numbers(priorities) + np.uint64(self.first_number)
        table = table.set_column(table.schema.names.index("order"), "order", to_arrow(numbers))
        return table.filter(bool_column((keys >= np.uint64(low)) & (keys <= np.uint64(high - 1))))


class ShingleSetFiles(NamedTuple):
    """Two files of one shard: its shingle sets, and their index; see `verify`.

    A document's number in the corpus is its number in the index plus `first_number`.
    """

    first_number: int
    sets_file: Path
    index_file: Path


@dataclass(frozen=True)
class SeenStore:
    """Signature store whose documents precede a corpus's documents.

    Attributes:
        first_number: Number of the store's first document; the corpus's document numbers follow those of all stores.
        document_count: Number of documents in the store.
        documents_file: Parquet file with the id and source of each document, in order.
        hashes: Runs of the hashes of normalized texts.
        bands: Runs of the keys of bands; empty in a store without bands.
        sketches: Runs of binary sketches; empty in a store without sketches.
        set_files: Files of the shingle sets of each shard; empty if the mode is `exact`.
        source_starts: For each source in the store, the number of its first document, and its name.
    """

    name: str
    first_number: int
    document_count: int
    documents_file: Path
    hashes: SeenRuns
    bands: SeenRuns
    sketches: SeenRuns
    set_files: tuple[ShingleSetFiles, ...]
    source_starts: tuple[tuple[int, str], ...]


def read_with_seen_rows(key_range: KeyRange, seen_runs: Sequence[SeenRuns]) -> pa.Table:
    """Read a corpus's rows in a key range, and the store rows that have the same keys.

    Corpus and stores have the same columns. The first column is the uint64 key; the column `order` is the priority.
    """
    corpus_rows = key_range.table()
    if not corpus_rows.num_rows:
        return corpus_rows
    keys = np.sort(to_numpy(corpus_rows.column(0)))
    tables = [corpus_rows]
    for table in itertools.chain.from_iterable(runs.tables(key_range.low, key_range.high) for runs in seen_runs):
        values = to_numpy(table.column(0))
        # The search gives the first key that is not below the value: equal to it if the key occurs. A value above all
        # keys is compared with the last key.
        is_shared = keys[np.minimum(np.searchsorted(keys, values), len(keys) - 1)] == values
        tables.append(pa.table(table.filter(bool_column(is_shared)).columns, schema=corpus_rows.schema))
    return pa.concat_tables(tables)


def seen_store_names(priorities: NDArray[np.uint64], seen_stores: Sequence[SeenStore]) -> pa.StringArray:
    """Return the name of each document's store; null for documents of the new corpus."""
    bounds = np.array([store.first_number + store.document_count for store in seen_stores], np.uint64)
    positions = np.searchsorted(bounds, document_numbers(priorities), side="right")  # first store that ends beyond it
    # The mask of documents in stores is the validity bitmap of the index array: documents of the corpus become null.
    buffers = [bool_column(is_from_seen_corpus(priorities)).buffers()[1], pa.py_buffer(positions)]
    return string_column([store.name for store in seen_stores]).take(
        pa.Array.from_buffers(pa.int64(), len(priorities), buffers)
    )


def open_stores(stores: Mapping[str, Artifact], recipe: DedupRecipe) -> list[SeenStore]:
    """Open signature stores, and number their documents in the order of `stores`.

    Raises:
        UsageError: An artifact is not a signature store of this version, or its settings differ from `recipe`.
    """
    for store in stores.values():
        _check_signatures(store, recipe)
    documents = (store.manifest.identity.counts["documents"] for store in stores.values())
    firsts = itertools.accumulate(documents, initial=0)
    return [_open_store(name, store, first) for (name, store), first in zip(stores.items(), firsts, strict=False)]


def _open_store(name: str, store: Artifact, first_number: int) -> SeenStore:
    counts, paths = store.manifest.identity.counts, [entry.path for entry in store.manifest.identity.files]
    source_numbers = itertools.accumulate((source["documents"] for source in counts["sources"]), initial=first_number)
    hashes, bands, sketches = (
        SeenRuns(tuple(store.path(path) for path in paths if path.startswith(f"{folder}/")), first_number)
        for folder in (HASHES_FOLDER, BANDS_FOLDER, SKETCHES_FOLDER)
    )
    stems = (path.removesuffix(SETS_SUFFIX) for path in paths if path.endswith(SETS_SUFFIX))
    files = [(f"{stem}{SETS_SUFFIX}", f"{stem}{INDEX_SUFFIX}") for stem in stems]
    return SeenStore(
        name,
        first_number,
        counts["documents"],
        store.path(DOCUMENTS_FILE),
        hashes,
        bands,
        sketches,
        tuple(ShingleSetFiles(first_number, store.path(sets), store.path(index)) for sets, index in files),
        tuple((number, source["source"]) for number, source in zip(source_numbers, counts["sources"], strict=False)),
    )


def _check_signatures(store: Artifact, recipe: DedupRecipe) -> None:
    stage, fix = store.manifest.identity.stage, "sign that corpus with stage-a signatures"
    if stage.name != SIGNATURES_STAGE.name:
        raise UsageError(f"expected a signature store, got {store.manifest.kind}", store.folder, fix)
    if stage != SIGNATURES_STAGE:
        what = f"signatures have version {stage.version}, expected {SIGNATURES_STAGE.version}"
        raise UsageError(what, store.folder, fix)
    own, needed = (
        _flatten_parameters(store.manifest.identity.recipe["signatures"]),
        _flatten_parameters(recipe.signature_keys()),
    )
    if recipe.near is None:
        own = needed | {"scope": own["scope"]}
    if own != needed:
        differing = [key for key in own if key in needed and own[key] != needed[key]]
        stored, requested = (", ".join(f"{key} {keys[key] or 'none'}" for key in differing) for keys in (own, needed))
        what = f"signatures cannot be compared: the store has {stored}; this run has {requested}"
        fix = "use the store's values, or deduplicate its corpus with these values and sign it again"
        raise UsageError(what, store.folder, f"{fix} (stage-a signatures)")


def _flatten_parameters(signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Return scope, proposer and the proposer's keys in one mapping."""
    name = next((name for name in signatures if name != "scope"), None)
    return {"scope": signatures["scope"], "proposer": name, **(signatures[name] if name else {})}
