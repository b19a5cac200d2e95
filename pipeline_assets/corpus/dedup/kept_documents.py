"""Kept documents of a deduplicated corpus, byte for byte as in its input."""

from collections.abc import Sequence

import numpy as np

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.dedup_run import DedupRun
from pipeline_assets.corpus.dedup.groups import LargeGroup
from pipeline_assets.corpus.dedup.sketches import POISON_ROWS_NOTE
from pipeline_assets.corpus.document_lines import decode_lines, read_lines
from pipeline_assets.corpus.document_shards import SHARDS_FOLDER
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.partial_documents import RAW_DECODER
from pipeline_assets.corpus.sealed_shards import link_if_equal, link_shard
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staged_input import StagedInput
from pipeline_assets.spine.staging import Receipt, StagingView
from pipeline_assets.spine.task import Task

SAMPLES_NOTE = "samples"
_SAMPLE_CHARACTERS = 400


def write_kept_documents(
    dedup: DedupRun,
    sketch_receipts: Sequence[Receipt],
    decision_receipts: Sequence[Receipt],
    groups: Sequence[LargeGroup],
) -> list[Receipt]:
    """Write the kept documents, by running `write_kept_shard` on each shard."""
    zstd_level = dedup.settings.zstd_level
    samples = {number for group in groups for number in (group.kept_number, *group.dropped_numbers)}
    tasks = []
    for shard, sketch, decision in zip(dedup.shards, sketch_receipts, decision_receipts, strict=True):
        rows = (number - shard.first_number for number in samples)
        sampled_rows = frozenset(row for row in rows if 0 <= row < shard.rows)
        dropped_rows_file = StagedInput.from_output(dedup.staging, decision.files[1])
        poison = frozenset(sketch.notes[POISON_ROWS_NOTE])
        tasks.append(Task.bind(write_kept_shard, shard.unnumbered, dropped_rows_file, poison, sampled_rows, zstd_level))
    return dedup.run_tasks("keep", tasks)


def write_kept_shard(
    shard: CorpusShard,
    dropped_rows_file: StagedInput,
    poison_rows: frozenset[int],
    sampled_rows: frozenset[int],
    zstd_level: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Write the kept documents of a shard in order; link the shard if all are kept.

    `dropped_rows_file` is from `decide_shard`. `poison_rows` are omitted too. `sampled_rows` are the rows of the
    documents to show in the report.

    The receipt counts kept documents as `documents`, and the UTF-8 size of dropped texts as `dropped_bytes`. The note
    `samples` maps each row number in `sampled_rows`, as a string, to the id and the beginning of its document.
    """
    dropped_rows = frozenset(np.frombuffer(dropped_rows_file.read(), np.int64).tolist())
    dropped_bytes = 0
    samples: dict[str, list[str]] = {}
    if not (dropped_rows or poison_rows or sampled_rows) and shard.sealed_file is not None:
        counts, reads = {"documents": shard.rows, "dropped_bytes": 0}, {str(shard.file): shard.sealed_file.sha256}
        return Receipt([link_shard(shard, folder)], counts, {SAMPLES_NOTE: samples}, reads)
    name = f"{SHARDS_FOLDER}/{shard.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for lines, _ in read_lines(shard, window):
            kept = [line + b"\n" for row, line in lines if row not in dropped_rows and row not in poison_rows]
            writer.write_lines(b"".join(kept), len(kept))
            decoded = [line for line in lines if line.row in dropped_rows or line.row in sampled_rows]
            for (row, _), document in zip(decoded, decode_lines(decoded, shard, RAW_DECODER), strict=True):
                if row in dropped_rows:
                    dropped_bytes += len(document.text.encode())
                if row in sampled_rows:
                    samples[str(row)] = [document.doc_id, document.text[:_SAMPLE_CHARACTERS]]
    counts = {"documents": writer.rows, "dropped_bytes": dropped_bytes}
    return Receipt([link_if_equal(writer.output(name), shard, folder)], counts, {SAMPLES_NOTE: samples})
