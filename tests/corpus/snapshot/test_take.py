"""A snapshot as a whole: the ledger adds up, bad input stops it with a reason, workers and shards change no content."""

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

Take = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]


def pages(rows: int) -> pa.Table:
    """Pages of which every 7th scores low, every 50th has no text, and every 11th id was there before."""
    numbers = range(rows)
    return pa.table(
        {
            "text": [None if number % 50 == 49 else f"Text of page {number}." for number in numbers],
            "id": [f"page-{number - 1 if number % 11 == 10 else number}" for number in numbers],
            "int_score": [2 if number % 7 == 0 else 3 for number in numbers],
        }
    )


def test_rows_are_documents_and_drops_and_rejects_by_reason(take: Take, documents_of: Read, rejects_of: Read) -> None:
    snapshot = take({"a.parquet": pages(500)}, rules=["int_score >= 3"], max_reject_fraction="0.02")

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
    assert ledger["out"] == counts["documents"] == len(documents_of(snapshot))
    assert counts["text_bytes"] == sum(len(str(document["text"])) for document in documents_of(snapshot))
    assert len(rejects_of(snapshot)) == len(repeated) + len(no_text)


def test_rejects_above_the_limit_stop_the_build_and_the_first_five_are_shown(take: Take, tmp_path: Path) -> None:
    texts = pa.array([None] * 6 + ["Text"] * 94, pa.string())

    told = refusal(lambda: take({"a.parquet": pa.table({"text": texts, "id": [str(n) for n in range(100)]})}))

    shown = "; ".join(f"a.parquet row {row}: no_text (null)" for row in range(5))
    what = f"6 of 100 rows are rejected (6 no_text), above `max_reject_fraction` 0.001 (the first: {shown})"
    accept = "set `max_reject_fraction` in the recipe to 0.1 to accept these rejects"
    assert told.startswith(str(tmp_path / "data/corpora/pages"))
    assert told.endswith(f": {what}; check those rows, or {accept}")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pages(20), "no row passed the rules; loosen `rules` or `language` in the recipe"),
        (pages(0), "the files contain no rows; choose files with rows, or remove the source"),
    ],
    ids=["all dropped", "no rows"],
)
def test_a_snapshot_of_no_document_is_an_error(take: Take, table: pa.Table, words: str) -> None:
    assert refusal(lambda: take({"a.parquet": table}, rules=["int_score >= 5"])) == f"maker/pages: {words}"


def test_a_row_group_without_rows_and_without_pages_adds_nothing(take: Take, documents_of: Read) -> None:
    file = io.BytesIO()
    with pq.ParquetWriter(file, pages(2).schema, use_dictionary=["id"]) as writer:
        for rows in (0, 2, 0):  # of rows that do not exist, only the column `id` has a page
            writer.write_table(pages(2).slice(0, rows))

    snapshot = take({"a.parquet": file.getvalue()}, amount={"files": 1})

    assert [document["doc_id"] for document in documents_of(snapshot)] == ["page-0", "page-1"]
    groups = snapshot.manifest.identity.inputs[0]["row_groups"]
    assert [(group["rows"], group["start"] < group["stop"]) for group in groups] == [(0, True), (2, True), (0, True)]


def test_a_limit_of_documents_counts_source_rows_and_cuts_the_last_row_group(take: Take, documents_of: Read) -> None:
    rows = range(50)
    table = pa.table({"text": [*map(str, rows)], "id": [*map(str, rows)], "int_score": [n % 2 for n in rows]})

    snapshot = take({"a.parquet": table}, rows_per_group=10, rules=["int_score == 1"], amount={"documents": 25})

    groups = snapshot.manifest.identity.inputs[0]["row_groups"]
    assert [group["rows"] for group in groups] == [10, 10, 5]
    assert snapshot.manifest.identity.counts["ledger"]["in"] == 25
    read = [n for group in groups for n in range(10 * group["number"], 10 * group["number"] + group["rows"])]
    assert [int(str(document["doc_id"])) for document in documents_of(snapshot)] == [n for n in read if n % 2]


def test_one_shard_or_many_hold_the_same_documents_in_the_same_order(take: Take, documents_of: Read) -> None:
    settings = {"rules": ["int_score >= 3"], "max_reject_fraction": "0.02", "rows_per_group": 20}

    one = take({"a.parquet": pages(300)}, **settings)
    many = take({"a.parquet": pages(300)}, root="many", shard_text_bytes=1, **settings)

    assert [len(one.manifest.identity.files), len(many.manifest.identity.files)] == [2, 16]
    assert documents_of(many) == documents_of(one)
    assert many.manifest.identity.counts == one.manifest.identity.counts


@pytest.mark.parametrize(
    "engine",
    [RunSettings(1), RunSettings(2), RunSettings(2, "spawn")],
    ids=["1 forked", "2 forked", "2 spawned"],
)
def test_workers_have_no_part_in_the_digest(take: Take, engine: RunSettings) -> None:
    settings = {"max_reject_fraction": "0.02", "rows_per_group": 50, "shard_text_bytes": 1}

    here = take({"a.parquet": pages(200)}, **settings)
    elsewhere = take({"a.parquet": pages(200)}, root="workers", engine=engine, **settings)

    assert elsewhere.manifest.digest == here.manifest.digest
    assert [file.sha256 for file in elsewhere.manifest.storage] == [file.sha256 for file in here.manifest.storage]


def test_a_dataset_that_was_read_once_needs_no_network_to_be_taken_again(
    take: Take,
    hub: FaultyHub,
    build_snapshot: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: Path,
) -> None:
    first = take({"a.parquet": pages(10)})
    hub.stop()

    recipe = healing_recipe(first.manifest.identity.recipe["revision"])
    again = build_snapshot(recipe, tmp_path / "offline")

    assert again.manifest.digest == first.manifest.digest
