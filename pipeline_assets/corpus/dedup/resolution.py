"""What becomes of documents: which of them go, by the greedy rule in one walk along the edges; a line for each of a
shard, and those that stay, byte for byte as they were; the largest groups that come of it.

Documents in their order; one is dropped if and only if a kept one before it is an edge away. So no chain of
almost-likes drags in what is unlike the document that stays, and of a family of templates each that is unlike all kept
ones stays. A document's fate depends on those before it alone, and edges come in the order of the later document: one
walk with a bit for each document settles all, whatever components there are.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup import steps
from pipeline_assets.corpus.dedup.candidates import ExactCopies
from pipeline_assets.corpus.dedup.decision import RULE, Decision, Outcome
from pipeline_assets.corpus.dedup.sketches import FATAL, IDS
from pipeline_assets.corpus.document import RAW_DOCUMENTS
from pipeline_assets.corpus.document_shards import SHARDS, decode, read_lines
from pipeline_assets.corpus.formats.arrow_columns import mask, numbers, to_array, to_table
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.stage import Task, Window
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

_NONE = -1
_NEAR, _OF_FIRSTS = f"{WORK}/near", f"{WORK}/of_firsts.parquet"


@dataclass(frozen=True)
class NearDuplicates:
    """Near duplicates of a corpus; none where they aren't looked for.

    Attributes:
        runs: of them, see `near_duplicates`.
        first_copies: those of which exact copies left before, in one run.
        edges: runs of all edges, in the order of their ranges.
        counts: of how they came about.
    """

    runs: steps.Runs = ()
    first_copies: Path | None = None
    edges: steps.Runs = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def resolve_clusters(
    dedup: steps.DedupRun, edges: steps.Runs, exact: ExactCopies, counts: Mapping[str, int]
) -> NearDuplicates:
    """Who goes, by the edges: runs of them in the order of their ranges; `counts` of how they came about."""
    dropped, firsts = steps.empty_bitmap(dedup.documents), dedup.documents_in(exact.runs, "first")
    names, of_firsts = [], []
    for number, table in enumerate(near_duplicates(edges, dropped)):
        names.append(steps.write_run(dedup.building, f"{_NEAR}/{number:05d}.parquet", table).path)
        of_firsts.append(table.filter(mask(steps.bitmap_contains(numbers(table["number"]), firsts))))
    names.append(steps.write_run(dedup.building, _OF_FIRSTS, pa.concat_tables(of_firsts).sort_by("number")).path)
    *runs, run_of_firsts = map(dedup.building.path, names)
    return NearDuplicates(tuple(runs), run_of_firsts, edges, counts)


def near_duplicates(runs: Sequence[Path], dropped: NDArray[np.uint8]) -> Iterator[pa.Table]:
    """The edges by which documents go, of each run those: `number` of the document, `first` the order of the one that
    stays, and the edge's other columns; by number.

    A document that is an edge away from several kept ones goes for the most similar, of equals the first.

    Args:
        runs: of edges, as `verify` writes them, in the order of their ranges.
        dropped: the documents that go are put into this set.
    """
    for run in runs:
        edges = read_columns(run)
        later, earlier = numbers(edges["later"]), numbers(edges["earlier"])
        shared = numbers(edges["shared"])
        union = numbers(edges["shingles"]) + numbers(edges["other_shingles"]) - shared
        chosen = _walk(later, earlier, shared, union, dropped)
        chosen = chosen[np.argsort(steps.document_numbers(later[chosen]))]
        found = edges.take(to_array(chosen))
        first = {
            "number": steps.document_numbers(later[chosen]),
            "first": found["earlier"],
            "first_id": found["other_doc_id"],
        }
        yield to_table(first | {name: found[name] for name in ("shared", "shingles", "other_shingles")})


@compiled
def _walk(
    later: NDArray[np.uint64],
    earlier: NDArray[np.uint64],
    shared: NDArray[np.int64],
    union: NDArray[np.int64],
    dropped: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Of each document that goes, the edge by which it does."""
    chosen = np.empty(len(later), np.int64)
    number = start = 0
    while start < len(later):
        best = _NONE
        stop = start
        while stop < len(later) and later[stop] == later[start]:
            if not steps.is_member(dropped, earlier[stop]) and (
                best == _NONE or shared[stop] * union[best] > shared[best] * union[stop]
            ):
                best = stop
            stop += 1
        if best != _NONE:
            chosen[number] = best
            number += 1
            steps.add_to_bitmap(dropped, later[start : start + 1])
        start = stop
    return chosen[:number]


DECISIONS, DROPPED = f"{WORK}/decisions", f"{WORK}/dropped"
SAMPLES = "samples"
_SAMPLE_CHARACTERS = 400
_encoder = msgspec.json.Encoder()


_DROPPED = np.dtype([("row", "<i8"), ("kept", "<u8")])  # a row that goes, and the number of the document that stays


class _Fate(NamedTuple):
    """Why a document goes: the number of the one that stays, and attributes of its `Decision`."""

    kept: int
    outcome: Outcome
    duplicate_of: str
    similarity: float
    containment: float
    copy_of: str | None
    seen_in: str | None


def write_decisions(
    dedup: steps.DedupRun, sketched: Sequence[Receipt], exact: ExactCopies, near: NearDuplicates
) -> list[Receipt]:
    """Receipts of `decide_shard`, one a shard."""
    rules = (exact, near, tuple(dedup.seen), dedup.settings.zstd_level)
    ids = (dedup.runs([sketch], IDS) for sketch in sketched)
    of_shards = zip(dedup.shards, ids, strict=True)
    return dedup.run("decide", (Task.for_kernel(decide_shard, shard, own, *rules) for shard, own in of_shards))


def decide_shard(
    shard: CorpusShard,
    ids: steps.Runs,
    exact: ExactCopies,
    near: NearDuplicates,
    seen: Sequence[steps.SeenStore],
    zstd_level: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """The shard's decisions, in the order of its rows.

    An exact copy of a document that itself goes as a near duplicate goes for the same one: what stands in
    `duplicate_of` is always kept.

    Files: the lines; the rows that go, as `_GONE`. Counts, as the manifest has them of a source: `out`, those that
    stay, `exact_duplicate`, `near_duplicate`; `of_seen`, of those that go for one seen before.

    Args:
        ids: runs of the shard's documents and their ids.
        seen: stores whose documents came before.
    """
    counts = {"out": 0, "exact_duplicate": 0, "near_duplicate": 0, "of_seen": 0}
    name, rows_name = f"{DECISIONS}/{shard.name}{SUFFIX}", f"{DROPPED}/{shard.name}.rows"
    gone: list[tuple[int, int]] = []
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for run in ids:
            table = read_columns(run)
            found = steps.document_numbers(numbers(table["order"]))
            fates = _fates(int(found[0]), int(found[-1]) + 1, exact, near, seen) if len(found) else {}
            lines = []
            for number, doc_id in zip(found.tolist(), table["doc_id"].to_pylist(), strict=True):
                row, fate = number - shard.first_number, fates.get(number)
                outcome: Outcome = "kept" if fate is None else fate.outcome
                why = () if fate is None else fate[2:]
                lines.append(Decision(doc_id, shard.source, outcome, RULE, shard.path, row, *why))
                if fate is None:
                    counts["out"] += 1
                else:
                    counts[outcome] += 1
                    counts["of_seen"] += fate.seen_in is not None
                    gone.append((row, fate.kept))
            writer.write_lines(_encoder.encode_lines(lines), len(lines))
    with DurableFile(folder.path(rows_name)) as file:
        file.write(np.array(gone, _DROPPED).tobytes())
    return Receipt([writer.output(name), OutputFile.plain(rows_name, len(gone), file)], counts)


def _fates(
    first: int, stop: int, exact: ExactCopies, near: NearDuplicates, seen: Sequence[steps.SeenStore]
) -> dict[int, _Fate]:
    """Of the documents with numbers from `first` to before `stop` those that go, by number."""
    fates: dict[int, _Fate] = {}
    if near.runs:
        fates |= _near(steps.KeyRange(first, stop, near.runs), seen)
    if exact.runs:
        copies = steps.KeyRange(first, stop, exact.runs).table()
        firsts = steps.document_numbers(numbers(copies["first"]))
        of_firsts: dict[int, _Fate] = {}
        if near.first_copies is not None and len(firsts):
            of_firsts = _near(steps.KeyRange(int(firsts.min()), int(firsts.max()) + 1, (near.first_copies,)), seen)
        columns = (copies["number"], copies["first_id"], steps.open_stores(numbers(copies["first"]), seen))
        rows = zip(firsts.tolist(), *(column.to_pylist() for column in columns), strict=True)
        for first_number, number, first_id, seen_in in rows:
            own = _Fate(first_number, "exact_duplicate", first_id, 1.0, 1.0, None, seen_in)
            fates[number] = of_firsts.get(first_number, own)._replace(copy_of=first_id)
    return fates


def _near(of: steps.KeyRange, seen: Sequence[steps.SeenStore]) -> dict[int, _Fate]:
    table = of.table()
    shared, own, other = (numbers(table[name]) for name in ("shared", "shingles", "other_shingles"))
    firsts = numbers(table["first"])
    measured = (steps.document_numbers(firsts), shared / (own + other - shared), shared / own)
    columns = (table["number"], table["first_id"], steps.open_stores(firsts, seen))
    rows = zip(*(column.to_pylist() for column in columns), *(one.tolist() for one in measured), strict=True)
    return {
        number: _Fate(first, "near_duplicate", first_id, similarity, containment, None, seen_in)
        for number, first_id, seen_in, first, similarity, containment in rows
    }


GROUPS, MEMBERS = 10, 3  # so many are shown, with so many of the documents that went
_AT_A_TIME = 1 << 24


@dataclass(frozen=True)
class LargeGroup:
    """A group by the numbers of its documents: the one that stays, how many have gone for it, the first of those."""

    kept: int
    dropped: int
    members: Sequence[int]


def largest_groups(dedup: steps.DedupRun, decisions: Sequence[Receipt]) -> list[LargeGroup]:
    """The groups from which most documents went, the largest first, of equals the one whose document comes first.

    Memory is four bytes for each of so many documents at a time, and what goes of one shard.
    """
    of_shards = [dedup.building.path(decision.files[1].path) for decision in decisions]
    found: list[tuple[int, int]] = []  # minus how many went, and for which document
    for start in range(0, dedup.documents, _AT_A_TIME):
        gone = np.zeros(min(_AT_A_TIME, dedup.documents - start), np.uint32)
        for path in of_shards:
            places = np.fromfile(path, _DROPPED)["kept"].astype(np.int64) - start
            np.add.at(gone, places[(places >= 0) & (places < len(gone))], np.uint32(1))
        least = np.partition(gone, -GROUPS)[-GROUPS] if len(gone) > GROUPS else 0
        large = np.flatnonzero(gone >= max(int(least), 1))
        candidates = zip((-gone[large].astype(np.int64)).tolist(), (large + start).tolist(), strict=True)
        found = heapq.nsmallest(GROUPS, [*found, *candidates])
    members: dict[int, list[int]] = {number: [] for _, number in found}
    for shard, path in zip(dedup.shards, of_shards, strict=True):
        own = np.fromfile(path, _DROPPED)
        for row, kept in own[np.isin(own["kept"], np.array([*members], np.uint64))].tolist():
            if len(members[kept]) < MEMBERS:
                members[kept].append(shard.first_number + row)
    return [LargeGroup(number, -negated, members[number]) for negated, number in found]


def write_kept(
    dedup: steps.DedupRun, sketched: Sequence[Receipt], decisions: Sequence[Receipt], groups: Sequence[LargeGroup]
) -> list[Receipt]:
    """Receipts of `keep_documents`, one a shard; samples are what is shown of groups."""
    samples = {number for group in groups for number in (group.kept, *group.members)}
    tasks = []
    for shard, sketch, decision in zip(dedup.shards, sketched, decisions, strict=True):
        rows = (number - shard.first_number for number in samples)
        sampled = frozenset(row for row in rows if 0 <= row < shard.rows)
        dropped, fatal = dedup.building.path(decision.files[1].path), frozenset(sketch.notes[FATAL])
        tasks.append(Task.for_kernel(keep_documents, shard, dropped, fatal, sampled, dedup.settings.zstd_level))
    return dedup.run("keep", tasks)


def keep_documents(
    shard: CorpusShard,
    dropped: Path,
    fatal: frozenset[int],
    sampled: frozenset[int],
    zstd_level: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """The documents that stay, in order.

    Counts: `documents`, and `dropped_bytes` of the texts that go. Notes: `samples`, ids and beginnings of the texts of
    sampled rows, by row.

    Args:
        dropped: the file of those that go, see `decide_shard`.
        fatal: rows that kill their worker.
    """
    gone = frozenset(np.fromfile(dropped, _DROPPED)["row"].tolist())
    dropped_bytes = 0
    samples: dict[str, list[str]] = {}
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for lines, _ in read_lines(shard, window):
            kept = [line + b"\n" for row, line in lines if row not in gone and row not in fatal]
            writer.write_lines(b"".join(kept), len(kept))
            read = [one for one in lines if one.row in gone or one.row in sampled]
            for (row, _), document in zip(read, decode(read, shard, RAW_DOCUMENTS), strict=True):
                if row in gone:
                    dropped_bytes += len(document.text.encode())
                if row in sampled:
                    samples[str(row)] = [document.doc_id, document.text[:_SAMPLE_CHARACTERS]]
    counts = {"documents": writer.rows, "dropped_bytes": dropped_bytes}
    return Receipt([writer.output(name)], counts, {SAMPLES: samples})
