"""Resolution of near duplicates: the greedy choice of the documents to drop.

An edge is a pair of documents whose similarity reaches the threshold. Documents are visited in their total order. A
document is dropped if and only if it has an edge to an earlier kept document. A chain of edges does not suffice: with
only the edges A–B and B–C, B is dropped, but C is kept. One pass over the edges suffices if they are sorted by their
later document. The pass needs one bit of memory for each document.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.bitmap import add_to_bitmap, bitmap_contains, empty_bitmap, is_member
from pipeline_assets.corpus.dedup.decision import DECISION_RULE, Decision, Outcome
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in
from pipeline_assets.corpus.dedup.document_order import document_numbers
from pipeline_assets.corpus.dedup.exact_copies import ExactCopies
from pipeline_assets.corpus.dedup.signature_store import SeenStore, seen_store_names
from pipeline_assets.corpus.dedup.sketches import IDS_WORK_FOLDER
from pipeline_assets.corpus.dedup.sorted_runs import KeyRange, Runs, ranges_between, read_rows, read_run, write_run
from pipeline_assets.corpus.formats.arrow_columns import bool_column, to_arrow, to_numpy, to_table
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView
from pipeline_assets.spine.task import Task

_NO_EDGE = -1
_NEAR_FOLDER, _DROPPED_ORIGINALS_FILE = f"{WORK_FOLDER}/near", f"{WORK_FOLDER}/of_firsts.run"


@dataclass(frozen=True)
class NearDuplicates:
    """Near duplicates of a corpus; empty if the recipe does not request them.

    Attributes:
        runs: Runs of near duplicates, with the columns of `drop_near_duplicates`.
        dropped_originals_file: Run of near duplicates that are originals of exact copies.
        edge_runs: Runs of all edges, sorted by the later document of each edge.
        counts: Counts of the comparison, for the manifest.
    """

    runs: Runs = ()
    dropped_originals_file: Path | None = None
    edge_runs: Runs = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def resolve_edges(dedup: DedupRun, edge_runs: Runs, copies: ExactCopies, counts: Mapping[str, int]) -> NearDuplicates:
    """Find the documents to drop because of edges, and write them as runs.

    `edge_runs` are runs of `verify_pairs`, sorted by the later document of each edge. The result contains `counts`.
    """
    dropped_bitmap, originals = empty_bitmap(dedup.document_count), dedup.document_bitmap(copies.runs, "first")
    runs, dropped_originals = [], []
    for number, table in enumerate(drop_near_duplicates(map(dedup.read_run, edge_runs), dropped_bitmap)):
        runs.append(write_run(dedup.staging, f"{_NEAR_FOLDER}/{number:05d}.run", table))
        dropped_originals.append(table.filter(bool_column(bitmap_contains(to_numpy(table["number"]), originals))))
    originals_table = pa.concat_tables(dropped_originals).sort_by("number")
    originals_run = write_run(dedup.staging, _DROPPED_ORIGINALS_FILE, originals_table)
    return NearDuplicates(runs, dedup.staging.path(originals_run.path), edge_runs, counts)


def drop_near_duplicates(edge_tables: Iterable[pa.Table], dropped_bitmap: NDArray[np.uint8]) -> Iterator[pa.Table]:
    """Yield, per table of edges, a table of dropped documents, sorted by `number`.

    Columns: `number` of the dropped document; `first` and `first_id`, the priority and id of its kept document; and
    `shared`, `shingles` and `other_shingles` as in `verify_pairs`. If several kept documents are similar, the row names
    the most similar one; ties go to the first edge. The dropped documents are added to `dropped_bitmap`.
    """
    for edges in edge_tables:
        later, earlier = to_numpy(edges["later"]), to_numpy(edges["earlier"])
        shared = to_numpy(edges["shared"])
        union = to_numpy(edges["shingles"]) + to_numpy(edges["other_shingles"]) - shared
        chosen = _choose_edges(later, earlier, shared, union, dropped_bitmap)
        chosen = chosen[np.argsort(document_numbers(later[chosen]))]
        selected = edges.take(to_arrow(chosen))
        kept = {"first": selected["earlier"], "first_id": selected["other_doc_id"]}
        sizes = {name: selected[name] for name in ("shared", "shingles", "other_shingles")}
        yield to_table({"number": document_numbers(later[chosen])} | kept | sizes)


@compiled
def _choose_edges(
    later_priorities: NDArray[np.uint64],
    earlier_priorities: NDArray[np.uint64],
    intersection_sizes: NDArray[np.int64],
    union_sizes: NDArray[np.int64],
    dropped_bitmap: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Add near duplicates to `dropped_bitmap`; return the index of one edge for each.

    The first four arrays have the shape (edges,) and are sorted by `later_priorities`. The indices refer to these
    arrays.
    """
    chosen = np.empty(len(later_priorities), np.int64)
    count = start = 0
    while start < len(later_priorities):
        best = _NO_EDGE
        stop = start
        # Among the edges from one later document to kept documents, find the most similar one.
        while stop < len(later_priorities) and later_priorities[stop] == later_priorities[start]:
            # Compare shared / union of both edges, multiplied by both unions: exact in integers. Ties keep the first.
            if not is_member(dropped_bitmap, earlier_priorities[stop]) and (
                best == _NO_EDGE
                or intersection_sizes[stop] * union_sizes[best] > intersection_sizes[best] * union_sizes[stop]
            ):
                best = stop
            stop += 1
        if best != _NO_EDGE:
            chosen[count] = best
            count += 1
            add_to_bitmap(dropped_bitmap, later_priorities[start : start + 1])
        start = stop
    return chosen[:count]


_DECISIONS_FOLDER, _DROPPED_FOLDER = f"{WORK_FOLDER}/decisions", f"{WORK_FOLDER}/dropped"


class _DropDecision(NamedTuple):
    """Decision to drop a document in favour of the document `kept_number`."""

    kept_number: int
    outcome: Outcome
    duplicate_of: str
    similarity: float
    containment: float
    copy_of: str | None
    seen_in: str | None


def write_decisions(
    dedup: DedupRun, sketch_receipts: Sequence[Receipt], exact_copies: ExactCopies, near_duplicates: NearDuplicates
) -> list[Receipt]:
    """Write the decisions on all documents, by running `decide_shard` on each shard."""
    bounds = [*(shard.first_number for shard in dedup.shards), dedup.document_count]
    copy_ranges = ranges_between(dedup.staging, exact_copies.runs, bounds)
    near_ranges = ranges_between(dedup.staging, near_duplicates.runs, bounds)
    seen_stores = [replace(store, set_files=()) for store in dedup.seen_stores]
    common = near_duplicates.dropped_originals_file, seen_stores, dedup.settings.zstd_level
    tasks = []
    for shard, sketch, *ranges in zip(dedup.shards, sketch_receipts, copy_ranges, near_ranges, strict=True):
        id_runs = [dedup.staging.path(file.path) for file in files_in([sketch], IDS_WORK_FOLDER)]
        tasks.append(Task.bind(decide_shard, shard, id_runs, *ranges, *common))
    return dedup.run_tasks("decide", tasks)


def decide_shard(
    shard: CorpusShard,
    id_runs: Sequence[Path],
    copy_range: KeyRange | None,
    near_range: KeyRange | None,
    dropped_originals_file: Path | None,
    seen_stores: Sequence[SeenStore],
    zstd_level: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Write the decisions on a shard's documents, in the order of its rows.

    `id_runs` have the priorities and ids of the shard's documents. `copy_range` and `near_range` have the shard's exact
    copies and near duplicates; None if the recipe does not request them. For `dropped_originals_file` see
    `NearDuplicates`.

    In a decision, `copy_of` is the id of an exact copy's original, and `duplicate_of` is the id of a kept document. So
    if an original is dropped as a near duplicate, its copies get the original's decision, with `copy_of` added.

    The files are the decisions, the row numbers of the dropped documents, and for each of them the number of the kept
    document; numbers are int64. The receipt counts kept documents as `out`, dropped ones as `exact_duplicate` or
    `near_duplicate`. `of_seen` counts documents that duplicate a document of a signature store.
    """
    counts = {"out": 0, "exact_duplicate": 0, "near_duplicate": 0, "of_seen": 0}
    name, stem = f"{_DECISIONS_FOLDER}/{shard.name}{SUFFIX}", f"{_DROPPED_FOLDER}/{shard.name}"
    dropped: list[tuple[int, int]] = []
    copied, similar = (key_range and key_range.table() for key_range in (copy_range, near_range))
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for run in id_runs:
            table = read_run(run)
            numbers = document_numbers(to_numpy(table["order"]))
            decisions: dict[int, _DropDecision] = {}
            if similar is not None:
                decisions |= _near_drop_decisions(_select_number_range(similar, numbers), seen_stores)
            if copied is not None:
                copies = _select_number_range(copied, numbers)
                decisions |= _exact_drop_decisions(copies, dropped_originals_file, seen_stores)
            lines = []
            for number, doc_id in zip(numbers.tolist(), table["doc_id"].to_pylist(), strict=True):
                row, decision = number - shard.first_number, decisions.get(number)
                outcome: Outcome = "kept" if decision is None else decision.outcome
                evidence = () if decision is None else decision[2:]
                lines.append(Decision(doc_id, shard.source, outcome, DECISION_RULE, shard.path, row, *evidence))
                if decision is None:
                    counts["out"] += 1
                else:
                    counts[outcome] += 1
                    counts["of_seen"] += decision.seen_in is not None
                    dropped.append((row, decision.kept_number))
            writer.write_rows(lines)
    rows, kept = np.array(dropped, np.int64).reshape(-1, 2).T
    files = [folder.write(f"{stem}.rows", rows.tobytes()), folder.write(f"{stem}.kept", kept.tobytes())]
    return Receipt([writer.output(name), *files], counts)


def _select_number_range(table: pa.Table, bounds: NDArray[np.uint64]) -> pa.Table:
    """Return rows with `bounds[0] <= number <= bounds[-1]`; none if `bounds` is empty."""
    numbers = to_numpy(table["number"])
    return table.filter(bool_column((numbers >= bounds[:1]) & (numbers <= bounds[-1:])))


def _exact_drop_decisions(
    copies: pa.Table, dropped_originals_file: Path | None, seen_stores: Sequence[SeenStore]
) -> dict[int, _DropDecision]:
    """Return the decisions to drop exact copies, by document number."""
    firsts = document_numbers(to_numpy(copies["first"]))
    original_decisions: dict[int, _DropDecision] = {}
    if dropped_originals_file is not None:
        original_decisions = _near_drop_decisions(read_rows(dropped_originals_file, np.unique(firsts)), seen_stores)
    columns = (copies["number"], copies["first_id"], seen_store_names(to_numpy(copies["first"]), seen_stores))
    rows = zip(firsts.tolist(), *(column.to_pylist() for column in columns), strict=True)
    decisions = {}
    for first_number, number, first_id, seen_in in rows:
        exact = _DropDecision(first_number, "exact_duplicate", first_id, 1.0, 1.0, None, seen_in)
        decisions[number] = original_decisions.get(first_number, exact)._replace(copy_of=first_id)
    return decisions


def _near_drop_decisions(table: pa.Table, seen_stores: Sequence[SeenStore]) -> dict[int, _DropDecision]:
    """Return the decisions to drop near duplicates, by document number."""
    shared, size, other = (to_numpy(table[name]) for name in ("shared", "shingles", "other_shingles"))
    firsts = to_numpy(table["first"])
    measured = (document_numbers(firsts), shared / (size + other - shared), shared / size)
    columns = (table["number"], table["first_id"], seen_store_names(firsts, seen_stores))
    rows = zip(*(column.to_pylist() for column in columns), *(values.tolist() for values in measured), strict=True)
    return {
        number: _DropDecision(first, "near_duplicate", first_id, similarity, containment, None, seen_in)
        for number, first_id, seen_in, first, similarity, containment in rows
    }
