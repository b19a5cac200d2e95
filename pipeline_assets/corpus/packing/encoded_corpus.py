"""Encoding of a corpus: a file of token ids and a document table per shard."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.converted_shards import concatenate_lines
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.document_shards import REJECTS_FILE, DocumentShard
from pipeline_assets.corpus.tokens.encode import DocumentTable, encode_shard, warm_up_tokenizer, with_oracle_fallback
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses, losses_to_provenance
from pipeline_assets.spine.engine import RunSettings, StageRunner, limit_workers, stage_runner
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir
from pipeline_assets.spine.task import Task, run_task

# A tokenizer's word cache only grows, so a worker restarts after this growth. Restarting more often costs a fifth more.
_GROWTH_BYTES = 128 << 20


@dataclass(frozen=True)
class EncodedShard:
    """Encoded shard of documents: a file of token ids and a document table.

    Attributes:
        corpus_path: Path of the Document shard, relative to its artifact.
        token_file: File of raw int32 ids, document after document, with an end token after each document.
        document_file: File of the `DocumentTable`.
        rejected: Number of documents that could not be encoded.
    """

    source: str
    corpus_path: str
    token_file: Path
    document_file: Path
    documents: int
    rejected: int = 0

    @property
    def table(self) -> DocumentTable:
        """Document table; the last 128 tables of a process stay open."""
        written = self.document_file.stat()
        return _open_table(self.document_file, written.st_ino, written.st_mtime_ns)


@functools.lru_cache(maxsize=128)
def _open_table(path: Path, inode: int, modified_ns: int) -> DocumentTable:
    return DocumentTable(path)


@dataclass(frozen=True)
class EncodedCorpus:
    """Encoded shards of a corpus, a receipt for each, and a function that runs stages."""

    shards: tuple[EncodedShard, ...]
    receipts: Sequence[Receipt]
    run_stage: StageRunner[Task]

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance keys: libraries that encoded the corpus, and losses by source."""
        losses: dict[str, Losses] = {}
        for shard, receipt in zip(self.shards, self.receipts, strict=True):
            losses[shard.source] = losses.get(shard.source, NO_LOSSES) + Losses.from_counts(receipt.counts)
        drivers = sorted({str(receipt.notes["driver"]) for receipt in self.receipts})
        return {"tokenizer_driver": drivers, **losses_to_provenance(losses)}

    def gather_rejects(self, staging: StagingDir, zstd_level: int) -> OutputFile:
        """Write the rejects of all shards to one file."""
        return concatenate_lines(staging, [receipt.files[2] for receipt in self.receipts], REJECTS_FILE, zstd_level)


def encode_corpus(
    shards: Sequence[CorpusShard], tokenizer: TokenizerFile, staging: StagingDir, settings: RunSettings
) -> EncodedCorpus:
    """Encode the shards of a corpus.

    If gigatoken and tiktoken encode a text differently, tiktoken encodes everything again. `run_stage` of the result
    runs later stages in the same workers.

    Raises:
        InputError: A shard is damaged, or the tokenizer file is not valid.
    """
    return with_oracle_fallback(tokenizer, lambda used: _encode(shards, used, staging, settings))


def _encode(
    shards: Sequence[CorpusShard], tokenizer: TokenizerFile, staging: StagingDir, settings: RunSettings
) -> EncodedCorpus:
    sizes = [shard.file.stat().st_size for shard in shards]
    settings = replace(limit_workers(staging, settings, sizes), max_growth_bytes=_GROWTH_BYTES)
    to_encode = [DocumentShard(shard.name, f"{shard.source}/{shard.path}", shard.file, shard.rows) for shard in shards]
    options = {"tokenizer": tokenizer, "zstd_level": settings.zstd_level}
    tasks = [Task.bind(encode_shard, shard, **options) for shard in to_encode]
    warm_up = functools.partial(warm_up_tokenizer, tokenizer, sum(shard.rows for shard in shards))
    run = stage_runner(run_task, settings, warm_up)
    receipts = list(run(f"encode-{load_tokenizer(tokenizer).driver}", tasks, staging))
    encoded = tuple(
        EncodedShard(
            shard.source,
            shard.path,
            staging.path(receipt.files[0].path),
            staging.path(receipt.files[1].path),
            receipt.counts["documents"],
            receipt.counts["rows"] - receipt.counts["documents"],
        )
        for shard, receipt in zip(shards, receipts, strict=True)
    )
    return EncodedCorpus(encoded, receipts, run)


def first_document_numbers(shards: Sequence[EncodedShard]) -> NDArray[np.int64]:
    """Return each shard's first document number, then the total; shape (shards + 1,)."""
    return np.cumsum([0, *(shard.documents for shard in shards)], dtype=np.int64)
