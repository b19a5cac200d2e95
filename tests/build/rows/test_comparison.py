"""Two artifacts of one kind held side by side: what was asked, what they are made from, what they count.

Documents are counted one by one, whatever the memory allowed.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from candidate_pools import MIXED, pools_of, rows_artifact
from forgery import overwrite
from numbered_pages import numbered, pages
from refusals import refusal

from pipeline_assets.build.rows.comparison import CountChange, DocumentExamples, compare, compare_counts
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.systems.registry import SYSTEMS

Take = Callable[..., Artifact]
SplitOf = Callable[..., Artifact]


def test_equal_digests_are_identical_and_no_file_is_read(take: Take, tmp_path: Path) -> None:
    a = take({"a.parquet": pages(numbered(0, 20))})
    shutil.copytree(a.folder, tmp_path / "copy")
    b = open_artifact(tmp_path / "copy")
    for shard in (tmp_path / "copy" / "shards").iterdir():
        shard.unlink()

    found = compare(a, b, SYSTEMS.kinds)

    assert found.is_identical
    assert (found.counts, found.documents) == ((), ())


def test_the_hub_files_and_row_groups_read_are_held_side_by_side(take: Take) -> None:
    first = {"a.parquet": pages(numbered(0, 20)), "b.parquet": pages(numbered(20, 30))}
    second = {"b.parquet": pages(numbered(20, 31)), "c.parquet": pages(numbered(40, 60))}
    a = take(first, root="a", rows_per_group=10)
    b = take(second, root="b", rows_per_group=10, files=["b.parquet", "c.parquet"])

    found = compare(a, b, SYSTEMS.kinds)

    commits = [one.manifest.identity.recipe["revision"] for one in (a, b)]
    digests = [[entry["digest"] for entry in one.manifest.identity.inputs] for one in (a, b)]
    groups = ", 10 rows of group 0, 10 rows of group 1"
    assert found.changes["files_read"] == [
        f"maker/pages:a.parquet: {digests[0][0]}{groups} → none",
        f"maker/pages:b.parquet: {digests[0][1]}, 10 rows of group 0 → "
        f"{digests[1][0]}, 10 rows of group 0, 1 rows of group 1",
        f"maker/pages:c.parquet: none → {digests[1][1]}{groups}",
    ]
    assert found.changes["recipe"] == [
        "files: ['*.parquet'] → ['b.parquet', 'c.parquet']",
        f"revision: {commits[0]} → {commits[1]}",
    ]


def test_selections_are_compared_by_their_shards(split_of: SplitOf, tmp_path: Path) -> None:
    split_of(numbered(0, 20), "a")
    split_of(numbered(0, 10) | numbered(10, 20, "other") | numbered(20, 30), "b")
    a, b = (open_artifact(tmp_path / root / "selections" / "pages_v1") for root in "ab")

    found = compare(a, b, SYSTEMS.kinds)

    replaced, added = found.changes["shards_selected"]
    assert replaced.startswith("shards/00001.jsonl.zst: ") and "none" not in replaced
    assert added.startswith("shards/00002.jsonl.zst: none → ")
    assert found.documents == []
    assert found.counts == [CountChange("documents", 20, 30), CountChange("shards", 2, 3)]


def test_counts_stand_side_by_side_and_the_ledger_comes_last() -> None:
    a = {"ledger": {"in": 10, "out": 8, "dropped": {"short": 2}}, "documents": 8, "tokens": {"train": 5, "valid": 1}}
    b = {"ledger": {"in": 12, "out": 8, "dropped": {"long": 4}}, "documents": 8, "tokens": {"train": 9, "valid": 1}}

    found = compare_counts(a, b)

    assert [(count.name, count.a, count.b, count.delta) for count in found] == [
        ("documents", 8, 8, 0),
        ("tokens.train", 5, 9, 4),
        ("tokens.valid", 1, 1, 0),
        ("ledger.dropped.long", 0, 4, 4),
        ("ledger.dropped.short", 2, 0, -2),
        ("ledger.in", 10, 12, 2),
        ("ledger.out", 8, 8, 0),
    ]


def test_shares_are_decimals_beside_counts_and_their_difference_is_one_too() -> None:
    a = {"rows": 10, "share": "0.750000", "by_source": {"web": {"epochs": "1.10"}}}
    b = {"rows": 12, "share": "0.500000", "by_source": {"web": {"epochs": "1.1"}, "wiki": {"epochs": "2.5"}}}

    found = compare_counts(a, b)

    assert [(count.name, count.a, count.b, count.delta, count.is_equal) for count in found] == [
        ("by_source.web.epochs", "1.10", "1.1", "0.00", True),
        ("by_source.wiki.epochs", 0, "2.5", "2.5", False),
        ("rows", 10, 12, 2, False),
        ("share", "0.750000", "0.500000", "-0.250000", False),
    ]


def test_counts_of_a_list_of_sources_are_named_by_source() -> None:
    a = {"documents": 5, "sources": [{"source": "web", "documents": 2}, {"source": "notes", "documents": 3}]}
    b = {"documents": 3, "sources": [{"source": "notes", "documents": 3}]}

    found = compare_counts(a, b)

    assert [(count.name, count.a, count.b, count.delta, count.is_equal) for count in found] == [
        ("documents", 5, 3, -2, False),
        ("sources.notes.documents", 3, 3, 0, True),
        ("sources.web.documents", 2, 0, -2, False),
    ]


def test_a_stage_and_a_tokenizer_that_changed_are_told(split_of: SplitOf) -> None:
    a = split_of(numbered(0, 10), "a")
    stage = replace(a.manifest.identity.stage, version=2)
    tokenizer = {"family": "o200k_harmony", "sha256": "ab" * 32}
    identity = replace(a.manifest.identity, stage=stage, tokenizer=tokenizer)
    b = Artifact(a.folder, replace(a.manifest, identity=identity))

    found = compare(a, b, SYSTEMS.kinds)

    stage_line, tokenizer_line = found.changes["made_by"]
    assert stage_line == "stage: megatron_split version 1 → megatron_split version 2"
    assert tokenizer_line.endswith(f" → o200k_harmony {'ab' * 32}")


def test_documents_are_counted_by_id_and_by_text(take: Take) -> None:
    a = take({"a.parquet": pages(numbered(0, 30))}, root="a")
    b = take({"a.parquet": pages(numbered(7, 20) | numbered(20, 23, "other") | numbered(23, 31))}, root="b")

    [documents] = compare(a, b, SYSTEMS.kinds).documents

    assert documents.part is None
    assert documents.only_in_a == DocumentExamples(7, ["page-0", "page-1", "page-2", "page-3", "page-4"])
    assert documents.only_in_b == DocumentExamples(1, ["page-30"])
    assert documents.in_both == DocumentExamples(23, ["page-7", "page-8", "page-9", "page-10", "page-11"])
    assert documents.changed == DocumentExamples(3, ["page-20", "page-21", "page-22"])


@pytest.mark.parametrize("part_documents", [1, 7, 60, 61, 10**9])
def test_the_number_of_parts_changes_nothing(take: Take, part_documents: int) -> None:
    a = take({"a.parquet": pages(numbered(0, 30))}, root="a", rows_per_group=7, shard_text_bytes=1)
    b = take({"a.parquet": pages(numbered(10, 40))}, root="b", rows_per_group=4, shard_text_bytes=1)

    [documents] = compare(a, b, SYSTEMS.kinds, part_documents).documents

    assert documents.only_in_a == DocumentExamples(10, ["page-0", "page-1", "page-2", "page-3", "page-4"])
    assert documents.only_in_b == DocumentExamples(10, ["page-30", "page-31", "page-32", "page-33", "page-34"])
    assert (documents.in_both.documents, documents.changed) == (20, DocumentExamples(0, []))


def test_token_runs_are_compared_document_by_document(split_of: SplitOf) -> None:
    a = split_of(numbered(0, 10), "a")
    b = split_of(numbered(2, 9) | {"page-9": "another text"}, "b")

    found = compare(a, b, SYSTEMS.kinds)

    [documents] = found.documents
    assert documents.only_in_a == DocumentExamples(2, ["page-0", "page-1"])
    assert documents.only_in_b == DocumentExamples(0, [])
    assert documents.in_both.documents == 8
    assert documents.changed == DocumentExamples(1, ["page-9"])
    [made_from] = found.changes.pop("made_from")
    assert made_from.startswith("healing/healing_text_manifest: sha256:")
    assert not any(found.changes.values())


def test_a_split_without_documents_has_none_in_common(split_of: SplitOf) -> None:
    a = split_of(numbered(0, 10), "a")
    b = split_of(numbered(0, 10), "b", token_budget=1)

    found = compare(a, b, SYSTEMS.kinds)

    [documents] = found.documents
    assert (documents.only_in_a.documents, documents.only_in_b.documents, documents.in_both.documents) == (10, 0, 0)
    assert found.changes["recipe"] == ["token_budget: 1000 → 1"]
    assert CountChange("documents", 10, 0) in found.counts


def test_a_damaged_shard_is_an_error_that_names_it(take: Take) -> None:
    a = take({"a.parquet": pages(numbered(0, 30))}, root="a")
    b = take({"a.parquet": pages(numbered(1, 30))}, root="b")
    shard = next((b.folder / "shards").iterdir())
    overwrite(shard, shard.read_bytes()[:-9])

    assert refusal(lambda: compare(a, b, SYSTEMS.kinds)).startswith(f"{shard}: ")


def test_a_row_that_is_in_several_pools_is_compared_in_each(tmp_path: Path) -> None:
    rules = {"all": ("stats_tokens > 0",), "solved": ("meta_correctness > 0.7",), "tools": ("stats_tool_calls > 0",)}
    a, b = (
        pools_of(tmp_path / name, {"low": rows_artifact(tmp_path / name, MIXED)}, PoolsRecipe(rules=kept))
        for name, kept in (("a", rules), ("b", {**rules, "solved": ("meta_correctness > 0.8",)}))
    )

    [rows] = compare(a, b, SYSTEMS.kinds).documents

    assert (rows.only_in_a, rows.only_in_b) == (DocumentExamples(1, ["row-1"]), DocumentExamples(0, []))
    assert rows.in_both == DocumentExamples(10, ["row-0", "row-1", "row-2", "row-3", "row-4"])
    assert (rows.changed.documents, rows.relabelled.documents) == (0, 0)
