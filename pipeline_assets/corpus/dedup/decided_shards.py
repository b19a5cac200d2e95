"""What became of each document of a shard, a line each, and those that stay, byte for byte as they were."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.corpus_shard import OfShard, line_blocks, read_fields
from pipeline_assets.corpus.dedup.decision import RULE, Decision, Outcome
from pipeline_assets.corpus.dedup.order import document_numbers, read_range
from pipeline_assets.corpus.dedup.seen import SeenStore, store_of
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window

DECISIONS, DROPPED = f"{WORK}/decisions", f"{WORK}/dropped"
_COUNTED: Mapping[Outcome, str] = {
    "kept": "kept",
    "exact_duplicate": "exact_duplicates",
    "near_duplicate": "near_duplicates",
}
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class DecidedShard(OfShard):
    """One shard of the corpus, and the runs that say what is dropped.

    Attributes:
        ids: runs of its documents' ids.
        exact: runs of exact copies, see `find_copies`.
        near: runs of near duplicates, see `near_duplicates`.
        of_firsts: those near duplicates that have exact copies, one run; None where there are none.
        seen: stores whose documents came before.
    """

    ids: tuple[Path, ...]
    exact: tuple[Path, ...]
    near: tuple[Path, ...]
    of_firsts: Path | None
    seen: tuple[SeenStore, ...]


class _Fate(NamedTuple):
    """Why a document goes: attributes of its `Decision`."""

    outcome: Outcome
    duplicate_of: str
    similarity: float
    containment: float
    copy_of: str | None
    seen_in: str | None


def decide_shard(shard: DecidedShard, window: Window, folder: BuildFolder, zstd_level: int) -> Receipt:
    """The shard's decisions, in the order of its rows.

    An exact copy of a document that itself goes as a near duplicate goes for the same one: what stands in
    `duplicate_of` is always kept.

    Files: the lines; the rows that go, int64. Counts: `exact_duplicates`, `near_duplicates`, `kept`; `seen`, of
    those that go for one seen before.
    """
    counts = {**dict.fromkeys(_COUNTED.values(), 0), "seen": 0}
    corpus_shard = shard.shard
    name = f"{DECISIONS}/{shard.name}{SUFFIX}"
    dropped: list[int] = []
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for run in shard.ids:
            ids = read_columns(run)
            found = document_numbers(numbers(ids["order"]))
            fates = _fates(shard, int(found[0]), int(found[-1]) + 1) if len(found) else {}
            lines = []
            for number, doc_id in zip(found.tolist(), ids["doc_id"].to_pylist(), strict=True):
                row = number - corpus_shard.first_number
                fate = fates.get(number)
                outcome: Outcome = "kept" if fate is None else fate.outcome
                why = () if fate is None else fate[1:]
                lines.append(Decision(doc_id, corpus_shard.source, outcome, RULE, corpus_shard.path, row, *why))
                if fate is not None:
                    dropped.append(row)
                    counts["seen"] += fate.seen_in is not None
                counts[_COUNTED[outcome]] += 1
            writer.write_lines(_encoder.encode_lines(lines), len(lines))
    rows_name = f"{DROPPED}/{shard.name}.rows"
    with DurableFile(folder.path(rows_name)) as file:
        file.write(np.array(dropped, np.int64).tobytes())
    rows = OutputFile.plain(rows_name, len(dropped), file)
    return Receipt([writer.output(name), rows], counts)


def dropped_rows(file: Path) -> NDArray[np.int64]:
    """The rows that `decide_shard` wrote, ascending."""
    return np.fromfile(file, np.int64)


def _fates(shard: DecidedShard, first: int, stop: int) -> dict[int, _Fate]:
    """Of the documents with numbers from `first` to before `stop` those that go, by number."""
    fates: dict[int, _Fate] = {}
    if shard.near:
        fates |= _near(read_range(shard.near, first, stop), shard.seen)
    if shard.exact:
        copies = read_range(shard.exact, first, stop)
        firsts = document_numbers(numbers(copies["first"]))
        of_firsts: dict[int, _Fate] = {}
        if shard.of_firsts is not None and len(firsts):
            of_firsts = _near(read_range([shard.of_firsts], int(firsts.min()), int(firsts.max()) + 1), shard.seen)
        rows = zip(numbers(copies["number"]).tolist(), firsts.tolist(), copies["first_id"].to_pylist(), strict=True)
        for number, first_number, first_id in rows:
            fate = of_firsts.get(first_number)
            if fate is None:
                seen_in = _name(store_of(shard.seen, first_number))
                fate = _Fate("exact_duplicate", first_id, 1.0, 1.0, None, seen_in)
            fates[number] = fate._replace(copy_of=first_id)
    return fates


def _near(table: pa.Table, seen: Sequence[SeenStore]) -> dict[int, _Fate]:
    firsts = document_numbers(numbers(table["first"])).tolist()
    columns = (table[name].to_pylist() for name in ("number", "first_id", "shared", "shingles", "other_shingles"))
    fates = {}
    for first, number, first_id, shared, own, other in zip(firsts, *columns, strict=True):
        similarity, seen_in = shared / (own + other - shared), _name(store_of(seen, first))
        fates[number] = _Fate("near_duplicate", first_id, similarity, shared / own, None, seen_in)
    return fates


def _name(store: SeenStore | None) -> str | None:
    return None if store is None else store.name


SAMPLES = "samples"
_SAMPLE_CHARACTERS = 400


@dataclass(frozen=True)
class KeptShard(OfShard):
    """A shard; of its rows those that go (see `dropped_rows`), those that kill their worker, and samples."""

    dropped: Path
    fatal: frozenset[int]
    sampled: frozenset[int] = frozenset()


def keep_documents(shard: KeptShard, window: Window, folder: BuildFolder, zstd_level: int) -> Receipt:
    """The documents that stay, in order.

    Counts: `documents`, and `dropped_bytes` of the texts that go. Notes: `samples`, ids and beginnings of the texts of
    sampled rows, by row.
    """
    dropped = frozenset(dropped_rows(shard.dropped).tolist())
    goes = dropped | shard.fatal | window.fatal
    dropped_bytes = 0
    samples: dict[str, list[str]] = {}
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for lines in line_blocks(shard.shard, window):
            kept = [line for row, line in lines if row not in goes and line is not None]
            for row, line in lines:
                if line is not None and (row in dropped or row in shard.sampled):
                    document = read_fields(line, shard.shard, row)
                    if row in dropped:
                        dropped_bytes += len(document.text.encode())
                    if row in shard.sampled:
                        samples[str(row)] = [document.doc_id, document.text[:_SAMPLE_CHARACTERS]]
            if kept:
                writer.write_lines(b"\n".join([*kept, b""]), len(kept))
    counts = {"documents": writer.rows, "dropped_bytes": dropped_bytes}
    return Receipt([writer.output(name)], counts, {SAMPLES: samples})
