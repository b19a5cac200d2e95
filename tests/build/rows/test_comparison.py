"""Comparison of two artifacts of one kind: recipes, inputs, counts and documents.

The number of parts in which documents are counted changes no count.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from candidate_pools import MIXED, rows_artifact, seal_pools
from forgery import overwrite
from numbered_pages import numbered, pages
from refusals import refusal

from pipeline_assets.build.rows.comparison import CountChange, DocumentExamples, compare, compare_counts
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.systems.registry import SYSTEMS

Ingest = Callable[..., Artifact]
BuildSplit = Callable[..., Artifact]


def test_equal_digests_are_identical_and_no_file_is_read(ingest: Ingest, tmp_path: Path) -> None:
    a = ingest({"a.parquet": pages(numbered(0, 20))})
    shutil.copytree(a.folder, tmp_path / "copy")
    b = open_artifact(tmp_path / "copy")
    for shard in (tmp_path / "copy" / "shards").iterdir():
        shard.unlink()

    comparison = compare(a, b, SYSTEMS.kinds)

    assert comparison.is_identical
    assert (comparison.counts, comparison.document_changes) == ((), ())


def test_hub_files_and_row_groups_are_compared(ingest: Ingest) -> None:
    first = {"a.parquet": pages(numbered(0, 20)), "b.parquet": pages(numbered(20, 30))}
    second = {"b.parquet": pages(numbered(20, 31)), "c.parquet": pages(numbered(40, 60))}
    a = ingest(first, root="a", rows_per_group=10)
    b = ingest(second, root="b", rows_per_group=10, files=["b.parquet", "c.parquet"])

    comparison = compare(a, b, SYSTEMS.kinds)

    commits = [artifact.manifest.identity.recipe["revision"] for artifact in (a, b)]
    digests = [[entry["digest"] for entry in artifact.manifest.identity.inputs] for artifact in (a, b)]
    groups = ", 10 rows of group 0, 10 rows of group 1"
    assert comparison.changes["files_read"] == [
        f"maker/pages:a.parquet: {digests[0][0]}{groups} → none",
        f"maker/pages:b.parquet: {digests[0][1]}, 10 rows of group 0 → "
        f"{digests[1][0]}, 10 rows of group 0, 1 row of group 1",
        f"maker/pages:c.parquet: none → {digests[1][1]}{groups}",
    ]
    assert comparison.changes["recipe"] == [
        "files: ['*.parquet'] → ['b.parquet', 'c.parquet']",
        f"revision: {commits[0]} → {commits[1]}",
    ]


def test_selections_are_compared_by_their_shards(build_train_split: BuildSplit, tmp_path: Path) -> None:
    build_train_split(numbered(0, 20), "a")
    build_train_split(numbered(0, 10) | numbered(10, 20, "other") | numbered(20, 30), "b")
    a, b = (open_artifact(tmp_path / root / "selections" / "pages_v1") for root in "ab")

    comparison = compare(a, b, SYSTEMS.kinds)

    replaced, added = comparison.changes["shards_selected"]
    assert replaced.startswith("shards/00001.jsonl.zst: ") and "none" not in replaced
    assert added.startswith("shards/00002.jsonl.zst: none → ")
    assert comparison.document_changes == []
    assert comparison.counts == [CountChange("documents", 20, 30), CountChange("shards", 2, 3)]


def test_counts_are_listed_with_the_ledger_last() -> None:
    a = {"ledger": {"in": 10, "out": 8, "dropped": {"short": 2}}, "documents": 8, "tokens": {"train": 5, "valid": 1}}
    b = {"ledger": {"in": 12, "out": 8, "dropped": {"long": 4}}, "documents": 8, "tokens": {"train": 9, "valid": 1}}

    assert [(count.name, count.a, count.b, count.delta) for count in compare_counts(a, b)] == [
        ("documents", 8, 8, 0),
        ("tokens.train", 5, 9, 4),
        ("tokens.valid", 1, 1, 0),
        ("ledger.dropped.long", 0, 4, 4),
        ("ledger.dropped.short", 2, 0, -2),
        ("ledger.in", 10, 12, 2),
        ("ledger.out", 8, 8, 0),
    ]


def test_shares_are_decimals_and_counts_of_listed_sources_have_their_names() -> None:
    sources = [{"source": "web", "rows": 2}, {"source": "notes", "rows": 3}]
    a = {"share": "0.750000", "epochs": "1.10", "sources": sources}
    b = {"share": "0.500000", "epochs": "1.1", "sources": sources[1:], "weight": "2.5"}

    assert [(count.name, count.a, count.b, count.delta, count.is_equal) for count in compare_counts(a, b)] == [
        ("epochs", "1.10", "1.1", "0.00", True),
        ("share", "0.750000", "0.500000", "-0.250000", False),
        ("sources.notes.rows", 3, 3, 0, True),
        ("sources.web.rows", 2, 0, -2, False),
        ("weight", 0, "2.5", "2.5", False),
    ]


def test_changed_stage_and_tokenizer_are_listed(build_train_split: BuildSplit) -> None:
    a = build_train_split(numbered(0, 10), "a")
    stage = replace(a.manifest.identity.stage, version=2)
    tokenizer = {"family": "o200k_harmony", "sha256": "ab" * 32}
    identity = replace(a.manifest.identity, stage=stage, tokenizer=tokenizer)
    b = Artifact(a.folder, replace(a.manifest, identity=identity))

    comparison = compare(a, b, SYSTEMS.kinds)

    stage_line, tokenizer_line = comparison.changes["made_by"]
    assert stage_line == "stage: megatron_split version 1 → megatron_split version 2"
    assert tokenizer_line.endswith(f" → o200k_harmony {'ab' * 32}")


@pytest.mark.parametrize("part_documents", [1, 7, 60, 61, 10**9])
def test_documents_are_counted_by_id_and_by_text_in_any_number_of_parts(ingest: Ingest, part_documents: int) -> None:
    changed = numbered(7, 20) | numbered(20, 23, "other") | numbered(23, 31)
    a = ingest({"a.parquet": pages(numbered(0, 30))}, root="a", rows_per_group=7, shard_text_bytes=1)
    b = ingest({"a.parquet": pages(changed)}, root="b", rows_per_group=4, shard_text_bytes=1)

    [documents] = compare(a, b, SYSTEMS.kinds, part_documents).document_changes

    assert documents.part is None
    assert documents.only_in_a == DocumentExamples(7, ["page-0", "page-1", "page-2", "page-3", "page-4"])
    assert documents.only_in_b == DocumentExamples(1, ["page-30"])
    assert documents.in_both == DocumentExamples(23, ["page-7", "page-8", "page-9", "page-10", "page-11"])
    assert documents.changed == DocumentExamples(3, ["page-20", "page-21", "page-22"])


def test_token_runs_are_compared_document_by_document(build_train_split: BuildSplit) -> None:
    a = build_train_split(numbered(0, 10), "a")
    b = build_train_split(numbered(2, 9) | {"page-9": "another text"}, "b")

    comparison = compare(a, b, SYSTEMS.kinds)

    [documents] = comparison.document_changes
    assert documents.only_in_a == DocumentExamples(2, ["page-0", "page-1"])
    assert documents.only_in_b == DocumentExamples(0, [])
    assert documents.in_both.documents == 8
    assert documents.changed == DocumentExamples(1, ["page-9"])
    [input_change] = comparison.changes.pop("made_from")
    assert input_change.startswith("healing/healing_text_manifest: sha256:")
    assert not any(comparison.changes.values())


def test_empty_split_has_no_documents_in_common(build_train_split: BuildSplit) -> None:
    a = build_train_split(numbered(0, 10), "a")
    b = build_train_split(numbered(0, 10), "b", token_budget=1)

    comparison = compare(a, b, SYSTEMS.kinds)

    [documents] = comparison.document_changes
    assert (documents.only_in_a.documents, documents.only_in_b.documents, documents.in_both.documents) == (10, 0, 0)
    assert comparison.changes["recipe"] == ["token_budget: 1000 → 1"]
    assert CountChange("documents", 10, 0) in comparison.counts


def test_a_damaged_shard_is_an_error_that_names_it(ingest: Ingest) -> None:
    a = ingest({"a.parquet": pages(numbered(0, 30))}, root="a")
    b = ingest({"a.parquet": pages(numbered(1, 30))}, root="b")
    shard = next((b.folder / "shards").iterdir())
    overwrite(shard, shard.read_bytes()[:-9])

    assert refusal(lambda: compare(a, b, SYSTEMS.kinds)).startswith(f"{shard}: ")


def test_row_in_several_pools_is_compared_in_each(tmp_path: Path) -> None:
    rules = {"all": ("stats_tokens > 0",), "solved": ("meta_correctness > 0.7",), "tools": ("stats_tool_calls > 0",)}
    a, b = (
        seal_pools(tmp_path / name, {"low": rows_artifact(tmp_path / name, MIXED)}, PoolsRecipe(rules=pool_rules))
        for name, pool_rules in (("a", rules), ("b", {**rules, "solved": ("meta_correctness > 0.8",)}))
    )

    [rows] = compare(a, b, SYSTEMS.kinds).document_changes

    assert (rows.only_in_a, rows.only_in_b) == (DocumentExamples(1, ["row-1"]), DocumentExamples(0, []))
    assert rows.in_both == DocumentExamples(10, ["row-0", "row-1", "row-2", "row-3", "row-4"])
    assert (rows.changed.documents, rows.relabelled.documents) == (0, 0)
