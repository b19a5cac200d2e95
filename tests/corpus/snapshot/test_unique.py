"""Unique doc_ids: repeated source ids are rejected, derived ids numbered."""

import hashlib
import logging
from collections.abc import Callable

import pyarrow as pa
import pytest
from stage_a_build import ledger

from pipeline_assets.spine.artifact import Artifact

Ingest = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
NO_ID = {"text": "text", "id": None, "created_at": None}


def derive_id(text: str) -> str:
    return hashlib.sha256(f"maker/pages\0default\0train\0{text}".encode()).hexdigest()


def test_the_first_of_repeated_source_ids_is_kept(ingest: Ingest, read_docs: Read, read_rejects: Read) -> None:
    texts = ["first a", "first b", "second a", "first c", "third a", "second b"]
    table = pa.table({"text": texts, "id": [text[-1] for text in texts]})

    snapshot = ingest({"x.parquet": table}, rows_per_group=2, shard_text_bytes=1)

    assert [document["text"] for document in read_docs(snapshot)] == ["first a", "first b", "first c"]
    assert read_rejects(snapshot) == [
        {"file": "x.parquet", "row": row, "reason": "duplicate_doc_id", "detail": doc_id}
        for row, doc_id in ((2, "a"), (4, "a"), (5, "b"))
    ]
    assert ledger(snapshot) == {"in": 6, "out": 3, "dropped": {}, "rejected": {"duplicate_doc_id": 3}}
    assert snapshot.manifest.identity.counts["text_bytes"] == len("first afirst bfirst c")
    assert [file.rows for file in snapshot.manifest.identity.files] == [2, 1, 0, 3]


def test_only_shards_with_repeats_are_rewritten(ingest: Ingest, caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"text": ["one", "two", "three", "four"], "id": ["a", "b", "c", "b"]})

    with caplog.at_level(logging.INFO, "corpusmill"):
        snapshot = ingest({"x.parquet": table}, rows_per_group=2, shard_text_bytes=1)

    assert [file.rows for file in snapshot.manifest.identity.files] == [2, 1, 1]
    [line] = [message for message in caplog.messages if message.startswith("unique_ids")]
    assert line.startswith("unique_ids: 1/1 shards; 1 document, ")


def test_ids_of_dropped_and_rejected_rows_remain_usable(ingest: Ingest, read_docs: Read) -> None:
    table = pa.table({"text": ["low", "", "good"], "id": ["a", "a", "a"], "int_score": [1, 3, 3]})

    snapshot = ingest({"x.parquet": table}, rules=["int_score >= 3"], max_reject_fraction="0.5")

    assert [document["text"] for document in read_docs(snapshot)] == ["good"]
    assert snapshot.manifest.identity.counts["ledger"]["rejected"] == {"empty_text": 1}


def test_without_an_id_column_ids_are_derived_and_repeats_numbered_across_shards(
    ingest: Ingest, read_docs: Read, read_rejects: Read
) -> None:
    table = pa.table({"text": ["same", "same", "other", "same", "other"]})

    snapshot = ingest({"x.parquet": table}, rows_per_group=2, shard_text_bytes=1, columns=NO_ID)

    same, other = derive_id("same"), derive_id("other")
    ids = [document["doc_id"] for document in read_docs(snapshot)]
    assert ids == [same, f"{same}#2", other, f"{same}#3", f"{other}#2"]
    assert read_rejects(snapshot) == []
    assert snapshot.manifest.identity.decisions["doc_id"] == "sha256(dataset, config, split, text)"
