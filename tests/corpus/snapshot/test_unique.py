"""Every doc_id once: repeated source ids are rejected, the first in manifest order stays; derived ids are numbered."""

import hashlib
import logging
from collections.abc import Callable

import pyarrow as pa
import pytest

from pipeline_assets.spine.artifact import Artifact

Take = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
NO_ID = {"text": "text", "id": None, "created_at": None}


def derived(text: str) -> str:
    return hashlib.sha256(f"maker/pages\0default\0train\0{text}".encode()).hexdigest()


def test_the_first_of_repeated_source_ids_in_a_manifest_stays(take: Take, documents_of: Read, rejects_of: Read) -> None:
    table = pa.table(
        {
            "text": ["first a", "first b", "second a", "first c", "third a", "second b"],
            "id": ["a", "b", "a", "c", "a", "b"],
        }
    )

    snapshot = take({"x.parquet": table}, rows_per_group=2, shard_text_bytes=1)

    assert [document["text"] for document in documents_of(snapshot)] == ["first a", "first b", "first c"]
    assert rejects_of(snapshot) == [
        {"file": "x.parquet", "row": 2, "reason": "duplicate_doc_id", "detail": "a"},
        {"file": "x.parquet", "row": 4, "reason": "duplicate_doc_id", "detail": "a"},
        {"file": "x.parquet", "row": 5, "reason": "duplicate_doc_id", "detail": "b"},
    ]
    assert snapshot.manifest.identity.counts["ledger"] == {
        "in": 6,
        "out": 3,
        "dropped": {},
        "rejected": {"duplicate_doc_id": 3},
    }
    assert snapshot.manifest.identity.counts["text_bytes"] == len("first afirst bfirst c")
    assert [file.rows for file in snapshot.manifest.identity.files] == [2, 1, 0, 3]


def test_shards_without_repeats_are_linked_and_others_rewritten(take: Take, caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"text": ["one", "two", "three", "four"], "id": ["a", "b", "c", "b"]})

    with caplog.at_level(logging.INFO, "corpusmill"):
        snapshot = take({"x.parquet": table}, rows_per_group=2, shard_text_bytes=1)

    assert [file.rows for file in snapshot.manifest.identity.files] == [2, 1, 1]
    [said] = [message for message in caplog.messages if message.startswith("publish")]
    assert said.startswith("publish: 1/1 shards; 1 documents, ")


def test_a_row_that_was_dropped_or_rejected_leaves_its_id_to_the_next(take: Take, documents_of: Read) -> None:
    table = pa.table({"text": ["low", "", "good"], "id": ["a", "a", "a"], "int_score": [1, 3, 3]})

    snapshot = take({"x.parquet": table}, rules=["int_score >= 3"], max_reject_fraction="0.5")

    assert [document["text"] for document in documents_of(snapshot)] == ["good"]
    assert snapshot.manifest.identity.counts["ledger"]["rejected"] == {"empty_text": 1}


def test_without_a_column_for_it_the_id_is_derived_and_repeats_are_numbered_across_shards(
    take: Take, documents_of: Read, rejects_of: Read
) -> None:
    table = pa.table({"text": ["same", "same", "other", "same", "other"]})

    snapshot = take({"x.parquet": table}, rows_per_group=2, shard_text_bytes=1, columns=NO_ID)

    assert [document["doc_id"] for document in documents_of(snapshot)] == [
        derived("same"),
        derived("same") + "#2",
        derived("other"),
        derived("same") + "#3",
        derived("other") + "#2",
    ]
    assert rejects_of(snapshot) == []
    assert snapshot.manifest.identity.counts["documents"] == 5
    assert snapshot.manifest.identity.decisions["doc_id"] == "sha256(dataset, config, split, text)"
