"""Documents of two artifacts of one kind, counted one by one, whatever the memory allowed."""

from collections.abc import Callable

import pytest
from numbered_pages import numbered, pages

from pipeline_assets.corpus.rows.changes import Found
from pipeline_assets.corpus.rows.comparison import Counted, compare
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError

Take = Callable[..., Artifact]
SplitOf = Callable[..., Artifact]


def test_documents_are_counted_by_id_and_by_text(take: Take) -> None:
    a = take({"a.parquet": pages(numbered(0, 30))}, root="a")
    b = take({"a.parquet": pages(numbered(7, 20) | numbered(20, 23, "other") | numbered(23, 31))}, root="b")

    [documents] = compare(a, b).documents

    assert documents.part is None
    assert documents.only_in_a == Found(7, ["page-0", "page-1", "page-2", "page-3", "page-4"])
    assert documents.only_in_b == Found(1, ["page-30"])
    assert documents.in_both == Found(23, ["page-7", "page-8", "page-9", "page-10", "page-11"])
    assert documents.changed == Found(3, ["page-20", "page-21", "page-22"])


@pytest.mark.parametrize("part_documents", [1, 7, 60, 61, 10**9])
def test_the_number_of_parts_changes_nothing(take: Take, part_documents: int) -> None:
    a = take({"a.parquet": pages(numbered(0, 30))}, root="a", rows_per_group=7, shard_text_bytes=1)
    b = take({"a.parquet": pages(numbered(10, 40))}, root="b", rows_per_group=4, shard_text_bytes=1)

    [documents] = compare(a, b, part_documents).documents

    assert documents.only_in_a == Found(10, ["page-0", "page-1", "page-2", "page-3", "page-4"])
    assert documents.only_in_b == Found(10, ["page-30", "page-31", "page-32", "page-33", "page-34"])
    assert (documents.in_both.documents, documents.changed) == (20, Found(0, []))


def test_the_other_way_round_sides_are_exchanged(take: Take) -> None:
    a = take({"a.parquet": pages(numbered(0, 9))}, root="a")
    b = take({"a.parquet": pages(numbered(4, 12))}, root="b")

    [there], [back] = compare(a, b).documents, compare(b, a).documents

    assert (there.only_in_a, there.only_in_b) == (back.only_in_b, back.only_in_a)
    assert (there.in_both, there.changed) == (back.in_both, back.changed)


def test_token_runs_are_compared_document_by_document(split_of: SplitOf) -> None:
    a = split_of(numbered(0, 10), "a")
    b = split_of(numbered(2, 9) | {"page-9": "another text"}, "b")

    found = compare(a, b)

    [documents] = found.documents
    assert documents.only_in_a == Found(2, ["page-0", "page-1"])
    assert documents.only_in_b == Found(0, [])
    assert documents.in_both.documents == 8
    assert documents.changed == Found(1, ["page-9"])
    assert [change.name for change in found.upstream] == ["healing/healing_text_manifest"]
    assert (found.files, found.recipe, found.stage, found.tokenizer) == (None, [], None, None)


def test_a_split_without_documents_has_none_in_common(split_of: SplitOf) -> None:
    a = split_of(numbered(0, 10), "a")
    b = split_of(numbered(0, 10), "b", token_budget=1)

    found = compare(a, b)

    [documents] = found.documents
    assert (documents.only_in_a.documents, documents.only_in_b.documents, documents.in_both.documents) == (10, 0, 0)
    assert found.recipe == ["token_budget: 1000 → 1"]
    assert Counted("documents", 10, 0) in found.counts


def test_a_damaged_shard_is_an_error_that_names_it(take: Take) -> None:
    a = take({"a.parquet": pages(numbered(0, 30))}, root="a")
    b = take({"a.parquet": pages(numbered(1, 30))}, root="b")
    shard = next((b.folder / "shards").iterdir())
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])

    with pytest.raises(InputError) as refused:
        compare(a, b)

    assert refused.value.where == str(shard)
