"""Token files of one split: Document shards are encoded in parallel, then merged in manifest order up to the budget."""

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.document_shards import DocumentShard, gather_lines
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.corpus.formats.megatron import index_bytes
from pipeline_assets.corpus.formats.parquet import ParquetOutput, column_of, numbers, repeated
from pipeline_assets.corpus.sampling import RULE, Split, describe_split, documents_that_fit, split_budget
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.durable import DurableFile, write_durably
from pipeline_assets.corpus.spine.engine import TIMES_PACKED, RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.ledger import Ledger
from pipeline_assets.corpus.spine.manifest import FileContent, StageVersion
from pipeline_assets.corpus.spine.recipe import RecipePart, Share
from pipeline_assets.corpus.spine.staging import OutputFile, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.tokens.encode import OTHER_SPLIT, DocumentTable, encode_shard, load_tables, or_by_oracle
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, Driver, TokenizerRecipe

SPLIT_STAGE = StageVersion("megatron_split", 1)
DATASET_STAGE = StageVersion("megatron_dataset", 1)
TOKENS, INDEX, DOCUMENTS, REJECTS = "tokens.bin", "tokens.idx", "documents.parquet", f"rejects{SUFFIX}"
DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source_shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
    ]
)


class MegatronRecipe(RecipePart):
    """How documents become token files.

    Attributes:
        token_budget: of both splits together; valid gets `valid_fraction` of it.
        valid_fraction: share of the documents, by hash, and of the budget.
    """

    tokenizer: TokenizerRecipe = TokenizerRecipe()
    token_budget: int = pydantic.Field(gt=0)
    valid_fraction: Share

    def described(self) -> dict[str, Any]:
        """What becomes of documents, for who reads a manifest of theirs: how they are split, and by which file they are
        encoded.
        """
        return {"split": describe_split(self.valid_fraction), "tokenizer": self.tokenizer.described()}


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
    to_encode = [
        DocumentShard(f"{number:05d}", file.path, corpus.folder / file.path, file.rows)
        for number, file in enumerate(shards)
    ]
    receipts = or_by_oracle(
        TokenizerFile(recipe.tokenizer, driver=driver),
        lambda tokenizer: _encode(building, to_encode, tokenizer, recipe.valid_fraction, split, budget, settings),
    )
    unread = [shard.path for shard in to_encode[len(receipts) :]]
    last = _documents(building, to_encode[len(receipts) - 1], receipts[-1])
    before = sum(receipt.counts["tokens"] for receipt in receipts[:-1])
    fitting = documents_that_fit(numbers(last["tokens"]), budget - before)
    cut = last.slice(fitting, 1).rename_columns(["doc_id", "shard", "row", "tokens"]).to_pylist()
    files, lengths = _merge(building, to_encode, receipts, fitting, settings.zstd_level)
    counts, tokens = total_counts(receipts), int(lengths.sum(dtype=np.int64))
    dropped = {"other_split": counts.get(OTHER_SPLIT, 0), "over_budget": counts["documents"] - len(lengths)}
    return BuildResult(
        files=files,
        counts={
            "ledger": Ledger(counts["rows"], len(lengths), dropped, Ledger.of(counts).rejected).to_json(),
            "documents": len(lengths),
            "tokens": tokens,
        },
        decisions={
            "split_rule": RULE,
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
            "ended_by": cut[0] if cut else None,
        },
    )


def _encode(
    building: StagingDir,
    shards: Sequence[DocumentShard],
    tokenizer: TokenizerFile,
    valid_fraction: str,
    split: Split,
    budget: int,
    settings: RunSettings,
) -> list[Receipt]:
    """Receipts in manifest order, as far as the budget reaches: the last one holds the cut."""
    work = functools.partial(
        encode_shard,
        tokenizer=tokenizer,
        zstd_level=settings.zstd_level,
        split=split,
        valid_fraction=valid_fraction,
    )
    receipts: list[Receipt] = []
    tokens = 0
    stage = f"encode-{split}-{tokenizer.driver}"
    sizes = [shard.file.stat().st_size for shard in shards]
    documents, text_bytes = sum(shard.rows for shard in shards), TIMES_PACKED * sum(sizes)
    warm_up = functools.partial(load_tables, tokenizer, documents, text_bytes)
    settings = settings_for(building, settings, sizes)
    with contextlib.closing(run_stage(stage, work, shards, building, settings, warm_up)) as run:
        for receipt in run:
            receipts.append(receipt)
            tokens += receipt.counts["tokens"]
            if tokens >= budget:
                break
    return receipts


def _documents(building: StagingDir, shard: DocumentShard, receipt: Receipt) -> pa.Table:
    """What documents.parquet says of the documents of a shard."""
    table = DocumentTable(building.path(receipt.files[1].path))
    paths = repeated(shard.path, len(table.rows))
    return pa.Table.from_arrays(
        [table.doc_ids, paths, column_of(table.rows), column_of(table.tokens)], schema=DOCUMENTS_SCHEMA
    )


def _merge(
    building: StagingDir, shards: Sequence[DocumentShard], receipts: Sequence[Receipt], of_last: int, zstd_level: int
) -> tuple[list[OutputFile], NDArray[np.int32]]:
    """The files of the split, and tokens per document, shape (documents,).

    Args:
        of_last: how many documents of the last shard belong to it.
    """
    lengths: list[NDArray[np.int32]] = []
    with (
        DurableFile(building.path(TOKENS)) as tokens,
        ParquetOutput(building.path(DOCUMENTS), DOCUMENTS_SCHEMA) as documents,
    ):
        for shard, receipt in zip(shards, receipts, strict=False):
            table = _documents(building, shard, receipt).slice(0, of_last if receipt is receipts[-1] else None)
            lengths.append(numbers(table["tokens"]))
            documents.write(table)
            tokens.append(building.path(receipt.files[0].path), int(lengths[-1].sum(dtype=np.int64)) * 4)
    all_lengths = np.concatenate(lengths)
    index = index_bytes(all_lengths)
    index_sha256 = write_durably(building.path(INDEX), index)
    files = [
        OutputFile.plain(TOKENS, len(all_lengths), tokens),
        OutputFile(INDEX, len(all_lengths), len(index), index_sha256, index_sha256),
        documents.output(DOCUMENTS),
        gather_lines(building, [receipt.files[2] for receipt in receipts], REJECTS, zstd_level),
    ]
    return files, all_lengths


def describe_dataset(splits: Mapping[Split, Artifact], recipe: MegatronRecipe) -> BuildResult:
    """Both splits as one dataset: budget asked and tokens reached."""
    counts = {split: artifact.manifest.identity.counts for split, artifact in splits.items()}
    return BuildResult(
        files=[],
        counts={name: {split: counts[split][name] for split in counts} for name in ("documents", "tokens")},
        decisions={
            "token_budget": recipe.token_budget,
            "tokens_reached": sum(count["tokens"] for count in counts.values()),
            "split_rule": RULE,
        },
    )
