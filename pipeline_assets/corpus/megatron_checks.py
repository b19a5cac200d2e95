"""Checks that read the files of Megatron splits and datasets."""

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.corpus.formats.megatron import IndexedDataset, read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.megatron_split import DOCUMENTS_FILE, TOKENS_FILE
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT, NUM_RANKS
from pipeline_assets.corpus.training_set import SPLITS, Split
from pipeline_assets.spine.artifact import Artifact, Verdict, open_artifact
from pipeline_assets.spine.plural import pluralize

_MAX_SIGMAS = 4.5  # one false alarm in about 150,000 honest splits
_BLOCK_IDS = 1 << 22


def index_reads_back(split: Artifact) -> Verdict:
    """Check that tokens.idx matches tokens.bin and the lengths in documents.parquet."""
    dataset = _open_dataset(split)
    lengths = to_numpy(read_columns(split.path(DOCUMENTS_FILE), ["tokens"])["tokens"])
    is_valid = np.array_equal(dataset.lengths, lengths) and int(lengths.sum()) == len(dataset.tokens)
    summary = f"{pluralize(len(dataset.lengths), 'document')}, {len(dataset.tokens):,} tokens"
    return Verdict(is_valid, summary if is_valid else f"index and documents.parquet disagree: {summary}")


def ids_in_range(split: Artifact) -> Verdict:
    """Check that each document consists of plain tokens and a final `<|endoftext|>`."""
    dataset = _open_dataset(split)
    ends = (dataset.pointers // 4 + dataset.lengths - 1).astype(np.int64)
    closed = int((dataset.tokens[ends] == END_OF_TEXT).sum()) if len(ends) else 0
    special = invalid = 0
    for start in range(0, len(dataset.tokens), _BLOCK_IDS):
        block = dataset.tokens[start : start + _BLOCK_IDS]
        invalid += int(((block < 0) | (block >= NUM_RANKS) & (block != END_OF_TEXT)).sum())
        special += int((block == END_OF_TEXT).sum())
    is_valid = invalid == 0 and closed == special == len(ends)
    invalid_ids = f"{pluralize(invalid, 'id')} outside the vocabulary"
    summary = f"{len(dataset.tokens):,} ids, {pluralize(closed, 'document')} closed, {invalid_ids}"
    return Verdict(is_valid, summary, {"ids_outside": invalid})


def token_budget_met(split: Artifact) -> Verdict:
    """Check that at most 1 % of the split's token budget is missing.

    A split ends before the first document that would exceed the split's budget. If this document is long, much of a
    small budget is unused. A failure is therefore only a warning if the corpus has enough tokens for the budget, and
    the number of missing tokens is at most the length of the split's longest document.
    """
    decisions, tokens = split.manifest.identity.decisions, split.manifest.identity.counts["tokens"]
    budget = decisions["token_budget"]
    missing = budget - tokens
    summary, numbers = f"{tokens:,} of {budget:,} tokens", {"tokens": tokens, "token_budget": budget}
    if missing * 100 <= budget:  # at most 1 %
        return Verdict(True, summary, numbers)
    summary += f", {missing / budget:.1%} missing: "
    if not decisions["budget_met"]:
        fix = "increase `snapshot.amount` if the dataset has more rows, select more shards, or lower `token_budget`"
        summary += f"the corpus ends before the budget; {fix}"
        return Verdict(False, summary, numbers)
    last = split.manifest.provenance.get("ended_by")
    summary += "the next document exceeds the budget"
    if last is not None:
        summary += f", {last['doc_id']} of {last['tokens']:,} tokens ({last['shard']} row {last['row']})"
    summary += "; drop such documents by a rule, or change `token_budget`"
    lengths = to_numpy(read_columns(split.path(DOCUMENTS_FILE), ["tokens"])["tokens"])
    return Verdict(False, summary, numbers, is_minor=missing <= lengths.max(initial=0))


def valid_fraction_is_plausible(dataset: Artifact) -> Verdict:
    """Check that the `valid` split's share of documents is close to `valid_fraction`.

    The difference may be at most 4.5 standard deviations of the binomial distribution.
    """
    ledger = _open_split(dataset, "valid").manifest.identity.ledger
    fraction = float(Fraction(dataset.manifest.identity.recipe["valid_fraction"]))
    documents = ledger.rows_in - ledger.total_rejected
    valid = documents - ledger.dropped.get("other_split", 0)
    margin = _MAX_SIGMAS * math.sqrt(documents * fraction * (1 - fraction))
    low, high = documents * fraction - margin, documents * fraction + margin
    summary = f"{valid:,} of {documents:,} documents, expected {max(low, 0):,.0f} to {high:,.0f}"
    return Verdict(low <= valid <= high, summary, {"valid_documents": valid, "documents": documents})


def no_document_in_both_splits(dataset: Artifact) -> Verdict:
    """Check that no doc_id is in both splits."""
    both, valid = _count_valid_in_train(dataset, _doc_ids)
    summary = f"{both:,} of {valid:,} valid documents have an id of a train document"
    return Verdict(both == 0, summary, {"in_both": both})


def no_valid_text_in_train(dataset: Artifact) -> Verdict:
    """Check that no document of `valid` has exactly the text of a `train` document.

    Such documents are possible, because the source dataset repeats pages in several dumps.
    """
    repeated, valid = _count_valid_in_train(dataset, _document_tokens)
    summary = f"{repeated:,} of {valid:,} valid documents have the text of a train document"
    return Verdict(repeated == 0, summary, {"valid_texts_in_train": repeated})


def _open_split(dataset: Artifact, split: Split) -> Artifact:
    digests = {entry.get("member"): entry["digest"] for entry in dataset.manifest.identity.inputs}
    return open_artifact(dataset.folder / split, digests[split])


def _open_dataset(split: Artifact) -> IndexedDataset:
    return read_indexed_dataset(split.folder / Path(TOKENS_FILE).stem)


def _doc_ids(split: Artifact) -> list[bytes]:
    return [doc_id.encode() for doc_id in read_columns(split.path(DOCUMENTS_FILE), ["doc_id"])["doc_id"].to_pylist()]


def _document_tokens(split: Artifact) -> list[memoryview]:
    """Return each document's token ids as bytes; equal bytes mean equal texts."""
    dataset = _open_dataset(split)
    data: Any = dataset.tokens.view(np.uint8)
    stops = dataset.pointers + 4 * dataset.lengths.astype(np.int64)  # bytes: ids are int32
    spans = zip(dataset.pointers.tolist(), stops.tolist(), strict=True)
    return [memoryview(data)[start:stop] for start, stop in spans]


def _count_valid_in_train(
    dataset: Artifact, read_values: Callable[[Artifact], Sequence[bytes | memoryview]]
) -> tuple[int, int]:
    """Count `valid` documents whose value is in `train`, and all `valid` documents.

    `read_values` returns the value of each document of a split.
    """
    # 32 hex digits (128 bits) of each value's sha256, shape (values,)
    train, valid = (
        np.array([hashlib.sha256(value).hexdigest()[:32] for value in read_values(_open_split(dataset, split))], "S32")
        for split in SPLITS
    )
    return int(np.isin(valid, train).sum()), len(valid)
