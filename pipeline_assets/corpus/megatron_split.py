"""Token files of one split: Document shards are encoded in parallel, then merged in manifest order up to the budget."""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow import numbers
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.megatron import index_bytes
from pipeline_assets.corpus.formats.parquet import ParquetOutput, read_columns
from pipeline_assets.corpus.megatron_recipe import MegatronRecipe
from pipeline_assets.corpus.sampling.split import RULE, Split, documents_that_fit, split_budget
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.durable import DurableFile, write_durably
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage
from pipeline_assets.corpus.spine.ledger import Ledger
from pipeline_assets.corpus.spine.manifest import FileContent, StageVersion
from pipeline_assets.corpus.spine.staging import OutputFile, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.tokens.encode import (
    DOCUMENTS_SCHEMA,
    OTHER_SPLIT,
    EncodeShard,
    OracleDisagrees,
    encode_shard,
    load_tokenizers,
)
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, Driver

logger = logging.getLogger("corpusmill")
SPLIT_STAGE = StageVersion("megatron_split", 1)
DATASET_STAGE = StageVersion("megatron_dataset", 1)
TOKENS, INDEX, DOCUMENTS, REJECTS = "tokens.bin", "tokens.idx", "documents.parquet", f"rejects{SUFFIX}"


@dataclass(frozen=True)
class _Encoded:
    """What the encode stage left, as far as it was read: receipts in manifest order, the last one holding the cut.

    Attributes:
        ended_by: the first document that doesn't fit; None where all do.
    """

    receipts: Sequence[Receipt]
    documents_of_last: int
    unread: Sequence[str]
    ended_by: Mapping[str, str | int] | None


def build_split(
    building: StagingDir,
    corpus: Artifact,
    shards: Sequence[FileContent],
    recipe: MegatronRecipe,
    split: Split,
    settings: RunSettings,
    driver: Driver = "gigatoken",
) -> BuildResult:
    """tokens.bin, tokens.idx, documents.parquet and rejects.jsonl.zst of one split.

    The longest prefix of documents in manifest order that fits the split's budget; shards behind the cut are not read
    into files or counts. If the fast tokenizer ever disagrees with the oracle, everything is encoded again by the
    oracle.

    Raises:
        InputError: a shard that is damaged.
    """
    budget = split_budget(recipe.token_budget, recipe.valid_fraction, split)
    try:
        encoded = _encode(building, corpus, shards, recipe, split, budget, settings, driver)
    except OracleDisagrees as disagreement:
        logger.error("%s; tiktoken encodes everything again", disagreement)
        driver = "tiktoken"
        encoded = _encode(building, corpus, shards, recipe, split, budget, settings, driver)
    files, lengths = _merge(building, encoded, settings.zstd_level)
    counts = total_counts(encoded.receipts)
    tokens = int(lengths.sum(dtype=np.int64))
    return BuildResult(
        files=files,
        counts={
            "ledger": _ledger(counts, len(lengths)),
            "documents": len(lengths),
            "tokens": tokens,
        },
        decisions={
            "split_rule": RULE,
            "token_budget": budget,
            "budget_met": bool(encoded.unread) or counts["documents"] > len(lengths) or tokens == budget,
            "end_of_document": END_OF_TEXT,
            "dtype": "int32",
            "sequences": "one a document",
            "unread_shards": list(encoded.unread),
        },
        provenance={
            "tokenizer_driver": sorted({str(receipt.notes["driver"]) for receipt in encoded.receipts}),
            "spot_checked_documents": counts["spot_checked"],
            "text_bytes_encoded": counts["bytes"],
            "tokens_encoded": counts["tokens"],
            "ended_by": encoded.ended_by,
        },
    )


def _encode(
    building: StagingDir,
    corpus: Artifact,
    shards: Sequence[FileContent],
    recipe: MegatronRecipe,
    split: Split,
    budget: int,
    settings: RunSettings,
    driver: Driver,
) -> _Encoded:
    work = functools.partial(
        encode_shard,
        tokenizer_sha256=recipe.tokenizer.sha256,
        driver=driver,
        split=split,
        valid_fraction=recipe.valid_fraction,
        zstd_level=settings.zstd_level,
    )
    to_encode = [
        EncodeShard(f"{number:05d}", file.path, corpus.folder / file.path, file.rows)
        for number, file in enumerate(shards)
    ]
    receipts: list[Receipt] = []
    tokens = 0
    documents = sum(shard.rows for shard in to_encode)
    warm_up = functools.partial(load_tokenizers, recipe.tokenizer.sha256, driver, documents)
    runs = run_stage(f"encode-{driver}", work, to_encode, building, settings, warm_up)
    try:
        for receipt in runs:
            receipts.append(receipt)
            tokens += receipt.counts["tokens"]
            if tokens >= budget:
                break
    finally:
        runs.close()
    before = tokens - receipts[-1].counts["tokens"]
    listed = read_columns(building.path(receipts[-1].files[1].path))
    fitting = documents_that_fit(numbers(listed.column("tokens")), budget - before)
    names = {"doc_id": "doc_id", "source_shard": "shard", "row": "row", "tokens": "tokens"}
    ended_by = listed.rename_columns(names).slice(fitting, 1).to_pylist()
    unread = [shard.path for shard in to_encode[len(receipts) :]]
    return _Encoded(receipts, fitting, unread, ended_by[0] if ended_by else None)


def _merge(building: StagingDir, encoded: _Encoded, zstd_level: int) -> tuple[list[OutputFile], NDArray[np.int32]]:
    """The files of the split, and tokens per document, shape (documents,)."""
    lengths: list[NDArray[np.int32]] = []
    with (
        DurableFile(building.path(TOKENS)) as tokens,
        ParquetOutput(building.path(DOCUMENTS), DOCUMENTS_SCHEMA) as documents,
        JsonlZstWriter(building.path(REJECTS), zstd_level) as rejects,
    ):
        for receipt in encoded.receipts:
            is_last = receipt is encoded.receipts[-1]
            table = read_columns(building.path(receipt.files[1].path))
            table = table.slice(0, encoded.documents_of_last if is_last else None)
            lengths.append(numbers(table.column("tokens")))
            documents.write(table)
            tokens.append(building.path(receipt.files[0].path), int(lengths[-1].sum(dtype=np.int64)) * 4)
            for lines in read_line_blocks(building.path(receipt.files[2].path)):
                rejects.write_lines(lines, lines.count(b"\n"))
    all_lengths = np.concatenate(lengths)
    index = index_bytes(all_lengths)
    index_sha256 = write_durably(building.path(INDEX), index)
    files = [
        OutputFile(TOKENS, len(all_lengths), tokens.bytes_written, tokens.sha256, tokens.sha256),
        OutputFile(INDEX, len(all_lengths), len(index), index_sha256, index_sha256),
        documents.output(DOCUMENTS),
        rejects.output(REJECTS),
    ]
    return files, all_lengths


def _ledger(counts: Mapping[str, int], documents: int) -> dict[str, Any]:
    """Documents of the shards read = documents written + other split + over budget + rejected."""
    dropped = {"other_split": counts.get(OTHER_SPLIT, 0), "over_budget": counts["documents"] - documents}
    return Ledger(counts["rows"], documents, dropped, Ledger.of(counts).rejected).to_json()


def describe_dataset(splits: Mapping[Split, Artifact], recipe: MegatronRecipe) -> BuildResult:
    """Both splits as one dataset: budget asked and tokens reached."""
    counts = {split: artifact.manifest.identity.counts for split, artifact in splits.items()}
    return BuildResult(
        files=[],
        counts={
            "documents": {split: counts[split]["documents"] for split in counts},
            "tokens": {split: counts[split]["tokens"] for split in counts},
        },
        decisions={
            "token_budget": recipe.token_budget,
            "tokens_reached": sum(count["tokens"] for count in counts.values()),
            "split_rule": RULE,
        },
    )
