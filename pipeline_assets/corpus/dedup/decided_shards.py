"""What became of each document of a shard, a line each, and those that stay, byte for byte as they were."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from pipeline_assets.corpus.dedup.clusters import ExactCopies, NearDuplicates
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, line_blocks, read_documents
from pipeline_assets.corpus.dedup.decision import RULE, Decision, Outcome
from pipeline_assets.corpus.dedup.order import KeyRange, Runs, document_numbers
from pipeline_assets.corpus.dedup.seen import SeenStore, stores_of
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window

DECISIONS, DROPPED = f"{WORK}/decisions", f"{WORK}/dropped"
SAMPLES = "samples"
_SAMPLE_CHARACTERS = 400
_encoder = msgspec.json.Encoder()


class _Fate(NamedTuple):
    """Why a document goes: attributes of its `Decision`."""

    outcome: Outcome
    duplicate_of: str
    similarity: float
    containment: float
    copy_of: str | None
    seen_in: str | None


def decide_shard(
    shard: CorpusShard,
    ids: Runs,
    exact: ExactCopies,
    near: NearDuplicates,
    seen: Sequence[SeenStore],
    zstd_level: int,
    window: Window,
    folder: BuildFolder,
) -> Receipt:
    """The shard's decisions, in the order of its rows.

    An exact copy of a document that itself goes as a near duplicate goes for the same one: what stands in
    `duplicate_of` is always kept.

    Files: the lines; the rows that go, int64. Counts, as the manifest has them of a source: `out`, those that stay,
    `exact_duplicate`, `near_duplicate`; `of_seen`, of those that go for one seen before.

    Args:
        ids: runs of the shard's documents and their ids.
        seen: stores whose documents came before.
    """
    counts = {"out": 0, "exact_duplicate": 0, "near_duplicate": 0, "of_seen": 0}
    name, rows_name = f"{DECISIONS}/{shard.name}{SUFFIX}", f"{DROPPED}/{shard.name}.rows"
    dropped: list[int] = []
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for run in ids:
            table = read_columns(run)
            found = document_numbers(numbers(table["order"]))
            fates = _fates(int(found[0]), int(found[-1]) + 1, exact, near, seen) if len(found) else {}
            lines = []
            for number, doc_id in zip(found.tolist(), table["doc_id"].to_pylist(), strict=True):
                row, fate = number - shard.first_number, fates.get(number)
                outcome: Outcome = "kept" if fate is None else fate.outcome
                why = () if fate is None else fate[1:]
                lines.append(Decision(doc_id, shard.source, outcome, RULE, shard.path, row, *why))
                if fate is None:
                    counts["out"] += 1
                else:
                    counts[outcome] += 1
                    counts["of_seen"] += fate.seen_in is not None
                    dropped.append(row)
            writer.write_lines(_encoder.encode_lines(lines), len(lines))
    with DurableFile(folder.path(rows_name)) as file:
        file.write(np.array(dropped, np.int64).tobytes())
    return Receipt([writer.output(name), OutputFile.plain(rows_name, len(dropped), file)], counts)


def _fates(
    first: int, stop: int, exact: ExactCopies, near: NearDuplicates, seen: Sequence[SeenStore]
) -> dict[int, _Fate]:
    """Of the documents with numbers from `first` to before `stop` those that go, by number."""
    fates: dict[int, _Fate] = {}
    if near.runs:
        fates |= _near(KeyRange(first, stop, near.runs), seen)
    if exact.runs:
        copies = KeyRange(first, stop, exact.runs).table()
        firsts = document_numbers(numbers(copies["first"]))
        of_firsts: dict[int, _Fate] = {}
        if near.of_firsts is not None and len(firsts):
            of_firsts = _near(KeyRange(int(firsts.min()), int(firsts.max()) + 1, (near.of_firsts,)), seen)
        columns = (copies["number"], copies["first_id"], stores_of(numbers(copies["first"]), seen))
        rows = zip(firsts.tolist(), *(column.to_pylist() for column in columns), strict=True)
        for first_number, number, first_id, seen_in in rows:
            fate = of_firsts.get(first_number) or _Fate("exact_duplicate", first_id, 1.0, 1.0, None, seen_in)
            fates[number] = fate._replace(copy_of=first_id)
    return fates


def _near(of: KeyRange, seen: Sequence[SeenStore]) -> dict[int, _Fate]:
    table = of.table()
    shared, own, other = (numbers(table[name]) for name in ("shared", "shingles", "other_shingles"))
    similarities, containments = shared / (own + other - shared), shared / own
    columns = (table["number"], table["first_id"], stores_of(numbers(table["first"]), seen))
    rows = zip(*(column.to_pylist() for column in columns), similarities.tolist(), containments.tolist(), strict=True)
    return {
        number: _Fate("near_duplicate", first_id, similarity, containment, None, seen_in)
        for number, first_id, seen_in, similarity, containment in rows
    }


def keep_documents(
    shard: CorpusShard,
    dropped: Path,
    fatal: frozenset[int],
    sampled: frozenset[int],
    zstd_level: int,
    window: Window,
    folder: BuildFolder,
) -> Receipt:
    """The documents that stay, in order.

    Counts: `documents`, and `dropped_bytes` of the texts that go. Notes: `samples`, ids and beginnings of the texts of
    sampled rows, by row.

    Args:
        dropped: the file of those that go, see `decide_shard`.
        fatal: rows that kill their worker.
    """
    gone = frozenset(np.fromfile(dropped, np.int64).tolist())
    dropped_bytes = 0
    samples: dict[str, list[str]] = {}
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for lines, _ in line_blocks(shard, window):
            kept = [line + b"\n" for row, line in lines if row not in gone and row not in fatal]
            writer.write_lines(b"".join(kept), len(kept))
            read = [one for one in lines if one.row in gone or one.row in sampled]
            for (row, _), document in zip(read, read_documents(read, shard), strict=True):
                if row in gone:
                    dropped_bytes += len(document.text.encode())
                if row in sampled:
                    samples[str(row)] = [document.doc_id, document.text[:_SAMPLE_CHARACTERS]]
    counts = {"documents": writer.rows, "dropped_bytes": dropped_bytes}
    return Receipt([writer.output(name)], counts, {SAMPLES: samples})
