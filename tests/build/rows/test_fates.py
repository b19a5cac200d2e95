"""Fates of documents by id and of source rows.

The fates of source rows are compared with a second reading of the hub's own files.
"""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forgery import overwrite
from refusals import refusal
from stage_a_build import build, only, recipe_with
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.build.rows.follow import FollowedRow, follow_document, follow_source
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.row_values import Fate
from pipeline_assets.build.rows.source_listing import TextSource, merged_row_ranges
from pipeline_assets.build.rows.source_row import HubRow
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS

Fates = Callable[[str], list[FollowedRow]]
Built = Callable[..., dict[str, Artifact]]


def write_notes(root: Path, rows: list[dict[str, object]]) -> None:
    path = root / "sources" / "notes" / "a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def fates_in(row: FollowedRow, group: str) -> list[Fate]:
    return [fate for store, fate in row.downstream if store.display_names.json_key == group]


KEPT: dict[str, object] = {"id": "kept", "text": "five words are in here", "license": "MIT"}
NOTES: list[dict[str, object]] = [
    {"id": "other", "text": 'the id "kept-2" is only spoken of here'},
    KEPT,
    {"id": "short", "text": "too short"},
    {"id": "secret", "text": "five words are in here too", "license": "proprietary"},
    {"id": "mail", "text": "write to me at somebody@company.com or call me soon"},
    KEPT | {"text": "the same id with another text"},
]


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory) -> Fates:
    """Follow an id in a file of notes with a word limit and masked addresses."""
    root = tmp_path_factory.mktemp("notes")
    write_notes(root, NOTES)
    columns = {"text": "text", "id": "id", "created_at": None, "license": "license"}
    filters = {"length": {"min_words": 5}, "masking": {"emails": True, "public_ips": True}}
    keys = {"columns": columns, "filters": filters, "max_reject_fraction": "0.9"}
    build(recipe_with(root, only("notes", **keys)), root)
    return lambda doc_id: list(follow_document(RowStores(SYSTEMS.kinds, Lineage(root)), doc_id))


def test_kept_document_has_its_place_licence_measurements_and_repeated_rows(fates: Fates) -> None:
    [fate] = fates("kept")

    assert (fate.part.shard, fate.part.shard_row) == ("shards/00000.jsonl.zst", 1)
    source = fate.store.origin(fate.part)
    assert isinstance(source, TextSource)
    assert (source.license_tag, source.license_evidence) == ("mit", "row: license")
    [filtered] = fates_in(fate, "filtered")
    assert (filtered.outcome, filtered.facts["reason"]) == ("kept", None)
    assert "few_words 5 = 5" in filtered.facts["measurements"]
    before = sum(len(json.dumps(row)) + 1 for row in NOTES[:-1])
    assert fate.part.text == "five words are in here"
    assert [(reject.reason, reject.row) for reject in fate.rejects] == [("duplicate_doc_id", before)]


@pytest.mark.parametrize(
    ("doc_id", "reason", "measurement"),
    [("short", "few_words", "few_words 2 < 5"), ("secret", "refused_licence", "refused_licence proprietary")],
)
def test_dropped_document_has_its_reason_and_a_refused_licence_precedes_all_filters(
    doc_id: str, reason: str, measurement: str, fates: Fates
) -> None:
    [fate] = fates(doc_id)

    [filtered] = fates_in(fate, "filtered")
    assert (filtered.outcome, filtered.facts["reason"]) == ("dropped", reason)
    assert filtered.facts["measurements"][0] == measurement


def test_masked_addresses_are_counted_and_an_id_within_a_text_is_not_found(fates: Fates) -> None:
    [fate] = fates("mail")

    assert fates_in(fate, "filtered")[0].facts["changes"] == {"masked/email": 1}
    assert fates("kept-2") == []


def test_repeated_and_foreign_documents_have_their_reasons(tmp_path: Path) -> None:
    texts = {
        "first": KEPT["text"],
        "again": KEPT["text"],
        "german": "Und niemand war davon überrascht, was sie sagten.",
    }
    write_notes(tmp_path, [{"id": doc_id, "text": text} for doc_id, text in texts.items()])
    columns = {"text": "text", "id": "id", "created_at": None, "license": None}
    filters = {"windows": {}, "length": {"min_words": 5}, "language": {"threshold": "0.1"}}

    build(recipe_with(tmp_path, only("notes", columns=columns, filters=filters)), tmp_path)
    lines_by_id = {
        doc_id: [
            fate.lines
            for row in follow_document(RowStores(SYSTEMS.kinds, Lineage(tmp_path)), doc_id)
            for fate in fates_in(row, "filtered")
        ]
        for doc_id in texts
    }

    language = re.compile(r"  other_language en (0\.\d+|1\.0); kept: en from 0\.1")
    [first], [again], [german] = lines_by_id.values()
    assert first[:2] == ["kept", "  few_words 5 = 5"] and language.fullmatch(first[2])
    assert again == ["dropped for repeated_windows", "  repeated_windows 1 > 0.5", *first[1:]]
    assert german[0] == "dropped for other_language"
    assert german[2].startswith("  other_language de ")


def test_decontamination_evidence_is_shown_for_documents_that_reached_it(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        only("notes", columns={"text": "text", "id": "id", "created_at": None, "license": None})(content)
        with_dedup(content)
        with_decontamination(content)

    texts = {"leak": "first of all the river drinks water", "copy": "First of all: the river drinks water!"}
    rows = [KEPT, *({"id": doc_id, "text": text} for doc_id, text in texts.items())]
    write_notes(tmp_path, rows)
    write_quiz(tmp_path / "sources" / "quiz", ["The river drinks water, first of all?", "All the river drinks water"])

    build(recipe_with(tmp_path, change), tmp_path)
    rows_by_id = {
        doc_id: list(follow_document(RowStores(SYSTEMS.kinds, Lineage(tmp_path)), doc_id))
        for doc_id in ("kept", "leak", "copy")
    }

    items = {
        doc_id: [fate.facts["evidence"] and fate.facts["evidence"]["item"] for fate in fates_in(row, "decontaminated")]
        for doc_id, [row] in rows_by_id.items()
    }
    assert items == {"kept": [None], "leak": ["q-1"], "copy": []}


def test_every_source_row_has_the_fate_that_a_second_reading_of_the_hub_gives_it(
    source_tables: dict[str, list[dict[str, object]]], hub_folder: Path, demo_root: Path
) -> None:
    sealed = Lineage(demo_root).manifests.items()
    [folder] = [folder for folder, summary in sealed if summary.kind == "healing/fineweb_edu_snapshot"]
    manifest = open_artifact(folder).manifest
    drawn: set[tuple[str, int]] = set()
    for entry in manifest.identity.inputs:
        path = entry["name"].partition(":")[2]
        groups = pq.ParquetFile(hub_folder / path).metadata
        starts = np.cumsum([0, *(groups.row_group(number).num_rows for number in range(groups.num_row_groups))])
        for group in entry["row_groups"]:
            assert group["first_row"] == starts[group["number"]]
            drawn |= {(path, int(starts[group["number"]]) + row) for row in range(group["rows"])}
    lineage = Lineage(demo_root)
    rows = [(path, number) for path, table in source_tables.items() for number in range(len(table))]

    undrawn = random.Random("undrawn").sample(sorted(set(rows) - drawn), 20)

    for path, number in [*random.Random("rows").sample(rows, 80), *undrawn]:
        row = source_tables[path][number]
        source = HubRow("HuggingFaceFW/fineweb-edu", manifest.identity.recipe["revision"], path, number)
        [followed_row] = follow_source(RowStores(SYSTEMS.kinds, lineage), source)
        fate = followed_row.fate

        assert fate.artifact.folder == folder
        is_drawn = (path, number) in drawn
        if not is_drawn:
            assert fate.outcome == "not_read"
        elif row["int_score"] < 3:
            assert (fate.outcome, fate.detail) == ("dropped", "by `int_score >= 3`")
        else:
            assert fate.outcome in ("document", "rejected")


@pytest.mark.parametrize(
    ("row_groups", "ranges"),
    [
        ([], []),
        ([(10, 10), (0, 10)], [range(20)]),
        ([(20, 10), (0, 10)], [range(10), range(20, 30)]),
        ([(10, 10), (0, 4)], [range(4), range(10, 20)]),
        ([(0, 10), (10, 0), (10, 10)], [range(20)]),
        ([(0, 0)], []),
    ],
)
def test_adjacent_row_groups_are_merged_into_one_range_of_rows(
    row_groups: list[tuple[int, int]], ranges: list[range]
) -> None:
    entries = [{"first_row": first_row, "rows": rows} for first_row, rows in row_groups]

    assert merged_row_ranges(entries) == ranges


def read_fate(root: Path, snapshot: Artifact, row: int, path: str = "a.parquet") -> tuple[str, str, dict[str, str]]:
    """Return the outcome of a row, its detail, and its outcome in each split."""
    followed_row = follow_row(root, snapshot, row, path)
    splits = {fate.artifact.folder.name: fate.outcome for _, fate in followed_row.downstream}
    return followed_row.fate.outcome, followed_row.fate.detail, splits


def follow_row(root: Path, snapshot: Artifact, row: int, path: str) -> FollowedRow:
    source = HubRow("maker/pages", snapshot.manifest.identity.recipe["revision"], path, row)
    [followed_row] = follow_source(RowStores(SYSTEMS.kinds, Lineage(root)), source)
    return followed_row


def test_rejected_dropped_over_budget_and_other_splits_rows_have_their_reasons(built: Built, tmp_path: Path) -> None:
    snapshot = built(token_budget=30)["snapshot"]

    fates = [read_fate(tmp_path / "data", snapshot, row) for row in range(11)]
    details = {
        row: follow_row(tmp_path / "data", snapshot, row, "a.parquet").downstream[0][1].detail for row in (6, 8, 10)
    }

    assert [fate[:2] for fate in fates[1:5]] == [
        ("rejected", "no_text (null)"),
        ("rejected", "empty_text"),
        ("rejected", "duplicate_doc_id (page-0)"),
        ("dropped", "by `score >= 3`"),
    ]
    in_train = ("document", "", {"train": "in_split", "valid": "other_split"})
    over_budget = ("document", "", {"train": "over_budget", "valid": "other_split"})
    assert [fates[row] for row in (0, 5, 7, 8, 9)] == [in_train, in_train, in_train, over_budget, over_budget]
    assert fates[6] == ("document", "", {"train": "rejected", "valid": "other_split"})
    assert fates[10][2] == {"train": "other_split", "valid": "over_budget"}
    assert details == {
        6: "blanks (a million blanks in a row overflow the tokenizer)",
        8: "after the cut at 27 tokens",
        10: "document belongs to valid",
    }


def test_shard_outside_the_text_manifest_is_not_selected(built: Built, tmp_path: Path) -> None:
    snapshot = built(shards=("shards/00001.*",))["snapshot"]

    assert read_fate(tmp_path / "data", snapshot, 0)[2] == {"train": "not_selected", "valid": "not_selected"}
    assert read_fate(tmp_path / "data", snapshot, 12)[2] == {"train": "in_split", "valid": "other_split"}


def test_undrawn_files_and_ends_of_cut_row_groups_are_not_read(ingest: Callable[..., Artifact], tmp_path: Path) -> None:
    tables = {
        f"{name}.parquet": pa.table({"text": ["a"] * 20, "id": [f"{name}-{row}" for row in range(20)]}) for name in "ab"
    }
    snapshot = ingest(tables, rows_per_group=20, amount={"documents": 12})
    [drawn] = [entry["name"] for entry in snapshot.manifest.identity.inputs if "row_groups" in entry]
    path = drawn.partition(":")[2]
    other = "a.parquet" if path == "b.parquet" else "b.parquet"

    fates = [read_fate(tmp_path / "data", snapshot, *place)[:2] for place in ((11, path), (12, path), (4, other))]

    cut_off = ("not_read", "rows read of the file: 0 to 11")
    assert fates == [("document", ""), cut_off, ("not_read", "no row group of the file was drawn")]


def test_row_between_drawn_row_groups_is_not_read_and_filtered_row_within_is_dropped(
    ingest: Callable[..., Artifact], tmp_path: Path
) -> None:
    scores = [5] * 20 + [1] * 5 + [5] * 35
    table = pa.table({"text": ["a"] * 60, "id": [f"page-{row}" for row in range(60)], "score": scores})
    snapshot = ingest({"a.parquet": table}, rows_per_group=10, amount={"documents": 30}, rules=["score >= 3"])
    numbers = sorted(group["number"] for group in snapshot.manifest.identity.inputs[0]["row_groups"])
    assert numbers == [0, 2, 5]

    fates = [read_fate(tmp_path / "data", snapshot, row)[:2] for row in (9, 10, 22, 45, 60)]

    not_read = ("not_read", "rows read of the file: 0 to 9, 20 to 29, 50 to 59")
    assert fates == [("document", ""), not_read, ("dropped", "by `score >= 3`"), not_read, not_read]


def test_unreadable_manifest_stops_the_search(built: Built, tmp_path: Path) -> None:
    snapshot = built()["snapshot"]
    overwrite(tmp_path / "data" / "selections" / "pages_v1" / "manifest.json", b"{")

    with pytest.raises(InputError, match="not a valid manifest"):
        read_fate(tmp_path / "data", snapshot, 0)


def test_split_with_a_missing_text_manifest_has_unknown_fates(built: Built, tmp_path: Path) -> None:
    snapshot = built()["snapshot"]
    shutil.rmtree(tmp_path / "data" / "selections")

    assert read_fate(tmp_path / "data", snapshot, 0)[2] == {"train": "unknown", "valid": "unknown"}


def test_file_that_no_snapshot_lists_is_refused(built: Built, tmp_path: Path) -> None:
    revision = built()["snapshot"].manifest.identity.recipe["revision"]
    root, other = tmp_path / "data", HubRow("maker/pages", "0" * 40, "a.parquet", 3)

    refused, empty = (
        refusal(lambda data_root=data_root: follow_source(RowStores(SYSTEMS.kinds, Lineage(data_root)), other))
        for data_root in (root, tmp_path / "none")
    )

    assert refused == (f"{other.file}: no source below {root} lists this file; known sources: maker/pages@{revision}")
    assert empty.endswith("lists this file; pass the data root of a build with --data")


def test_source_row_round_trips() -> None:
    text = f"HuggingFaceFW/fineweb-edu@{'ab' * 20}:data/a#b:c/x.parquet#17"

    source = HubRow.parse(text)

    assert (source.path, source.row, str(source)) == ("data/a#b:c/x.parquet", 17, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "maker/pages",
        "maker/pages@main:a.parquet#3",
        f"maker/pages@{'0' * 40}:a",
        f"maker/pages@{'0' * 40}:a#{'9' * 5000}",  # above the digits that Python's int() takes
    ],
)
def test_text_that_is_not_a_row_of_a_hub_file_is_refused(text: str) -> None:
    assert refusal(lambda: HubRow.parse(text), UsageError) == (
        (text or "''") + ": not a row of a hub file; "
        "write owner/name@commit:path#row, the commit with 40 hex digits, rows from 0"
    )
