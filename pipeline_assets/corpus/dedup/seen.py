"""Documents that were seen before: in a signature store, from which later ones are told without reading a text again.

They come before all others in the order, whatever others are selected by, and none of them goes.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.decision import SIGNATURES_STAGE, Sample
from pipeline_assets.corpus.dedup.order import KeyRange, document_numbers, is_seen
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.formats.arrow import column_of, mask, numbers, strings
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError

DOCUMENTS_FILE, HASHES_FILE = "documents.parquet", "hashes.parquet"
BANDS_FILE, BITS_FILE = "bands.parquet", "sketches.parquet"
SETS_AREA, SETS_SUFFIX, INDEX_SUFFIX = "shingles", ".sets", ".index"


class SeenRun(NamedTuple):
    """A run of a signature store, whose documents have numbers from 0 there, and from `first_number` in a corpus."""

    path: Path
    first_number: int


class SetsFile(NamedTuple):
    """Sets of one shard, and the entries of their index; `offset` is added to the numbers there."""

    offset: int
    sets: Path
    entries: Path


@dataclass(frozen=True)
class SeenStore:
    """A signature store whose documents come before those of a corpus.

    Attributes:
        first_number: the number of its first document in the corpus.
        hashes, bands, sketches: runs, as `sketch_shard` writes them; None where there are none.
        sets: of all its documents.
        sources: (number of the first document, source), for each source that they are of.
    """

    name: str
    first_number: int
    documents: int
    listed: Path
    hashes: SeenRun
    bands: SeenRun | None
    sketches: SeenRun | None
    sets: tuple[SetsFile, ...]
    sources: tuple[tuple[int, str], ...]


def open_seen(stores: Mapping[str, Artifact], recipe: DedupRecipe) -> list[SeenStore]:
    """Signature stores, in the order in which their documents come.

    Raises:
        UsageError: something else than a store, or one that this recipe's documents can't be compared to.
    """
    for store in stores.values():
        _refuse_other_signatures(store, recipe)
    documents = (store.manifest.identity.counts["documents"] for store in stores.values())
    firsts = itertools.accumulate(documents, initial=0)
    return [_opened(name, store, first) for (name, store), first in zip(stores.items(), firsts, strict=False)]


def _opened(name: str, store: Artifact, first: int) -> SeenStore:
    counts, paths = store.manifest.identity.counts, [entry.path for entry in store.manifest.identity.files]
    firsts = itertools.accumulate((one["documents"] for one in counts["sources"]), initial=first)
    bands, sketches = (SeenRun(store.path(path), first) if path in paths else None for path in (BANDS_FILE, BITS_FILE))
    return SeenStore(
        name,
        first,
        counts["documents"],
        store.path(DOCUMENTS_FILE),
        SeenRun(store.path(HASHES_FILE), first),
        bands,
        sketches,
        tuple(
            SetsFile(first, store.path(path), store.path(path.removesuffix(SETS_SUFFIX) + INDEX_SUFFIX))
            for path in paths
            if path.endswith(SETS_SUFFIX)
        ),
        tuple((number, one["source"]) for number, one in zip(firsts, counts["sources"], strict=False)),
    )


def _refuse_other_signatures(store: Artifact, recipe: DedupRecipe) -> None:
    stage, again = store.manifest.identity.stage, "make one of that corpus with stage-a signatures"
    if stage.name != SIGNATURES_STAGE.name:
        raise UsageError(f"this is a {store.manifest.kind}, no signature store", store.folder, again)
    if stage != SIGNATURES_STAGE:
        what = f"its signatures are of version {stage.version}, this program's of {SIGNATURES_STAGE.version}"
        raise UsageError(what, store.folder, again)
    has, needs = _parameters(store.manifest.identity.recipe["signatures"]), _parameters(recipe.signatures())
    if recipe.near is None:
        has = needs | {"scope": has["scope"]}
    if has != needs:
        differing = [key for key in has if key in needs and has[key] != needs[key]]
        whose = (", ".join(f"{key} {one[key] or 'none'}" for key in differing) for one in (has, needs))
        what = "its signatures can't be compared with this run's: the store has {}; this run {}".format(*whose)
        fix = "run with those of the store, or deduplicate its corpus with these and sign it again (stage-a signatures)"
        raise UsageError(what, store.folder, fix)


def _parameters(signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Scope and proposer, and what the proposer was told; those of two stores that differ in nothing else differ in a
    key that both have.
    """
    proposer = next((name for name in signatures if name != "scope"), None)
    return {"scope": signatures["scope"], "proposer": proposer, **(signatures[proposer] if proposer else {})}


def with_seen(of: KeyRange, seen: Sequence[SeenRun]) -> pa.Table:
    """A range of a corpus, and after it those rows of the same range of stores that have one of its keys.

    Args:
        of: its first column is the key, and one is the `order`, as those of the stores' runs.
    """
    own = of.table()
    if not own.num_rows:
        return own
    keys = np.sort(numbers(own.column(0)))
    parts = [own]
    for path, first_number in seen:
        table = KeyRange(of.low, of.high, (path,), first_number).table()
        values = numbers(table.column(0))
        is_own = keys[np.minimum(np.searchsorted(keys, values), len(keys) - 1)] == values
        parts.append(pa.table(table.filter(mask(is_own)).columns, schema=own.schema))
    return pa.concat_tables(parts)


def stores_of(orders: NDArray[np.uint64], seen: Sequence[SeenStore]) -> pa.StringArray:
    """The name of the store that each document stands in, or null."""
    bounds = np.array([store.first_number + store.documents for store in seen], np.uint64)
    places = np.searchsorted(bounds, document_numbers(orders), side="right")
    places_or_null = [mask(is_seen(orders)).buffers()[1], pa.py_buffer(places)]
    return strings([store.name for store in seen]).take(pa.Array.from_buffers(pa.int64(), len(orders), places_or_null))


def seen_samples(store: SeenStore, wanted: Collection[int]) -> Iterator[tuple[int, Sample]]:
    """(number in the corpus, document) of those that are of a store."""
    own = [number for number in wanted if 0 <= number - store.first_number < store.documents]
    if own:
        rows = read_columns(store.listed, ["doc_id", "source"]).take(column_of(np.array(own) - store.first_number))
        for number, row in zip(own, rows.to_pylist(), strict=True):
            yield number, Sample(row["doc_id"], row["source"], "", store.name)
