"""Token files of one split: documents in manifest order, up to the token budget."""

import contextlib
import functools
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.converted_shards import concatenate_lines
from pipeline_assets.corpus.document_shards import REJECTS_FILE, DocumentShard
from pipeline_assets.corpus.formats.arrow_columns import repeat_text, to_arrow, to_numpy
from pipeline_assets.corpus.formats.megatron import encode_index
from pipeline_assets.corpus.formats.parquet import ParquetOutput
from pipeline_assets.corpus.tokens.encode import (
    OTHER_SPLIT_KEY,
    DocumentTable,
    encode_shard,
    warm_up_tokenizer,
    with_oracle_fallback,
)
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.losses import Losses, losses_to_provenance
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT
from pipeline_assets.corpus.training_set import SPLIT_RULE, Split, count_fitting, describe_split, split_budget
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.key_types import Share
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import FileContent, StageVersion
from pipeline_assets.spine.section import RecipeSection
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, total_counts

SPLIT_STAGE = StageVersion("megatron_split", 1)
DATASET_STAGE = StageVersion("megatron_dataset", 1)
TOKENS_FILE, INDEX_FILE, DOCUMENTS_FILE = "tokens.bin", "tokens.idx", "documents.parquet"
_COLUMN_TYPES = {"doc_id": pa.string(), "source_shard": pa.string(), "row": pa.int64(), "tokens": pa.int32()}
DOCUMENTS_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMN_TYPES.items()])


class MegatronRecipe(RecipeSection):
    """Recipe of the token files of both splits.

    Attributes:
        token_budget: Number of tokens in both splits together; the valid split gets `valid_fraction` of them.
        valid_fraction: Share of the budget and of the documents that the valid split gets. A hash of the doc_id
            decides to which split a document belongs.
    """

    tokenizer: HarmonyRecipe = HarmonyRecipe()
    token_budget: int = pydantic.Field(gt=0)
    valid_fraction: Share

    def describe(self) -> dict[str, Any]:
        """Return the split rule and the tokenizer for a manifest."""
        return {"split": describe_split(self.valid_fraction), "tokenizer": self.tokenizer.describe()}


def build_split(
    staging: StagingDir,
    corpus: Artifact,
    shards: Sequence[FileContent],
    recipe: MegatronRecipe,
    split: Split,
    settings: RunSettings,
    tokenizer: TokenizerFile | None = None,
) -> BuildResult:
    """Build the token files, document table and rejects of one split.

    The split has the longest prefix of its documents, in manifest order, that fits its budget. Shards after the one
    that fills the budget are neither written nor counted. Without `tokenizer`, the tokenizer of the recipe is loaded.
    If gigatoken and tiktoken encode a text differently, tiktoken encodes the split again. Raise InputError if a shard
    or the tokenizer file is damaged.
    """
    budget = split_budget(recipe.token_budget, recipe.valid_fraction, split)
    to_encode = [
        DocumentShard(f"{number:05d}", file.path, corpus.folder / file.path, file.rows)
        for number, file in enumerate(shards)
    ]

    def encode(tokenizer: TokenizerFile) -> _JoinedShards:
        fraction = recipe.valid_fraction
        work = functools.partial(
            encode_shard, tokenizer=tokenizer, zstd_level=settings.zstd_level, split=split, valid_fraction=fraction
        )
        warm_up = functools.partial(warm_up_tokenizer, tokenizer, sum(shard.rows for shard in to_encode))
        limited = limit_workers(staging, settings, [shard.file.stat().st_size for shard in to_encode])
        encoded = run_stage(f"encode-{split}-{tokenizer.driver}", work, to_encode, staging, limited, warm_up)
        return _join_shards(staging, to_encode, budget, encoded)

    tokenizer = tokenizer or TokenizerFile(recipe.tokenizer, settings.vocabulary)
    receipts, files, lengths, first_over_budget = with_oracle_fallback(tokenizer, encode)
    rejects = [receipt.files[2] for receipt in receipts]
    unread = [shard.path for shard in to_encode[len(receipts) :]]
    counts, tokens = total_counts(receipts), int(lengths.sum(dtype=np.int64))
    dropped = {"other_split": counts.get(OTHER_SPLIT_KEY, 0), "over_budget": counts["documents"] - len(lengths)}
    return BuildResult(
        files=[*files, concatenate_lines(staging, rejects, REJECTS_FILE, settings.zstd_level)],
        counts={
            "ledger": Ledger(counts["rows"], len(lengths), dropped, Ledger.from_counts(counts).rejected).to_json(),
            "documents": len(lengths),
            "tokens": tokens,
        },
        decisions={
            "split_rule": SPLIT_RULE,
            "token_budget": budget,
            "budget_met": bool(unread) or counts["documents"] > len(lengths) or tokens == budget,
            "end_of_document": END_OF_TEXT,
            "dtype": "int32",
            "sequences": "one a document",
            "unread_shards": unread,
        },
        provenance={
            "tokenizer_driver": sorted({str(receipt.notes["driver"]) for receipt in receipts}),
            "spot_checked_documents": counts["spot_checked"],
            "text_bytes_encoded": counts["bytes"],
            "tokens_encoded": counts["tokens"],
            "ended_by": first_over_budget[0] if first_over_budget else None,
            **losses_to_provenance({corpus.manifest.name: Losses.from_counts(counts)}),
        },
    )


class _JoinedShards(NamedTuple):
    """Joined shards of a split."""

    receipts: list[Receipt]  # of the shards up to the budget
    files: list[OutputFile]  # all except the rejects
    lengths: NDArray[np.int32]  # number of tokens of each document, shape (documents,)
    first_over_budget: list[dict[str, Any]]  # doc_id, shard, row and tokens of that document; may be empty


def _join_shards(
    staging: StagingDir, shards: Sequence[DocumentShard], budget: int, encode_receipts: Generator[Receipt]
) -> _JoinedShards:
    """Join encoded shards in order up to the budget, while workers encode later ones."""
    receipts: list[Receipt] = []
    lengths: list[NDArray[np.int32]] = []
    first_over_budget: list[dict[str, Any]] = []
    with (
        DurableFile(staging.path(TOKENS_FILE)) as tokens,
        ParquetOutput(staging.path(DOCUMENTS_FILE), DOCUMENTS_SCHEMA) as documents,
        contextlib.closing(encode_receipts),
    ):
        for shard, receipt in zip(shards, encode_receipts, strict=False):
            receipts.append(receipt)
            encoded = DocumentTable(staging.path(receipt.files[1].path))
            paths = repeat_text(shard.path, len(encoded.rows))
            columns = [encoded.doc_ids, paths, to_arrow(encoded.rows), to_arrow(encoded.tokens)]
            table = pa.Table.from_arrays(columns, schema=DOCUMENTS_SCHEMA)
            fitting = count_fitting(to_numpy(table["tokens"]), budget - tokens.bytes_written // 4)
            fits = table.slice(0, fitting)
            first_over_budget = table.slice(fitting, 1).rename_columns(["doc_id", "shard", "row", "tokens"]).to_pylist()
            lengths.append(to_numpy(fits["tokens"]).copy())  # a view would keep the shard's table in memory
            documents.write(fits)
            encoded_file = receipt.files[0]
            taken_bytes = int(lengths[-1].sum(dtype=np.int64)) * 4
            tokens.append(staging.path(encoded_file.path), taken_bytes, encoded_file.sha256)
            if first_over_budget or tokens.bytes_written == 4 * budget:
                break
    all_lengths = np.concatenate(lengths)
    with DurableFile(staging.path(INDEX_FILE)) as index:
        for block in encode_index(all_lengths):
            index.write(block)
    files = [
        OutputFile.uncompressed(TOKENS_FILE, len(all_lengths), tokens),
        OutputFile.uncompressed(INDEX_FILE, len(all_lengths), index),
        documents.output(DOCUMENTS_FILE),
    ]
    return _JoinedShards(receipts, files, all_lengths, first_over_budget)


def describe_dataset(splits: Mapping[str, Artifact], recipe: MegatronRecipe) -> BuildResult:
    """Describe both splits as one dataset, with its token budget and actual tokens."""
    counts = {split: artifact.manifest.identity.counts for split, artifact in splits.items()}
    return BuildResult(
        files=[],
        counts={name: {split: counts[split][name] for split in counts} for name in ("documents", "tokens")},
        decisions={
            "token_budget": recipe.token_budget,
            "tokens_reached": sum(count["tokens"] for count in counts.values()),
            "split_rule": SPLIT_RULE,
        },
    )
