"""Documents that were seen before: in a signature store, from which later ones are told without reading a text again.

They come before all others in the order, whatever others are selected by, and none of them goes.
"""

import bisect
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.decision import SIGNATURES_STAGE
from pipeline_assets.corpus.dedup.order import KeyRange, read_range
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.verify import INDEX_SUFFIX, SETS_SUFFIX, SetsFile
from pipeline_assets.corpus.formats.arrow import column_of, mask, numbers
from pipeline_assets.corpus.formats.parquet import open_parquet, read_columns
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError

DOCUMENTS_FILE, HASHES_FILE = "documents.parquet", "hashes.parquet"
BANDS_FILE, BITS_FILE = "bands.parquet", "sketches.parquet"
SETS_AREA = "shingles"


class SeenRun(NamedTuple):
    """A run of a signature store, whose documents have numbers from 0 there, and from `first_number` in a corpus."""

    path: Path
    first_number: int


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
    opened: list[SeenStore] = []
    first = 0
    for name, store in stores.items():
        _refuse_other_signatures(store, recipe)
        opened.append(_opened(name, store, first))
        first += opened[-1].documents
    return opened


def _opened(name: str, store: Artifact, first: int) -> SeenStore:
    counts = store.manifest.identity.counts
    firsts = itertools.accumulate((one["documents"] for one in counts["sources"]), initial=first)
    paths = [entry.path for entry in store.manifest.identity.files]
    sets = (
        SetsFile(first, store.path(path), store.path(path.removesuffix(SETS_SUFFIX) + INDEX_SUFFIX))
        for path in paths
        if path.endswith(SETS_SUFFIX)
    )
    bands, sketches = (SeenRun(store.path(path), first) if path in paths else None for path in (BANDS_FILE, BITS_FILE))
    return SeenStore(
        name,
        first,
        counts["documents"],
        store.path(DOCUMENTS_FILE),
        SeenRun(store.path(HASHES_FILE), first),
        bands,
        sketches,
        tuple(sets),
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
        has = _exact(has["scope"])
    if has != needs:
        differing = [key for key in has if key in needs and has[key] != needs[key]]
        whose = (", ".join(f"{key} {one[key] or 'none'}" for key in differing) for one in (has, needs))
        what = "its signatures can't be compared with this run's: the store has {}; this run {}".format(*whose)
        fix = "run with those of the store, or deduplicate its corpus with these and sign it again (stage-a signatures)"
        raise UsageError(what, store.folder, fix)


def _exact(scope: str) -> dict[str, Any]:
    return {"scope": scope, "proposer": None}


def _parameters(signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Scope and proposer, and what the proposer was told; those of two stores that differ in nothing else differ in a
    key that both have.
    """
    scope, sections = signatures["scope"], [name for name in signatures if name != "scope"]
    return {"scope": scope, "proposer": sections[0], **signatures[sections[0]]} if sections else _exact(scope)


def with_seen(of: KeyRange, seen: Sequence[SeenRun]) -> pa.Table:
    """A range of a corpus, and after it those rows of the same range of stores that have one of its keys.

    Args:
        of: its first column is the key, and one is the `order`, as those of the stores' runs.
    """
    own = of.table()
    keys = np.sort(numbers(own.column(0)))
    parts = [own]
    for path, first_number in seen:
        table = read_range([path], of.low, of.high)
        table = table.filter(mask(_are_among(numbers(table.column(0)), keys)))
        orders = column_of(numbers(table["order"]) + np.uint64(first_number))
        columns = [orders if name == "order" else table[name] for name in own.schema.names]
        parts.append(pa.table(columns, schema=own.schema))
    return pa.concat_tables(parts)


def _are_among(values: NDArray[np.uint64], ascending: NDArray[np.uint64]) -> NDArray[np.bool_]:
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[places] == values
    return found


def store_of(stores: Sequence[SeenStore], number: int) -> SeenStore | None:
    """The store whose document has a number in the corpus; None if it is one of the corpus itself."""
    if not stores or number >= stores[-1].first_number + stores[-1].documents:
        return None
    return stores[bisect.bisect_right([store.first_number for store in stores], number) - 1]


class SeenDocument(NamedTuple):
    """A document of a store: its id and its source."""

    doc_id: str
    source: str


def documents_of(store: SeenStore, wanted: Sequence[int]) -> dict[int, SeenDocument]:
    """Documents of a store, by their numbers in the corpus."""
    if not wanted:
        return {}
    places = column_of(np.array(wanted, np.int64) - store.first_number)
    found = read_columns(store.listed, ["doc_id", "source"]).take(places)
    columns = (found[name].to_pylist() for name in ("doc_id", "source"))
    return {number: SeenDocument(*row) for number, row in zip(wanted, zip(*columns, strict=True), strict=True)}


def numbers_of(store: SeenStore, doc_ids: Collection[str]) -> Iterator[tuple[str, int]]:
    """(id, number in the corpus) of those documents of a store that have one of these ids."""
    if not doc_ids:
        return
    first = store.first_number
    with open_parquet(store.listed) as file:
        for batch in file.iter_batches(columns=["doc_id"]):
            found = enumerate(batch["doc_id"].to_pylist(), first)
            yield from ((doc_id, number) for number, doc_id in found if doc_id in doc_ids)
            first += batch.num_rows
