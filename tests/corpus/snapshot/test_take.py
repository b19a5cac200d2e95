"""Whole snapshots: ledger, errors, and independence of workers and shards."""

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_hub import FaultyHub
from refusals import refusal

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe

Ingest = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]


def pages(rows: int) -> pa.Table:
    """Build pages, some with a low score, without text or with a repeated id."""
    numbers = range(rows)
    return pa.table(
        {
            "text": [None if number % 50 == 49 else f"Text of page {number}." for number in numbers],
            "id": [f"page-{number - 1 if number % 11 == 10 else number}" for number in numbers],
            "int_score": [2 if number % 7 == 0 else 3 for number in numbers],
        }
    )


def test_every_row_is_a_document_a_drop_or_a_reject(ingest: Ingest, read_docs: Read, read_rejects: Read) -> None:
    snapshot = ingest({"a.parquet": pages(500)}, rules=["int_score >= 3"], max_reject_fraction="0.02")

    counts = snapshot.manifest.identity.counts
    ledger = counts["ledger"]
    kept = [number for number in range(500) if number % 7]
    no_text = [number for number in kept if number % 50 == 49]
    seen = {number for number in kept if number % 50 != 49}
    repeated = [number for number in seen if number % 11 == 10 and number - 1 in seen]
    assert ledger["in"] == 500
    assert ledger["dropped"] == {"int_score >= 3": 72}
    assert ledger["rejected"] == {"duplicate_doc_id": len(repeated), "no_text": len(no_text)}
    assert ledger["in"] == ledger["out"] + 72 + len(repeated) + len(no_text)
    assert ledger["out"] == counts["documents"] == len(read_docs(snapshot))
    assert counts["text_bytes"] == sum(len(str(document["text"])) for document in read_docs(snapshot))
    assert len(read_rejects(snapshot)) == len(repeated) + len(no_text)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            pages(20),
            "none of the 20 rows became a document (20 int_score >= 5); loosen `rules` or `language` in the recipe",
        ),
        (pages(0), "the files contain no rows; choose files with rows, or remove the source"),
    ],
    ids=["all dropped", "no rows"],
)
def test_a_snapshot_without_documents_is_an_error(ingest: Ingest, table: pa.Table, message: str) -> None:
    assert refusal(lambda: ingest({"a.parquet": table}, rules=["int_score >= 5"])) == f"maker/pages: {message}"


def test_a_row_group_without_rows_and_without_pages_adds_nothing(ingest: Ingest, read_docs: Read) -> None:
    file = io.BytesIO()
    with pq.ParquetWriter(file, pages(2).schema, use_dictionary=["id"]) as writer:
        for rows in (0, 2, 0):  # of rows that do not exist, only the column `id` has a page
            writer.write_table(pages(2).slice(0, rows))

    snapshot = ingest({"a.parquet": file.getvalue()}, amount={"files": 1})

    assert [document["doc_id"] for document in read_docs(snapshot)] == ["page-0", "page-1"]
    groups = snapshot.manifest.identity.inputs[0]["row_groups"]
    assert [(group["rows"], group["start"] < group["stop"]) for group in groups] == [(0, True), (2, True), (0, True)]


def test_a_limit_of_documents_counts_source_rows_and_cuts_the_last_row_group(ingest: Ingest, read_docs: Read) -> None:
    rows = range(50)
    table = pa.table({"text": [*map(str, rows)], "id": [*map(str, rows)], "int_score": [n % 2 for n in rows]})

    snapshot = ingest({"a.parquet": table}, rows_per_group=10, rules=["int_score == 1"], amount={"documents": 25})

    groups = snapshot.manifest.identity.inputs[0]["row_groups"]
    assert [group["rows"] for group in groups] == [10, 10, 5]
    assert snapshot.manifest.identity.counts["ledger"]["in"] == 25
    read = [n for group in groups for n in range(10 * group["number"], 10 * group["number"] + group["rows"])]
    assert [int(str(document["doc_id"])) for document in read_docs(snapshot)] == [n for n in read if n % 2]


def test_one_shard_or_many_have_the_same_documents_in_the_same_order(ingest: Ingest, read_docs: Read) -> None:
    settings = {"rules": ["int_score >= 3"], "max_reject_fraction": "0.02", "rows_per_group": 20}

    single = ingest({"a.parquet": pages(300)}, **settings)
    many = ingest({"a.parquet": pages(300)}, root="many", shard_text_bytes=1, **settings)

    assert [len(single.manifest.identity.files), len(many.manifest.identity.files)] == [2, 16]
    assert read_docs(many) == read_docs(single)
    assert many.manifest.identity.counts == single.manifest.identity.counts


@pytest.mark.parametrize(
    "engine",
    [RunSettings(1), RunSettings(2), RunSettings(2, "spawn")],
    ids=["1 forked", "2 forked", "2 spawned"],
)
def test_workers_do_not_change_the_digest(ingest: Ingest, engine: RunSettings) -> None:
    settings = {"max_reject_fraction": "0.02", "rows_per_group": 50, "shard_text_bytes": 1}

    inline = ingest({"a.parquet": pages(200)}, **settings)
    with_workers = ingest({"a.parquet": pages(200)}, root="workers", engine=engine, **settings)

    assert with_workers.manifest.digest == inline.manifest.digest
    assert [file.sha256 for file in with_workers.manifest.storage] == [file.sha256 for file in inline.manifest.storage]


def test_a_cached_dataset_is_ingested_again_without_network(
    ingest: Ingest,
    hub: FaultyHub,
    build_snapshot: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: Path,
) -> None:
    first = ingest({"a.parquet": pages(10)})
    hub.stop()

    recipe = healing_recipe(first.manifest.identity.recipe["revision"])
    repeated = build_snapshot(recipe, tmp_path / "offline")

    assert repeated.manifest.digest == first.manifest.digest
