"""Signature stores: deduplication against earlier months without their texts."""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from dedup_build import (
    INLINE,
    SMALL_SHARES,
    by_faiss,
    deduplicate,
    list_decisions,
    plain_decisions,
    recipe,
    recipes,
    sign,
    thorough,
    write_corpus,
)
from document_corpus import numbered
from forgery import overwrite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_dedup import PlainDocument
from refusals import refusal

from pipeline_assets.corpus.dedup.decision import EDGES_FILE, GroupExample, read_groups
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.signature_store import open_stores
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError

WORDS = [f"w{number}" for number in range(12)]
texts_of_a_month = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=10)


def month(name: str, texts: Sequence[str], *sources: str) -> list[PlainDocument]:
    """Build documents with their own ids, of each source in turn, sorted by source."""
    documents = [
        PlainDocument(f"{name}-{number}", text, sources[number % len(sources)]) for number, text in enumerate(texts)
    ]
    return sorted(documents, key=lambda document: sources.index(document.source))


def build_store(
    folder: Path, documents: Sequence[PlainDocument], rules: DedupRecipe
) -> tuple[Artifact, list[PlainDocument]]:
    """Sign a month; return its store and the documents that the plain rule keeps."""
    result = deduplicate(folder, write_corpus(folder / "corpus", documents, 3), rules)
    kept = {fate.doc_id for fate in list_decisions(result) if fate.decision == "kept"}
    assert kept == {fate.doc_id for fate in plain_decisions(documents, rules) if fate.decision == "kept"}
    return sign(folder, result, rules), [document for document in documents if document.doc_id in kept]


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(texts_of_a_month, texts_of_a_month, texts_of_a_month, recipes(["first", "longest"]))
def test_documents_duplicate_those_of_stores_and_never_the_reverse(
    first: list[str], second: list[str], new: list[str], rules: DedupRecipe
) -> None:
    documents = month("new", new, "a", "b")
    with tempfile.TemporaryDirectory() as folder:
        early, early_seen = build_store(Path(folder) / "one", month("one", first, "b", "a"), rules)
        late, late_seen = build_store(Path(folder) / "two", month("two", second, "a"), rules)
        result = deduplicate(Path(folder), write_corpus(Path(folder) / "new", documents, 4), rules, one=early, two=late)
        decisions, groups = list_decisions(result), read_groups(result)

    expected = plain_decisions(documents, rules, [*early_seen, *late_seen])
    assert [(fate.doc_id, fate.decision, fate.duplicate_of, fate.copy_of) for fate in decisions] == [
        (fate.doc_id, fate.decision, fate.duplicate_of, fate.copy_of) for fate in expected
    ]
    for fate in decisions:
        name = (fate.duplicate_of or "new").partition("-")[0]
        assert fate.seen_in == (None if name == "new" else name)
    assert {group.kept.doc_id for group in groups} <= {fate.duplicate_of for fate in decisions}
    for group in groups:
        name = group.kept.doc_id.partition("-")[0]
        assert group.kept.seen_in == (None if name == "new" else name)


@pytest.fixture
def past(tmp_path: Path) -> Artifact:
    """Sign ten documents in shards of three."""
    return build_store(tmp_path / "past", month("past", [numbered(100 * n, 40) for n in range(10)], "web"), recipe())[0]


def dedup_next(tmp_path: Path, texts: Sequence[str], past: Artifact, rules: DedupRecipe, name: str = "new") -> Artifact:
    """Deduplicate the next month against the store."""
    sources = write_corpus(tmp_path / f"{name}_corpus", month("new", texts, "web"), 2)
    return deduplicate(tmp_path / name, sources, rules, october=past)


NEXT = [numbered(300, 40).upper(), f"{numbered(300, 40)} end", numbered(5000, 40), f"{numbered(5000, 40)} end"]


def test_a_decision_an_edge_and_a_group_name_the_store(tmp_path: Path, past: Artifact) -> None:
    result = dedup_next(tmp_path, NEXT, past, recipe())

    assert [(fate.decision, fate.duplicate_of, fate.seen_in) for fate in list_decisions(result)] == [
        ("exact_duplicate", "past-3", "october"),
        ("near_duplicate", "past-3", "october"),
        ("kept", None, None),
        ("near_duplicate", "new-2", None),
    ]
    edges = pl.read_parquet(result.path(EDGES_FILE))
    assert edges.select("doc_id", "other_doc_id", "other_seen_in").rows() == [
        ("new-1", "past-3", "october"),
        ("new-3", "new-2", None),
    ]
    [seen_group, new_group] = read_groups(result)
    assert (seen_group.dropped, seen_group.kept) == (2, GroupExample("past-3", "web", "", "october"))
    assert (new_group.dropped, new_group.kept.doc_id, new_group.kept.seen_in) == (1, "new-2", None)
    assert result.manifest.identity.counts["by_source"]["web"]["of_seen"] == 2


def test_workers_and_memory_change_neither_store_nor_result(tmp_path: Path, small_shares: None) -> None:
    documents = month("past", [numbered(number * 7 % 90, 30) for number in range(60)], "a", "b")
    result = deduplicate(tmp_path, write_corpus(tmp_path / "corpus", documents, 7), recipe())

    plain, other = sign(tmp_path / "one", result, recipe()), sign(tmp_path / "two", result, recipe(), SMALL_SHARES)

    assert other.manifest.digest == plain.manifest.digest
    new = write_corpus(tmp_path / "new", month("new", [numbered(number * 5, 30) for number in range(30)], "a"), 7)
    against = [
        deduplicate(tmp_path / "against_one", new, recipe(), INLINE, past=plain),
        deduplicate(tmp_path / "against_two", new, recipe(), SMALL_SHARES, past=other),
    ]
    assert against[0].manifest.digest == against[1].manifest.digest
    assert {fate.seen_in for fate in list_decisions(against[0])} == {"past", None}


@pytest.mark.parametrize(
    ("signed_by", "rules", "what"),
    [
        (recipe(), recipe(bands=28, rows=4), "the store has bands 14, rows 8; this run has bands 28, rows 4"),
        (recipe(), recipe(shingle_words=4), "the store has shingle_words 5; this run has shingle_words 4"),
        (recipe(), recipe(seed=2), "the store has seed 1; this run has seed 2"),
        (recipe(), recipe(scope="per-source"), "the store has scope global; this run has scope per-source"),
        (recipe(mode="exact"), recipe(), "the store has proposer none; this run has proposer minhash"),
        (recipe(), by_faiss(), "the store has proposer minhash; this run has proposer faiss"),
    ],
)
def test_a_store_of_other_parameters_is_refused_with_their_names(
    tmp_path: Path, signed_by: DedupRecipe, rules: DedupRecipe, what: str
) -> None:
    store, _ = build_store(tmp_path / "past", month("past", ["a b c"], "web"), signed_by)

    message = refusal(lambda: dedup_next(tmp_path, NEXT, store, rules), UsageError)

    assert message.startswith(f"{store.folder}: signatures cannot be compared: {what}; ")


def test_store_has_the_source_of_each_document_in_any_order(tmp_path: Path) -> None:
    documents = month("past", [numbered(100 * number, 30) for number in range(5)], "notes", "books")

    store, _ = build_store(tmp_path, documents, recipe())

    assert pl.read_parquet(store.path("documents.parquet")).rows() == [
        (f"past-{number}", source)
        for number, source in ((0, "notes"), (2, "notes"), (4, "notes"), (1, "books"), (3, "books"))
    ]
    [opened] = open_stores({"past": store}, recipe())
    assert opened.source_starts == ((0, "notes"), (3, "books"))


def test_exact_copies_and_another_threshold_need_no_other_store(tmp_path: Path, past: Artifact) -> None:
    exact = dedup_next(tmp_path, NEXT, past, recipe(mode="exact"), "exact")
    at_99 = dedup_next(tmp_path, NEXT, past, recipe(threshold="0.99"), "at_99")

    assert [fate.decision for fate in list_decisions(exact)] == ["exact_duplicate", "kept", "kept", "kept"]
    assert [fate.decision for fate in list_decisions(at_99)] == ["exact_duplicate", "kept", "kept", "kept"]


def test_artifact_that_is_not_a_signature_store_is_refused(tmp_path: Path) -> None:
    result = deduplicate(tmp_path, write_corpus(tmp_path / "corpus", month("past", ["a b"], "web"), 2), recipe())

    with pytest.raises(UsageError, match="expected a signature store, got made/deduplicated"):
        dedup_next(tmp_path, NEXT, result, recipe())


@pytest.mark.parametrize("mode", ["exact", "both"])
def test_flipped_bit_of_a_store_is_refused_before_a_kernel_reads_it(tmp_path: Path, mode: str) -> None:
    rules, dice = thorough(mode=mode, shingle_words=2), random.Random(mode)
    store, _ = build_store(tmp_path / "one", month("one", [f"{word} and more of it" for word in WORDS], "a"), rules)
    new = write_corpus(tmp_path / "new", month("new", WORDS, "a"), 4)

    for stored in store.manifest.storage:
        sealed = (store.folder / stored.path).read_bytes()
        flipped = bytearray(sealed)
        flipped[dice.randrange(len(sealed))] ^= 1 << dice.randrange(8)
        overwrite(store.folder / stored.path, bytes(flipped))
        with pytest.raises(InputError) as refused:
            deduplicate(tmp_path, new, rules, one=store)
        assert refused.value.where == str(store.folder / stored.path)
        overwrite(store.folder / stored.path, sealed)
