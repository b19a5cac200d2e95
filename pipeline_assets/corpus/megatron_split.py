"""Token files of one split: Document shards are encoded in parallel, then merged in manifest order up to the budget.

What must hold of a split and of the pair is read from the files, not from what the build said of them.
"""

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.converted_shards import gather_lines
from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.formats.arrow_columns import numbers, repeated, to_array
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.corpus.formats.megatron import IndexedDataset, index_bytes, read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import ParquetOutput, read_columns
from pipeline_assets.corpus.sampling import RULE, SPLITS, Split, describe_split, documents_that_fit, split_budget
from pipeline_assets.corpus.tokens.encode import (
    OTHER_SPLIT,
    DocumentTable,
    encode_shard,
    load_tables,
    with_oracle_fallback,
)
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, RANKS, Driver, TokenizerRecipe
from pipeline_assets.spine.artifact import Artifact, Verdict, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile, write_durably
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import FileContent, StageVersion
from pipeline_assets.spine.section import RecipeSection, Share
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, total_counts

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
_SIGMAS = 4.5  # a false alarm in about 150,000 honest splits
_ID_BLOCK = 1 << 22
_ONE_PER_CENT = 100


class MegatronRecipe(RecipeSection):
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
    receipts, files, lengths, cut = with_oracle_fallback(
        TokenizerFile(recipe.tokenizer, settings.vocabulary, driver),
        lambda tokenizer: _join(
            building, to_encode, budget, _encoded(building, to_encode, tokenizer, recipe, split, settings)
        ),
    )
    files.append(gather_lines(building, [receipt.files[2] for receipt in receipts], REJECTS, settings.zstd_level))
    unread = [shard.path for shard in to_encode[len(receipts) :]]
    counts, tokens = total_counts(receipts), int(lengths.sum(dtype=np.int64))
    dropped = {"other_split": counts.get(OTHER_SPLIT, 0), "over_budget": counts["documents"] - len(lengths)}
    return BuildResult(
        files=files,
        counts={
            "ledger": Ledger(counts["rows"], len(lengths), dropped, Ledger.from_counts(counts).rejected).to_json(),
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


def _encoded(
    building: StagingDir,
    shards: Sequence[DocumentShard],
    tokenizer: TokenizerFile,
    recipe: MegatronRecipe,
    split: Split,
    settings: RunSettings,
) -> Generator[Receipt]:
    """Receipts in manifest order, as they are asked for."""
    fraction = recipe.valid_fraction
    work = functools.partial(
        encode_shard, tokenizer=tokenizer, zstd_level=settings.zstd_level, split=split, valid_fraction=fraction
    )
    sizes = [shard.file.stat().st_size for shard in shards]
    warm_up = functools.partial(load_tables, tokenizer, sum(shard.rows for shard in shards))
    settings = limit_workers(building, settings, sizes)
    return run_stage(f"encode-{split}-{tokenizer.driver}", work, shards, building, settings, warm_up)


class _Joined(NamedTuple):
    """Receipts as far as the budget reaches; files but the rejects; tokens per document, shape (documents,); and the
    document that doesn't fit any more, where there is one.
    """

    receipts: list[Receipt]
    files: list[OutputFile]
    lengths: NDArray[np.int32]
    cut: list[dict[str, Any]]


def _join(building: StagingDir, shards: Sequence[DocumentShard], budget: int, encoded: Generator[Receipt]) -> _Joined:
    """Each shard is joined once it and all before it are encoded, while workers encode the next ones."""
    receipts: list[Receipt] = []
    lengths: list[NDArray[np.int32]] = []
    cut = DOCUMENTS_SCHEMA.empty_table()
    with (
        DurableFile(building.path(TOKENS)) as tokens,
        ParquetOutput(building.path(DOCUMENTS), DOCUMENTS_SCHEMA) as documents,
        contextlib.closing(encoded),
    ):
        for shard, receipt in zip(shards, encoded, strict=False):
            receipts.append(receipt)
            table = _documents(building, shard, receipt)
            fitting = documents_that_fit(numbers(table["tokens"]), budget - tokens.bytes_written // 4)
            fits, cut = table.slice(0, fitting), table.slice(fitting, 1)
            lengths.append(numbers(fits["tokens"]))
            documents.write(fits)
            tokens.append(building.path(receipt.files[0].path), int(lengths[-1].sum(dtype=np.int64)) * 4)
            if len(cut) or tokens.bytes_written == 4 * budget:
                break
    all_lengths = np.concatenate(lengths)
    index = index_bytes(all_lengths)
    index_sha256 = write_durably(building.path(INDEX), index)
    files = [
        OutputFile.plain(TOKENS, len(all_lengths), tokens),
        OutputFile(INDEX, len(all_lengths), len(index), index_sha256, index_sha256),
        documents.output(DOCUMENTS),
    ]
    return _Joined(receipts, files, all_lengths, cut.rename_columns(["doc_id", "shard", "row", "tokens"]).to_pylist())


def _documents(building: StagingDir, shard: DocumentShard, receipt: Receipt) -> pa.Table:
    """What documents.parquet says of the documents of a shard."""
    table = DocumentTable(building.path(receipt.files[1].path))
    paths = repeated(shard.path, len(table.rows))
    return pa.Table.from_arrays(
        [table.doc_ids, paths, to_array(table.rows), to_array(table.tokens)], schema=DOCUMENTS_SCHEMA
    )


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


def index_reads_back(split: Artifact) -> Verdict:
    """tokens.idx opens, fits tokens.bin, and has the documents of documents.parquet with their lengths."""
    dataset = _dataset(split)
    lengths = read_columns(split.path(DOCUMENTS), ["tokens"]).column("tokens").to_numpy()
    holds = np.array_equal(dataset.lengths, lengths) and int(lengths.sum()) == len(dataset.tokens)
    words = f"{len(dataset.lengths):,} documents, {len(dataset.tokens):,} tokens"
    return Verdict(holds, words if holds else f"index and documents.parquet disagree: {words}")


def ids_in_range(split: Artifact) -> Verdict:
    """Every id is an ordinary token of the vocabulary, but the last of each document, which is the end of text."""
    dataset = _dataset(split)
    ends = (dataset.pointers // 4 + dataset.lengths - 1).astype(np.int64)
    closed = int((dataset.tokens[ends] == END_OF_TEXT).sum()) if len(ends) else 0
    special = outside = 0
    for start in range(0, len(dataset.tokens), _ID_BLOCK):
        block = dataset.tokens[start : start + _ID_BLOCK]
        outside += int(((block < 0) | (block >= RANKS) & (block != END_OF_TEXT)).sum())
        special += int((block == END_OF_TEXT).sum())
    holds = outside == 0 and closed == special == len(ends)
    words = f"{len(dataset.tokens):,} ids, {closed:,} documents closed, {outside:,} ids outside"
    return Verdict(holds, words, {"ids_outside": outside})


def token_budget_met(split: Artifact) -> Verdict:
    """No more than 1 % of the split's token budget is missing.

    A document that doesn't fit ends a split. Where that is longer than 1 % of the budget, but not than others in the
    split, the budget is small for its documents: that is a warning. A corpus that ends before the budget is none, nor
    is one document beyond all others.
    """
    decisions, tokens = split.manifest.identity.decisions, split.manifest.identity.counts["tokens"]
    budget = decisions["token_budget"]
    missing = budget - tokens
    words, numbers = f"{tokens:,} of {budget:,} tokens", {"tokens": tokens, "token_budget": budget}
    if missing * _ONE_PER_CENT <= budget:
        return Verdict(True, words, numbers)
    words += f", {missing / budget:.1%} are missing: "
    if not decisions["budget_met"]:
        words += "the corpus ends before the budget; take a larger snapshot (`snapshot.amount`)"
        return Verdict(False, words, numbers)
    last = split.manifest.provenance.get("ended_by")
    words += "a document that doesn't fit ended it"
    if last is not None:
        words += f", {last['doc_id']} of {last['tokens']:,} tokens ({last['shard']} row {last['row']})"
    words += "; leave such documents out by a rule, or change `token_budget`"
    lengths = read_columns(split.path(DOCUMENTS), ["tokens"]).column("tokens").to_numpy()
    return Verdict(False, words, numbers, is_minor=missing <= lengths.max(initial=0))


def valid_fraction_is_plausible(dataset: Artifact) -> Verdict:
    """The share of documents that the hash sent to valid lies in the binomial interval around the recipe's fraction."""
    ledger = _split(dataset, "valid").manifest.identity.ledger
    fraction = float(Fraction(dataset.manifest.identity.recipe["valid_fraction"]))
    documents = ledger.rows_in - ledger.total_rejected
    valid = documents - ledger.dropped.get("other_split", 0)
    margin = _SIGMAS * math.sqrt(documents * fraction * (1 - fraction))
    low, high = documents * fraction - margin, documents * fraction + margin
    words = f"{valid:,} of {documents:,} documents, expected {max(low, 0):,.0f} to {high:,.0f}"
    return Verdict(low <= valid <= high, words, {"valid_documents": valid, "documents": documents})


def no_document_in_both_splits(dataset: Artifact) -> Verdict:
    """No doc_id is in train and in valid."""
    both, valid = _valid_in_train(dataset, _doc_ids)
    return Verdict(both == 0, f"{both:,} of {valid:,} valid documents have an id that train has too", {"in_both": both})


def no_valid_text_in_train(dataset: Artifact) -> Verdict:
    """No valid document has the very text of a train document; the set repeats pages across dumps, so some may."""
    repeated, valid = _valid_in_train(dataset, _token_runs)
    words = f"{repeated:,} of {valid:,} valid documents have a text that is in train"
    return Verdict(repeated == 0, words, {"valid_texts_in_train": repeated})


def _split(dataset: Artifact, split: Split) -> Artifact:
    digests = {entry.get("member"): entry["digest"] for entry in dataset.manifest.identity.inputs}
    return open_artifact(dataset.folder / split, digests[split])


def _dataset(split: Artifact) -> IndexedDataset:
    return read_indexed_dataset(split.folder / Path(TOKENS).stem)


def _doc_ids(split: Artifact) -> list[bytes]:
    return [doc_id.encode() for doc_id in read_columns(split.path(DOCUMENTS), ["doc_id"]).column("doc_id").to_pylist()]


def _token_runs(split: Artifact) -> list[memoryview]:
    """Each document's ids as bytes, mapped: equal runs are equal texts, since decoding is a function."""
    dataset = _dataset(split)
    data: Any = dataset.tokens.view(np.uint8)
    ends = np.cumsum(dataset.lengths, dtype=np.int64) * 4
    return [
        memoryview(data)[int(end) - int(length) * 4 : int(end)]
        for end, length in zip(ends, dataset.lengths, strict=True)
    ]


def _valid_in_train(
    dataset: Artifact, values_of: Callable[[Artifact], Sequence[bytes | memoryview]]
) -> tuple[int, int]:
    """How many of the valid split's values the train split has too, and how many values that is of."""
    train, valid = (_hashes(values_of(_split(dataset, split))) for split in SPLITS)
    return int(np.isin(valid, train).sum()), len(valid)


def _hashes(values: Sequence[bytes | memoryview]) -> NDArray[np.bytes_]:
    """128 bits of each value's sha256, shape (values,)."""
    return np.frombuffer(b"".join(hashlib.sha256(value).hexdigest()[:32].encode() for value in values), "S32")
