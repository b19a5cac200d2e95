"""Deduplication of small corpora, compared with the plain rule over all pairs."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dedup_build import (
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
from document_corpus import lines_in, numbered
from forked_workers import forked_here
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from plain_dedup import PlainDecision, PlainDocument

from pipeline_assets.corpus.dedup import candidates, groups, sketches
from pipeline_assets.corpus.dedup.decision import DECISION_RULE, EDGES_FILE, GROUPS_FILE, Decision, find_decisions
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.document_shards import read_documents
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.rejects import Reject

Decisions = Callable[..., list[Decision]]
WORDS = [f"w{number}" for number in range(60)]


@st.composite
def corpora(draw: st.DrawFn) -> list[PlainDocument]:
    """Draw edited copies of a few texts, some empty, short or equal but for case."""
    roots = draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=8, max_size=24), min_size=1, max_size=3))
    documents = []
    for number in range(draw(st.integers(1, 14))):
        words = list(draw(st.sampled_from(roots)))
        for place in draw(st.lists(st.integers(0, len(words) - 1), max_size=4)):
            words[place] = draw(st.sampled_from(WORDS))
        words = words[: draw(st.sampled_from([0, 2, 7, *[len(words)] * 6]))]
        text = " ".join(words) if words else draw(st.sampled_from(["", "!?", "🎉"]))
        text = draw(st.sampled_from([text, text, text.upper(), f"{text} . "]))
        quality = draw(st.sampled_from([None, 0, 0.5, 2, -1.25]))
        documents.append(PlainDocument(f"d{number}", text, draw(st.sampled_from(["a", "b"])), quality))
    return sorted(documents, key=lambda document: document.source)


def numbered_documents(*texts: str) -> list[PlainDocument]:
    return [PlainDocument(f"d{number}", text) for number, text in enumerate(texts)]


HEAD = numbered(0, 40)
LAST = f"x {numbered(1, 39)} y"
CHAIN = numbered_documents(HEAD, numbered(4, 40), numbered(8, 40))  # the last is unlike the first
COPY_OF_A_VARIANT = numbered_documents(HEAD, f"{HEAD} end", f"{HEAD} END")
SIMILAR_TO_TWO = numbered_documents(HEAD, f"{LAST} z", LAST)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@example(CHAIN, thorough(threshold="0.75"), 3)
@example(COPY_OF_A_VARIANT, thorough(), 3)
@example(SIMILAR_TO_TWO, thorough(threshold="0.9"), 3)
@given(corpora(), recipes(), st.integers(1, 5))
def test_decisions_equal_the_plain_rule_over_all_pairs(
    documents: list[PlainDocument], rules: DedupRecipe, shard_documents: int
) -> None:
    assume(rules.quality_column is None or any(document.quality is not None for document in documents))
    with tempfile.TemporaryDirectory() as folder:
        sources = write_corpus(Path(folder) / "corpus", documents, shard_documents)
        result = deduplicate(Path(folder), sources, rules)
        actual, groups = list_decisions(result), json.loads(result.path(GROUPS_FILE).read_bytes())

    expected = plain_decisions(documents, rules)
    assert actual == [_to_decision(plain, decision) for plain, decision in zip(expected, actual, strict=True)]

    members: dict[str, list[str]] = {fate.doc_id: [] for fate in expected}
    for fate in expected:
        if fate.duplicate_of is not None:
            members[fate.duplicate_of].append(fate.doc_id)
    largest = sorted((kept for kept in members if members[kept]), key=lambda kept: -len(members[kept]))[:10]
    assert [
        (group["gone"], group["kept"]["doc_id"], [sample["doc_id"] for sample in group["samples"]]) for group in groups
    ] == [(len(members[kept]), kept, members[kept][:3]) for kept in largest]


def _to_decision(plain: PlainDecision, actual: Decision) -> Decision:
    """Convert a plain decision; take source and place of the other one."""
    similarity, containment = (
        None if number is None else float(number) for number in (plain.similarity, plain.containment)
    )
    fate = (plain.duplicate_of, similarity, containment, plain.copy_of)
    return Decision(plain.doc_id, actual.source, plain.decision, DECISION_RULE, actual.shard, actual.row, *fate)


SKETCHES = {"shingle_words": 5, "bits": 128, "max_distance": 40, "seed": 1}


@pytest.mark.parametrize("rules", [recipe(), recipe(faiss=SKETCHES, max_compared=4)])
def test_workers_memory_and_shard_sizes_change_no_decision_and_no_document(
    tmp_path: Path, rules: DedupRecipe, small_shares: None
) -> None:
    documents = [
        PlainDocument(f"d{number}", numbered(number * 3 % 40, 30 + number % 2), "ab"[number // 60])
        for number in range(120)
    ]

    plain = deduplicate(tmp_path / "plain", write_corpus(tmp_path / "one", documents, 1000), rules)
    other = deduplicate(tmp_path / "other", write_corpus(tmp_path / "many", documents, 7), rules, SMALL_SHARES)

    where = [(fate.doc_id, fate.decision, fate.duplicate_of, fate.similarity) for fate in list_decisions(plain)]
    assert {decision for _, decision, *_ in where} == {"kept", "near_duplicate", "exact_duplicate"}
    assert [(fate.doc_id, fate.decision, fate.duplicate_of, fate.similarity) for fate in list_decisions(other)] == where
    assert other.path(EDGES_FILE).read_bytes() == plain.path(EDGES_FILE).read_bytes()
    assert lines_in(other) == lines_in(plain)
    assert rules.near is not None
    assert rules.near.faiss is None or plain.manifest.identity.counts["comparisons"]["capped_documents"] > 0


@pytest.mark.parametrize(
    ("module", "limit", "maximum"),
    [*((candidates, "RUN_PAIRS", maximum) for maximum in (1, 5, 60)), (groups, "_BLOCK_DOCUMENTS", 7)],
)
def test_number_of_runs_and_blocks_changes_no_pair_and_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, maximum: int
) -> None:
    documents = numbered_documents(*(numbered(number * 3 % 40, 30 + number % 2) for number in range(120)))
    sources = write_corpus(tmp_path / "corpus", documents, 50)
    whole = deduplicate(tmp_path / "whole", sources, recipe())

    monkeypatch.setattr(module, limit, maximum)
    cut = deduplicate(tmp_path / "cut", sources, recipe())

    assert len(json.loads(whole.path(GROUPS_FILE).read_bytes())) == 7
    assert [cut.path(name).read_bytes() for name in (EDGES_FILE, GROUPS_FILE)] == [
        whole.path(name).read_bytes() for name in (EDGES_FILE, GROUPS_FILE)
    ]
    assert cut.manifest.digest == whole.manifest.digest


def read_until_deadly(*arguments: Any) -> Iterator[Any]:
    """Read blocks in a process that dies of one document."""
    for documents, fatal in read_documents(*arguments):
        if any(document.text == "deadly" for _, document in documents):
            os._exit(9)
        yield documents, fatal


@pytest.mark.parametrize("rules", [recipe(), by_faiss()])
def test_poison_row_is_rejected_and_has_no_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: DedupRecipe
) -> None:
    texts = [numbered(0, 30), "deadly", numbered(0, 30), f"{numbered(0, 30)} end", numbered(100, 30)]
    sources = write_corpus(tmp_path / "c", numbered_documents(*texts), 10)
    monkeypatch.setattr(sketches, "read_documents", read_until_deadly)
    with forked_here():
        result = deduplicate(tmp_path, sources, rules, RunSettings(1))

    assert [fate.doc_id for fate in list_decisions(result)] == ["d0", "d2", "d3", "d4"]
    assert [row["doc_id"] for row in map(json.loads, lines_in(result))] == ["d0", "d4"]
    ledger = {
        "in": 5,
        "out": 2,
        "dropped": {"exact_duplicate": 1, "near_duplicate": 1},
        "rejected": {"killed_worker": 1},
    }
    assert result.manifest.identity.counts["ledger"] == ledger
    [reject] = b"".join(read_line_blocks(result.path("rejects.jsonl.zst"))).splitlines()
    assert json.loads(reject) == Reject("notes/shards/00000.jsonl.zst", 1, "killed_worker").to_json()


def test_corpus_with_a_poison_row_is_not_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = deduplicate(tmp_path, write_corpus(tmp_path / "c", [PlainDocument("d0", "deadly")], 10), recipe())
    monkeypatch.setattr(sketches, "read_documents", read_until_deadly)

    with forked_here(), pytest.raises(InputError, match="row 0 kills the worker while reading it"):
        sign(tmp_path, kept, recipe(), RunSettings(1))


def test_decision_has_rule_place_and_similarity(decisions: Decisions) -> None:
    actual = decisions(numbered(0, 24), numbered(0, 24).upper(), f"{numbered(0, 24)} and more", shingle_words=5)

    assert actual[0] == Decision("d0", "notes", "kept", DECISION_RULE, "shards/00000.jsonl.zst", 0)
    assert actual[1] == Decision(
        "d1", "notes", "exact_duplicate", DECISION_RULE, "shards/00000.jsonl.zst", 1, "d0", 1.0, 1.0, "d0"
    )
    assert actual[2] == Decision(
        "d2", "notes", "near_duplicate", DECISION_RULE, "shards/00000.jsonl.zst", 2, "d0", 20 / 22, 20 / 22
    )


def test_decisions_are_found_by_the_key_that_ends_their_line(tmp_path: Path) -> None:
    documents = numbered_documents(numbered(0, 9), numbered(0, 9), "x")
    result = deduplicate(tmp_path, write_corpus(tmp_path / "c", documents, 10), recipe())

    assert [decision.doc_id for decision in find_decisions(result, copy_of=["d0", "d2"])] == ["d1"]


def test_documents_above_the_cap_are_compared_with_the_first_and_counted(tmp_path: Path) -> None:
    head = numbered(0, 400)
    documents = [PlainDocument(f"d{number}", f"{head} {number} {number + 1}") for number in range(50)]

    result = deduplicate(tmp_path, write_corpus(tmp_path / "c", documents, 1000), recipe(max_compared=5))

    comparisons = result.manifest.identity.counts["comparisons"]
    assert 5 * 4 // 2 + 45 * 5 <= comparisons["pairs"] < 50 * 49 // 2
    assert comparisons["capped_buckets"] > 0
    assert [fate.duplicate_of for fate in list_decisions(result)] == [None] + ["d0"] * 49


@pytest.mark.slow
def test_comparisons_of_ten_thousand_copies_and_variants_are_not_quadratic(tmp_path: Path) -> None:
    copies = [PlainDocument(f"copy-{number}", numbered(0, 60)) for number in range(10_000)]
    variants = [PlainDocument(f"variant-{number}", f"{numbered(100, 60)} v{number}") for number in range(10_000)]
    sources = write_corpus(tmp_path / "c", copies + variants, 5000)

    result = deduplicate(tmp_path, sources, recipe())

    counts = result.manifest.identity.counts
    assert counts["ledger"]["dropped"] == {"exact_duplicate": 9_999, "near_duplicate": 9_999}
    assert counts["comparisons"]["pairs"] <= 10_000 * 100 * 14


def test_repeated_id_is_refused_with_both_places(tmp_path: Path) -> None:
    texts = [numbered(first, 10) for first in range(0, 50, 10)]
    documents = [PlainDocument(f"d{number % 4}", text, "ab"[number // 3]) for number, text in enumerate(texts)]

    with pytest.raises(InputError, match=r"d0 is the id of a/shards/00000.jsonl.zst row 0 and of b/.*00000.* row 1"):
        deduplicate(tmp_path, write_corpus(tmp_path / "c", documents, 10), recipe())


def test_the_ledger_adds_up_for_each_source(tmp_path: Path) -> None:
    texts = [numbered(0, 30), numbered(0, 30), numbered(100, 30), f"{numbered(100, 30)} end"]
    documents = [PlainDocument(f"{source}{n}", text, source) for source in "ab" for n, text in enumerate(texts)]

    counts = deduplicate(tmp_path, write_corpus(tmp_path / "c", documents, 3), recipe()).manifest.identity.counts

    assert counts["ledger"] == {
        "in": 8,
        "out": 2,
        "dropped": {"exact_duplicate": 4, "near_duplicate": 2},
        "rejected": {},
    }
    assert counts["by_source"]["b"] == {
        "in": 4,
        "out": 0,
        "exact_duplicate": 3,
        "near_duplicate": 1,
        "of_seen": 0,
        "rejected": 0,
        "text_bytes": 0,
        "shards": 2,
    }


@pytest.mark.parametrize(
    ("quality", "column", "line"),
    [
        (1, "scor", "no document has the column `scor`"),
        ("good", "score", "{file}: column `score` of row 0 is str, not a number"),
        (True, "score", "{file}: column `score` of row 0 is bool, not a number"),
    ],
)
def test_quality_is_a_number_that_some_document_has(quality: Any, column: str, line: str, tmp_path: Path) -> None:
    sources = write_corpus(tmp_path / "c", [PlainDocument("d0", "text", quality=quality)], 10)
    [file] = (tmp_path / "c").rglob("00000.jsonl.zst")

    with pytest.raises(UsageError) as refused:
        deduplicate(tmp_path, sources, recipe(selection="quality", quality_column=column))

    line = f"dedup.quality_column: {line.format(file=file)}; choose a numeric column of their meta"
    assert (str(refused.value), refused.value.key) == (line, "dedup.quality_column")


def test_qualities_beyond_the_range_of_floats_are_ordered(tmp_path: Path) -> None:
    qualities = [-(10**400), 1, 10**400, 1e300]
    documents = [PlainDocument(f"d{number}", "same text", quality=quality) for number, quality in enumerate(qualities)]
    sources = write_corpus(tmp_path / "c", documents, 10)

    deduplicated = deduplicate(tmp_path, sources, recipe(selection="quality", quality_column="score"))

    assert [fate.decision for fate in list_decisions(deduplicated)] == [
        "exact_duplicate", "exact_duplicate", "kept", "exact_duplicate",
    ]  # fmt: skip
