"""The stage `keep`: a shard's documents without those that are dropped, byte for byte as they were."""

from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, line_blocks, read_fields
from pipeline_assets.corpus.dedup.decisions import dropped_rows
from pipeline_assets.corpus.document_shards.publish import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.stage import Window


@dataclass(frozen=True)
class KeptShard:
    """A shard of the corpus, which of its rows go (see `dropped_rows`), and which kill their worker."""

    shard: CorpusShard
    dropped: Path
    fatal: frozenset[int]

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def rows(self) -> int:
        return self.shard.rows


def keep_documents(shard: KeptShard, window: Window, folder: BuildFolder, zstd_level: int) -> Receipt:
    """The documents that stay, in order. Counts: `documents`, and `dropped_bytes` of the texts that go."""
    dropped = frozenset(dropped_rows(shard.dropped).tolist())
    goes = dropped | shard.fatal | window.fatal
    dropped_bytes = 0
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for lines in line_blocks(shard.shard, window):
            kept = [line for row, line in lines if row not in goes and line is not None]
            for row, line in lines:
                if row in dropped and line is not None:
                    dropped_bytes += len(read_fields(line, shard.shard, row).text.encode())
            if kept:
                writer.write_lines(b"\n".join([*kept, b""]), len(kept))
    return Receipt([writer.output(name)], {"documents": writer.rows, "dropped_bytes": dropped_bytes})
