"""The stage `keep`: a shard's documents without those that are dropped, byte for byte as they were."""

from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, line_blocks, read_fields
from pipeline_assets.corpus.dedup.decisions import dropped_rows
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.stage import Window

SAMPLES = "samples"
_SAMPLE_CHARACTERS = 400


@dataclass(frozen=True)
class KeptShard:
    """A shard; of its rows those that go (see `dropped_rows`), those that kill their worker, and samples."""

    shard: CorpusShard
    dropped: Path
    fatal: frozenset[int]
    sampled: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def rows(self) -> int:
        return self.shard.rows


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
