"""Which documents go: the engine against the plain rule on small corpora of all kinds, and whatever workers it has."""

import json
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from dedup_build import SMALL_SHARES, decisions_of, deduplicate, recipe, thorough, write_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_dedup import PlainDecision, PlainDocument, decide

from pipeline_assets.corpus.dedup.decision import EDGES_FILE, GROUPS_FILE, RULE, Decision
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError, UsageError

Decisions = Callable[..., list[Decision]]
WORDS = [f"w{number}" for number in range(60)]


def numbered(first: int, count: int) -> str:
    """Words that no text of other numbers has."""
    return " ".join(f"w{number}" for number in range(first, first + count))


def fates(decisions: list[Decision]) -> list[tuple[str, str | None]]:
    return [(one.decision, one.duplicate_of) for one in decisions]


@st.composite
def corpora(draw: st.DrawFn) -> list[PlainDocument]:
    """Texts that are edits of a few others, in sources, with scores; some empty, short, or the same but for case."""
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


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    corpora(),
    st.sampled_from(["exact", "near", "both"]),
    st.sampled_from(["global", "per-source"]),
    st.sampled_from(["first", "longest", "quality"]),
    st.sampled_from(["0.4", "0.7", "1"]),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_decisions_are_those_of_the_plain_rule_over_all_pairs(
    documents: list[PlainDocument], mode: str, scope: str, selection: str, threshold: str, n: int, shard_documents: int
) -> None:
    column = "score" if selection == "quality" else None
    if column and all(document.quality is None for document in documents):
        return
    rules = thorough(
        mode=mode,
        scope=scope,
        selection=selection,
        threshold=threshold,
        shingle_words=n,
        quality_column=column,
    )
    with tempfile.TemporaryDirectory() as folder:
        sources = write_corpus(Path(folder) / "corpus", documents, shard_documents)
        result = deduplicate(Path(folder), sources, rules)
        found, groups = decisions_of(result), json.loads(result.path(GROUPS_FILE).read_bytes())

    expected = decide(documents, mode=mode, scope=scope, selection=selection, threshold=Fraction(threshold), n=n)
    assert found == [_as_written(one, decision) for one, decision in zip(expected, found, strict=True)]

    members: dict[str, list[str]] = {one.doc_id: [] for one in expected}
    for one in expected:
        if one.duplicate_of is not None:
            members[one.duplicate_of].append(one.doc_id)
    largest = sorted((kept for kept in members if members[kept]), key=lambda kept: -len(members[kept]))[:10]
    assert [
        (group["gone"], group["kept"]["doc_id"], [one["doc_id"] for one in group["samples"]]) for group in groups
    ] == [(len(members[kept]), kept, members[kept][:3]) for kept in largest]


def _as_written(one: PlainDecision, found: Decision) -> Decision:
    """The plain decision as the engine writes it; the place is told by other tests."""
    similarity, containment = (
        None if number is None else float(number) for number in (one.similarity, one.containment)
    )
    fate = (one.duplicate_of, similarity, containment, one.copy_of)
    return Decision(one.doc_id, found.source, one.decision, RULE, found.shard, found.row, *fate)


@pytest.mark.parametrize(
    "settings", [SMALL_SHARES, pytest.param(RunSettings(1, "forkserver", memory_bytes=0), marks=pytest.mark.slow)]
)
def test_workers_memory_and_the_size_of_shards_change_no_decision_and_no_document(
    tmp_path: Path, settings: RunSettings, small_shares: None
) -> None:
    documents = [
        PlainDocument(f"d{number}", numbered(number * 3 % 40, 30 + number % 2), "ab"[number // 60])
        for number in range(120)
    ]
    one_shard = write_corpus(tmp_path / "one", documents, 1000)
    many_shards = write_corpus(tmp_path / "many", documents, 7)

    plain = deduplicate(tmp_path / "plain", one_shard, recipe())
    other = deduplicate(tmp_path / "other", many_shards, recipe(), settings)

    assert {one.decision for one in decisions_of(plain)} == {"kept", "near_duplicate", "exact_duplicate"}
    where = [(one.doc_id, one.decision, one.duplicate_of, one.similarity) for one in decisions_of(plain)]
    assert [(one.doc_id, one.decision, one.duplicate_of, one.similarity) for one in decisions_of(other)] == where
    assert other.path(EDGES_FILE).read_bytes() == plain.path(EDGES_FILE).read_bytes()
    assert lines_of(other) == lines_of(plain)


def lines_of(result: object) -> bytes:
    return b"".join(
        block
        for path in shard_rows(result)  # type: ignore[arg-type]
        for block in read_line_blocks(result.path(path))  # type: ignore[attr-defined]
    )


def test_a_chain_of_almost_alike_documents_keeps_what_is_unlike_the_first(decisions: Decisions) -> None:
    """a–b and b–c are near, a–c is not: b goes for a, c stays."""
    found = decisions(numbered(0, 40), numbered(4, 40), numbered(8, 40), threshold="0.75")

    assert fates(found) == [("kept", None), ("near_duplicate", "d0"), ("kept", None)]


def test_each_document_names_the_rule_its_place_and_how_alike_the_two_are(decisions: Decisions) -> None:
    found = decisions(numbered(0, 24), numbered(0, 24).upper(), f"{numbered(0, 24)} and more", shingle_words=5)

    assert found[0] == Decision("d0", "notes", "kept", RULE, "shards/00000.jsonl.zst", 0)
    assert found[1] == Decision(
        "d1", "notes", "exact_duplicate", RULE, "shards/00000.jsonl.zst", 1, "d0", 1.0, 1.0, "d0"
    )
    assert found[2] == Decision(
        "d2", "notes", "near_duplicate", RULE, "shards/00000.jsonl.zst", 2, "d0", 20 / 22, 20 / 22
    )


def test_documents_shorter_than_a_shingle_are_compared_as_a_whole(decisions: Decisions) -> None:
    found = decisions("one two three", "One, two: three!", "one two three four")

    assert fates(found) == [("kept", None), ("exact_duplicate", "d0"), ("kept", None)]


def test_documents_without_a_word_are_compared_as_they_stand(decisions: Decisions) -> None:
    found = decisions("🎉", "🎉🎉", "🎉", "", "…", "")

    assert fates(found) == [
        ("kept", None),
        ("kept", None),
        ("exact_duplicate", "d0"),
        ("kept", None),
        ("kept", None),
        ("exact_duplicate", "d3"),
    ]


def test_the_copy_of_a_document_that_goes_for_another_goes_for_that_one_too(decisions: Decisions) -> None:
    """So that what stands in `duplicate_of` is always kept."""
    kept, near = numbered(0, 40), f"{numbered(0, 40)} end"

    found = decisions(kept, near, near.upper())

    assert fates(found) == [("kept", None), ("near_duplicate", "d0"), ("near_duplicate", "d0")]
    assert found[2].similarity == found[1].similarity == 36 / 37


def test_of_several_kept_documents_the_most_alike_is_named(decisions: Decisions) -> None:
    left, right = numbered(0, 40), f"x {numbered(1, 39)} y z"

    found = decisions(left, right, f"x {numbered(1, 39)} y", threshold="0.9")

    assert fates(found) == [("kept", None), ("kept", None), ("near_duplicate", "d1")]


def test_in_a_bucket_above_the_cap_each_is_compared_to_its_first_documents_and_that_is_counted(
    tmp_path: Path,
) -> None:
    head = numbered(0, 400)
    documents = [PlainDocument(f"d{number}", f"{head} {number} {number + 1}") for number in range(50)]

    result = deduplicate(tmp_path, write_corpus(tmp_path / "c", documents, 1000), recipe(max_compared=5))

    comparisons = result.manifest.identity.counts["comparisons"]
    assert 5 * 4 // 2 + 45 * 5 <= comparisons["pairs"] < 50 * 49 // 2
    assert comparisons["capped_buckets"] > 0
    assert fates(decisions_of(result)) == [("kept", None)] + [("near_duplicate", "d0")] * 49


@pytest.mark.slow
def test_ten_thousand_copies_and_as_many_variants_of_a_template_are_no_quadratic_work(tmp_path: Path) -> None:
    copies = [PlainDocument(f"copy-{number}", numbered(0, 60)) for number in range(10_000)]
    variants = [PlainDocument(f"variant-{number}", f"{numbered(100, 60)} v{number}") for number in range(10_000)]
    sources = write_corpus(tmp_path / "c", copies + variants, 5000)

    result = deduplicate(tmp_path, sources, recipe())

    counts = result.manifest.identity.counts
    assert counts["ledger"]["dropped"] == {"exact_duplicate": 9_999, "near_duplicate": 9_999}
    assert counts["comparisons"]["pairs"] <= 10_000 * 100 * 14


def test_two_documents_with_one_id_are_named_with_their_places(tmp_path: Path) -> None:
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


def test_a_quality_column_that_no_document_has_is_named(tmp_path: Path) -> None:
    sources = write_corpus(tmp_path / "c", [PlainDocument("d0", "text", quality=1)], 10)

    with pytest.raises(UsageError, match="no document has a `scor`"):
        deduplicate(tmp_path, sources, recipe(selection="quality", quality_column="scor"))


def test_a_quality_that_is_no_number_is_named_with_its_row(tmp_path: Path) -> None:
    document = PlainDocument("d0", "text", quality="good")  # type: ignore[arg-type]

    with pytest.raises(InputError, match="`score` of row 0 is str, not a number"):
        deduplicate(
            tmp_path, write_corpus(tmp_path / "c", [document], 10), recipe(selection="quality", quality_column="score")
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bands": 13}, "13 bands of 8 rows use 104 permutations, and there are 112"),
        ({"threshold": "0"}, "a similarity of 0: it is above 0, and 1 at most"),
        ({"threshold": "1.01"}, "a similarity of 1.01"),
        ({"selection": "quality"}, "selection.* quality goes with a .*quality_column"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**change)


@pytest.mark.parametrize(
    ("near", "bands", "rows"),
    [
        ({}, 28, 4),
        ({"threshold": "0.9"}, 14, 8),
        ({"minhash": {"permutations": 128}}, 32, 4),
        ({"minhash": {"bands": 14}}, 14, 8),
        ({"minhash": {"rows": 8}}, 14, 8),
    ],
)
def test_what_isnt_said_of_near_duplicates_is_recommended(near: dict[str, object], bands: int, rows: int) -> None:
    made = DedupRecipe.model_validate({"near": near})

    assert made.near is not None and made.near.minhash is not None
    assert (made.mode, made.near.minhash.bands, made.near.minhash.rows) == ("both", bands, rows)
    assert DedupRecipe.from_content(made.content()) == made


def test_without_a_word_both_ways_are_taken_and_exact_ones_need_no_more() -> None:
    assert DedupRecipe.model_validate({}) == DedupRecipe.model_validate({"near": {}})
    assert DedupRecipe.model_validate({"mode": "exact"}).near is None


def test_pairs_are_proposed_in_one_way() -> None:
    ways = {
        "minhash": recipe().content()["near"]["minhash"],
        "faiss": {"shingle_words": 5, "bits": 256, "max_distance": 20, "seed": 1},
    }
    near = {"threshold": "0.7", "max_compared": 100} | ways

    with pytest.raises(ValueError, match="give one of `minhash` and `faiss`"):
        DedupRecipe.model_validate({"mode": "both", "scope": "global", "selection": "first", "near": near})
