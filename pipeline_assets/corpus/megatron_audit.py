"""What must hold of Megatron splits and of the pair: read from the files, not from what the build said of them."""

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.megatron import IndexedDataset, read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.megatron_split import DOCUMENTS, TOKENS
from pipeline_assets.corpus.sampling import SPLITS, Split
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.checks import Verdict
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, RANKS

_SIGMAS = 4.5  # a false alarm in about 150,000 honest splits
_ID_BLOCK = 1 << 22
_ONE_PER_CENT = 100


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
    return Verdict(False, words, numbers, is_slight=missing <= lengths.max(initial=0))


def valid_fraction_is_plausible(dataset: Artifact) -> Verdict:
    """The share of documents that the hash sent to valid lies in the binomial interval around the recipe's fraction."""
    ledger = _split(dataset, "valid").manifest.identity.ledger
    fraction = float(Fraction(dataset.manifest.identity.recipe["valid_fraction"]))
    documents = ledger.rows_in - ledger.all_rejected
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
