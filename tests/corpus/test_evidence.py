"""The evidence of a report: samples, near duplicates and the funnel."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from corpus_reports import read_figures, read_page
from dedup_build import deduplicate, recipe, write_corpus
from document_corpus import numbered
from hypothesis import assume, given
from hypothesis import strategies as st
from plain_dedup import PlainDocument
from stage_a_build import INLINE, NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_dedup, with_pack

from pipeline_assets.corpus.dedup.decision import compare_words
from pipeline_assets.corpus.evidence import draw_by_reason, draw_near_duplicates
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.stage_a import StageARecipe

SCRIPT = "<script>alert('x')</script>"
HOSTILE = f"{numbered(300, 40)} {SCRIPT} <!-- & </td></mark>"


def build_report(root: Path, engine: RunSettings = INLINE) -> Artifact:
    """Build a report on near duplicates, a copy, a short note and a bad line."""
    long = " ".join(numbered(5000 + 50 * number, 40) for number in range(30))
    notes = [{"text": numbered(100 * number, 40), "key": f"note-{number}"} for number in range(3)]
    notes += [{"text": HOSTILE, "key": f"hostile {SCRIPT}"}, {"text": long, "key": "long"}]
    notes += [{"text": SCRIPT, "key": "short"}, {"text": None, "key": "none"}]
    pages = [{"text": f"{HOSTILE} <img src=x>", "key": "near-hostile"}, {"text": numbered(100, 40), "key": "copy"}]
    middle = numbered(5000 + 50 * 15, 40)
    pages.append({"text": long.replace(middle, f"{middle} inserted words"), "key": "near-long"})
    changes: dict[str, Any] = {"filters": {"length": {"min_words": 5}}, "max_reject_fraction": "0.5"}
    sources = [local_source(root, name, rows, **changes) for name, rows in (("notes", notes), ("pages", pages))]
    content = recipe_content(NO_COMMIT) | {"sources": sources, "shard_text_bytes": 4000}
    with_dedup(content)
    with_pack(content)
    content["pack"] |= {"seq_len": 64, "num_seqs": 2, "weights": None}
    return build(StageARecipe.model_validate(content), root, engine=engine)["stage_a/report"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return build_report(tmp_path_factory.mktemp("evidence"))


def test_near_duplicates_are_shown_side_by_side_with_differing_words(report: Artifact) -> None:
    pairs = {pair["dropped"]["doc_id"]: pair for pair in read_figures(report)["duplicates"]["near"]}

    long = pairs["near-long"]
    assert (long["kept"], long["dropped"]["source"]) == ({"doc_id": "long", "source": "notes"}, "pages")
    assert 0.9 < long["similarity"] < 1
    differing = [(passage["kept"], passage["dropped"]) for passage in long["passages"] if not passage["is_equal"]]
    assert differing == [("", "inserted words")]
    assert long["passages"][0] == {"kept": "…", "dropped": "…", "is_equal": True}, "it begins before the difference"
    assert long["passages"][-1]["is_equal"], "texts that end at different words do not differ there"
    assert pairs.keys() == {"near-long", "near-hostile"}, "an exact copy is no near duplicate"
    assert "<mark>inserted words</mark>" in read_page(report)


def test_a_difference_within_a_long_line_of_dashes_has_no_passages(tmp_path: Path) -> None:
    texts = [
        f"{numbered(0, 40)} {'-' * dashes}{'=' * 3000} {numbered(40, 40)}{end}"
        for dashes, end in ((400, ""), (401, " more"))
    ]
    corpus = write_corpus(tmp_path, [PlainDocument(f"d{n}", text, "notes") for n, text in enumerate(texts)], 2)

    [pair] = draw_near_duplicates(deduplicate(tmp_path, corpus, recipe()), corpus)

    assert pair["dropped"]["doc_id"] == "d1"
    assert pair["passages"] == [{"kept": "…", "dropped": "…", "is_equal": True}] * 2


def test_the_funnel_leads_from_rows_to_the_packed_set(report: Artifact) -> None:
    steps = read_figures(report)["funnel"]

    assert [(step["stage"], step["rows"], step["lost"]) for step in steps[:4]] == [
        ("rows of the sources", 10, {}),
        ("normalized", 9, {"no_text": 1}),
        ("filtered", 8, {"few_words": 1}),
        ("deduplicated", 5, {"exact_duplicate": 1, "near_duplicate": 2}),
    ]
    assert steps[4]["stage"] == "packed" and steps[4]["rows"] + sum(steps[4]["lost"].values()) == 5
    shown = re.sub(r"<[^>]+>", " ", read_page(report).partition("From source rows to the packed set</h2>")[2])
    assert re.search(r"deduplicated\s+exact_duplicate\s+1\s*, near_duplicate\s+2\s+5\s+50\.0 %", shown)


def test_hostile_texts_and_ids_are_escaped(report: Artifact) -> None:
    shown = read_page(report)

    assert "<script" not in shown and "<img" not in shown and "<!--" not in shown
    assert shown.count("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;") >= 4
    assert "<mark>img src=x&gt;</mark>" in shown, "a difference begins at its first word"


def test_every_part_of_the_evidence_is_in_the_table_of_contents(report: Artifact) -> None:
    links = re.findall(r"<a href='#s(\d+)'>([^<]*)</a>", read_page(report).partition("</nav>")[0])

    named = {name for _, name in links}
    assert {"From source rows to the packed set", "Near duplicates side by side", "notes: filtered"} <= named
    assert all(f"<div id='s{number}'></div>" in read_page(report) for number, _ in links)


@pytest.mark.slow
def test_workers_do_not_change_the_draw(report: Artifact, tmp_path: Path) -> None:
    parallel = build_report(tmp_path, RunSettings(workers=2))

    assert read_figures(parallel)["duplicates"] == read_figures(report)["duplicates"]
    assert read_figures(parallel)["ledgers"] == read_figures(report)["ledgers"]


PLACES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), unique=True, max_size=40)


@given(PLACES, st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_draw_is_the_same_in_any_order(places: list[tuple[str, int]], count: int, generator: random.Random) -> None:
    rows = [(f"reason-{row % 3}", file, row, (file, row)) for file, row in places]
    shuffled = generator.sample(rows, len(rows))

    selection = draw_by_reason(rows, count)

    assert selection == draw_by_reason(shuffled, count)
    for reason in {reason for reason, *_ in rows}:
        candidates = [item for name, _, _, item in rows if name == reason]
        assert len(selection[reason]) == min(count, len(candidates)) and {*selection[reason]} <= {*candidates}


def test_all_reasons_are_drawn_from_a_shard_that_has_them() -> None:
    rows = [(f"reason-{row % 9}", f"shards/{shard}", row, shard) for shard in range(50) for row in range(90)]
    rows.append(("rare", "shards/49", 3, 49))

    selection = draw_by_reason(rows, 3)

    assert len({shard for reason, shards in selection.items() if reason != "rare" for shard in shards}) == 1
    assert selection["rare"] == [49]


WORDS = st.lists(st.sampled_from(["river", "River", "Fluss", "川", "x.", "<b>", "…"]), max_size=12).map(" ".join)


@given(WORDS, WORDS)
def test_passages_contain_both_texts_and_mark_differences(old: str, new: str) -> None:
    assume(re.findall(r"\w+", old.lower()) != re.findall(r"\w+", new.lower()))  # else only their number is shown

    passages = list(compare_words(old, new, context_words=100))

    for text, side in ((old, 0), (new, 1)):
        assert re.findall(r"\w+", " ".join(passage[side] for passage in passages)) == re.findall(r"\w+", text)
    for passage in passages:
        same = re.findall(r"\w+", passage.kept.lower()) == re.findall(r"\w+", passage.dropped.lower())
        assert same == passage.is_equal
