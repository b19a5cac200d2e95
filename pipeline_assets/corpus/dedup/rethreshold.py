"""A deduplicated corpus again at a higher threshold, from its edges: no text is compared a second time.

All edges at the old threshold are kept, and a higher one takes some of them away; copies are in the decisions. So the
result is that of a deduplication at the new threshold from the start, to the digest.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, EDGES_FILE, read_decisions
from pipeline_assets.corpus.dedup.dedup_corpus import decided_content, numbered_shards
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, open_run
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.seen import numbers_of, open_seen
from pipeline_assets.corpus.dedup.settings import DedupSettings
from pipeline_assets.corpus.dedup.sketches import FATAL, IDS
from pipeline_assets.corpus.dedup.sorted_runs import write_run
from pipeline_assets.corpus.dedup.steps import ExactCopies, settle
from pipeline_assets.corpus.dedup.verify import EDGE_SCHEMA
from pipeline_assets.corpus.formats.arrow import column_of, mask, no_rows, numbers, strings
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.spine.artifact import Artifact, refuse_edited
from pipeline_assets.corpus.spine.building import Building, Receipt
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.target import Content

_EDGES, _EXACT = f"{WORK}/edges", f"{WORK}/exact"
_BATCH_ROWS = 1 << 20


def raised(recipe: DedupRecipe, threshold: str, where: object) -> DedupRecipe:
    """The recipe with a higher threshold.

    Raises:
        UsageError: it compares no texts, or its threshold is higher.
    """
    if recipe.near is None:
        raise UsageError("it found exact copies only, at no threshold", where, "run stage-a dedup with --mode both")
    if Fraction(threshold) < Fraction(recipe.near.threshold):
        what = f"its edges are those of {recipe.near.threshold} and above, {threshold} is below"
        raise UsageError(what, where, "run stage-a dedup with that threshold")
    near = recipe.near.content() | {"threshold": threshold}
    return DedupRecipe.of(recipe.content() | {"near": near}, "--threshold")


def rethreshold(
    building: Building,
    deduplicated: Artifact,
    sources: Mapping[str, Artifact],
    recipe: DedupRecipe,
    settings: DedupSettings,
    seen: Mapping[str, Artifact],
) -> Content:
    """What `dedup_corpus` makes of the same sources, with the same stores seen before.

    Args:
        recipe: of the corpus, `raised`.
    Raises:
        UsageError: rows of it were rejected, which the sources count among their text.
        InputError: its edges or decisions were edited.
    """
    refuse_edited(deduplicated, (DECISIONS_FILE, EDGES_FILE))
    rejected = deduplicated.manifest.identity.counts["ledger"]["rejected"]
    if rejected:
        fix = "run stage-a dedup with that threshold"
        raise UsageError(f"{sum(rejected.values()):,} of its rows were rejected", deduplicated.folder, fix)
    stores = open_seen(seen, recipe)
    with open_run(building, numbered_shards(sources, stores), recipe, settings, stores) as dedup:
        sketches = _sketches(dedup, deduplicated, sources)
        exact = _exact(dedup, deduplicated) if recipe.mode != "near" else None
        assert recipe.near is not None
        edges = tuple(_edges(building, deduplicated, Fraction(recipe.near.threshold)))
        near = settle(dedup, edges, exact, {})
        kept_edges = sum(pq.read_metadata(run).num_rows for run in edges)
        comparisons = {**deduplicated.manifest.identity.counts["comparisons"], "edges": kept_edges}
        return decided_content(dedup, sketches, exact, near, comparisons)


def _sketches(dedup: DedupRun, deduplicated: Artifact, sources: Mapping[str, Artifact]) -> list[Receipt]:
    """What sketching would have left: the ids of each shard, and how much text there is; that of a whole source stands
    with its first shard.
    """
    decisions = read_decisions(deduplicated)
    receipts = []
    for place, shard in enumerate(dedup.shards):
        own = [next(decisions) for _ in range(shard.rows)]
        orders = np.arange(shard.first_number, shard.first_number + shard.rows, dtype=np.uint64)
        table = pa.table({"order": column_of(orders), "doc_id": strings([one.doc_id for one in own])})
        name = f"{IDS}/{shard.name}.parquet"
        is_first = place == 0 or dedup.shards[place - 1].source != shard.source
        text_bytes = sources[shard.source].manifest.identity.counts["text_bytes"] if is_first else 0
        files = [write_run(dedup.building.path(name), name, table)]
        receipts.append(Receipt(files, {"documents": shard.rows, "bytes": text_bytes}, {FATAL: []}))
    return receipts


def _exact(dedup: DedupRun, deduplicated: Artifact) -> ExactCopies:
    copies = [
        (number, _First(one.copy_of, one.seen_in if one.decision == "exact_duplicate" else None))
        for number, one in enumerate(read_decisions(deduplicated), dedup.shards[0].first_number)
        if one.copy_of is not None
    ]
    number_of = _numbers_of({first for _, first in copies}, dedup, deduplicated)
    table = pa.table(
        {
            "number": column_of(np.array([number for number, _ in copies], np.uint64)),
            "first": column_of(np.array([number_of[first] for _, first in copies], np.uint64)),
            "first_id": strings([first.doc_id for _, first in copies]),
        }
    )
    run = dedup.building.path(f"{_EXACT}/copies.parquet")
    write_run(run, run.name, table)
    return ExactCopies((run,), run)


class _First(NamedTuple):
    """A document that has copies; `store` is where it was seen before."""

    doc_id: str
    store: str | None


def _numbers_of(wanted: Collection[_First], dedup: DedupRun, deduplicated: Artifact) -> dict[_First, int]:
    numbers = {
        _First(doc_id, store.name): number
        for store in dedup.seen
        for doc_id, number in numbers_of(store, {first.doc_id for first in wanted if first.store == store.name})
    }
    for number, one in enumerate(read_decisions(deduplicated), dedup.shards[0].first_number):
        first = _First(one.doc_id, None)
        if first in wanted:
            numbers[first] = number
    return numbers


def _edges(building: Building, deduplicated: Artifact, threshold: Fraction) -> Iterator[Path]:
    """Runs of the edges at the new threshold, cut where a later document's edges end."""
    with open_parquet(deduplicated.path(EDGES_FILE)) as file:
        batches = (pa.Table.from_batches([batch]) for batch in file.iter_batches(_BATCH_ROWS))
        for number, edges in enumerate(_whole_documents(_at(batch, threshold) for batch in batches)):
            run = building.path(f"{_EDGES}/{number:05d}.parquet")
            write_run(run, run.name, edges)
            yield run


def _at(published: pa.Table, threshold: Fraction) -> pa.Table:
    """The edges of this similarity and above, as `verify` writes them."""
    shared, own, other = (numbers(published[name]) for name in ("shared", "shingles", "other_shingles"))
    stays = shared * threshold.denominator >= (own + other - shared) * threshold.numerator
    names = ("order", "other_order", *EDGE_SCHEMA.names[2:])
    return pa.table([published[name] for name in names], schema=EDGE_SCHEMA).filter(mask(stays))


def _whole_documents(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same edges, all those of a later document in one table."""
    pending = no_rows(EDGE_SCHEMA)
    for table in tables:
        pending = pa.concat_tables([pending, table])
        later = numbers(pending["later"])
        last = int(np.searchsorted(later, later[-1])) if len(later) else 0
        yield pending.slice(0, last)
        pending = pending.slice(last)
    yield pending
