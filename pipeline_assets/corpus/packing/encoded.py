"""Document shards as runs of tokens: what there is before it is planned which tokens go where."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.document_shards import REJECTS_FILE, DocumentShard, gather_lines
from pipeline_assets.corpus.spine.engine import TIMES_PACKED, RunSettings, RunStage, run_stages, settings_for
from pipeline_assets.corpus.spine.staging import OutputFile, Receipt, StagingDir
from pipeline_assets.corpus.spine.worker import Work
from pipeline_assets.corpus.tokens.encode import DocumentTable, load_tables
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer

_GROWTH_BYTES = 128 << 20  # a tokenizer's cache of words only grows: to start it afresh more often costs a fifth more


@dataclass(frozen=True)
class EncodedShard:
    """What became of a shard.

    Attributes:
        path: of the shard, in its artifact.
        token_file: int32 ids, document after document, each with its end.
        document_file: of `documents` lines, see `DocumentTable`.
        rejected: texts that were not encoded.
    """

    source: str
    path: str
    token_file: Path
    document_file: Path
    documents: int
    rejected: int = 0

    @property
    def table(self) -> DocumentTable:
        """Its documents; the last tables are kept open, since every range of rows asks for all of them."""
        written = self.document_file.stat()
        return _kept_open(self.document_file, written.st_ino, written.st_mtime_ns)


@functools.lru_cache(maxsize=128)
def _kept_open(path: Path, inode: int, modified_ns: int) -> DocumentTable:
    return DocumentTable(path)


@dataclass(frozen=True)
class EncodedCorpus:
    """Its shards, in order, the receipts of `encode_shard`, and what runs further stages in the same workers."""

    shards: tuple[EncodedShard, ...]
    receipts: Sequence[Receipt]
    run: RunStage[Any]

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Which libraries encoded it."""
        return {"tokenizer_driver": sorted({str(receipt.notes["driver"]) for receipt in self.receipts})}

    def gather_rejects(self, building: StagingDir, zstd_level: int) -> OutputFile:
        """The rejects of all shards."""
        return gather_lines(building, [receipt.files[2] for receipt in self.receipts], REJECTS_FILE, zstd_level)


@contextlib.contextmanager
def encoded_corpus(
    work: Work[Any],
    shards: Sequence[CorpusShard],
    tokenizer: TokenizerFile,
    building: StagingDir,
    settings: RunSettings,
) -> Iterator[EncodedCorpus]:
    """Shards, in this order, encoded; the block runs what follows by the same work.

    Args:
        work: `encode_shard` for a DocumentShard, by this tokenizer; other shards are of the block's stages.
    Raises:
        InputError: as `encode_shard` and `load_tokenizer`. OracleDisagrees: as `encode_shard`.
    """
    sizes = [shard.file.stat().st_size for shard in shards]
    settings = settings_for(building, settings, sizes)
    settings = replace(settings, growth_bytes=_GROWTH_BYTES)
    to_encode = [
        DocumentShard(f"{number:05d}", f"{shard.source}/{shard.path}", shard.file, shard.rows)
        for number, shard in enumerate(shards)
    ]
    documents, text_bytes = sum(shard.rows for shard in shards), TIMES_PACKED * sum(sizes)
    warm_up = functools.partial(load_tables, tokenizer, documents, text_bytes)
    with run_stages(work, settings, warm_up) as run:
        receipts = list(run(f"encode-{load_tokenizer(tokenizer).driver}", to_encode, building))
        encoded = tuple(
            EncodedShard(
                shard.source,
                shard.path,
                building.path(receipt.files[0].path),
                building.path(receipt.files[1].path),
                receipt.counts["documents"],
                receipt.counts["rows"] - receipt.counts["documents"],
            )
            for shard, receipt in zip(shards, receipts, strict=True)
        )
        yield EncodedCorpus(encoded, receipts, run)
