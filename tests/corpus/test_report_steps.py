"""Steps of a corpus in its report, from its sources to the packed rows."""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from corpus_reports import PAGES, Rows, read_figures, read_page
from stage_a_build import NO_COMMIT, build, local_source, parse_recipe
from stage_a_sources import recipe_content, with_decontamination, with_dedup, with_pack, write_quiz

from pipeline_assets.systems.stage_a import StageARecipe


def test_decontamination_is_reported_with_the_remainder_of_each_source(tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    with_decontamination(content, str(tmp_path / "quiz"))
    write_quiz(tmp_path / "quiz", ["The river is <b>high</b> today", "Of this nobody speaks here", "Short"])
    leak = {
        "text": "Dear friend, the river is b high b today. It will be so tomorrow, and for a week or two.",
        "key": "leak",
    }
    sources = [local_source(tmp_path, "letters", [leak]), local_source(tmp_path, "pages", PAGES)]

    report = build(parse_recipe(*sources, **content), tmp_path)["stage_a/report"]

    values, page = read_figures(report)["decontamination"], read_page(report)
    documents = {"contaminated_documents": 1, "cut_documents": 1, "dropped_documents": 0}
    assert values["by_set"] == {"quiz": {"items": 3, "repeated": 0, "too_short": 1, "without_ngrams": 0} | documents}
    assert {name: (row["in"], row["cut"], row["out"]) for name, row in values["by_source"].items()} == {
        "letters": (1, 1, 1),
        "pages": (1, 0, 1),
    }
    assert [(line["doc_id"], line["item"], line["source"]) for line in values["samples"]] == [
        ("leak", "q-0", "letters")
    ]
    assert values["kept"]["totals"]["documents"] == read_figures(report)["totals"]["documents"] == 2
    lost = len("the river is b high b today")
    assert values["kept"]["sources"]["letters"]["utf8_bytes"] == len(leak["text"]) - lost
    assert values["kept"]["totals"]["estimated_tokens"] < read_figures(report)["totals"]["tokens"], "nothing is packed"
    assert "Token counts after decontamination are scaled from those of the sources" in page
    assert "<h2>Contamination</h2>" in page
    assert "<pre>the river is b high b today</pre>" in page


@pytest.mark.slow
def test_requested_and_packed_mixtures_are_reported(tmp_path: Path) -> None:
    letters = [
        {"text": f"Dear friend, letter {n} is of the river.", "key": f"l-{n}", "license": "CC BY 4.0"}
        for n in range(40)
    ]
    pages: Rows = [{"text": f"日本語 is spoken in page {n}.", "key": f"p-{n}"} for n in range(40)]
    sources = [local_source(tmp_path, "letters", letters), local_source(tmp_path, "pages", pages)]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_pack(content)
    content["pack"] |= {"weights": {"letters": "0.25", "pages": "0.75"}, "num_seqs": 5}

    artifacts = build(StageARecipe.model_validate(content), tmp_path)

    figures, page = read_figures(artifacts["stage_a/report"])["packed"], read_page(artifacts["stage_a/report"])
    lines = pq.read_table(artifacts["stage_a/packed"].path("documents.parquet")).to_pylist()
    packed = {
        name: sum(row["packed_tokens"] for row in lines if row["source"] == name) for name in ("letters", "pages")
    }
    assert (figures["rows"], figures["seq_len"], figures["tokens"] + figures["padding_tokens"]) == (5, 64, 5 * 64)
    assert figures["packing_efficiency"] == f"{figures['tokens'] / (5 * 64):.6f}"
    assert {name: row["asked_share"] for name, row in figures["by_source"].items()} == {
        "letters": "0.25",
        "pages": "0.75",
    }
    for name, row in figures["by_source"].items():
        assert row["share"] == f"{packed[name] / figures['tokens']:.6f}"
        assert row["epochs"] == f"{packed[name] / row['text_tokens']:.6f}"
    assert packed["pages"] > packed["letters"]
    assert [*figures["license_tokens"].items()] == [("cc0-1.0", packed["pages"]), ("cc-by-4.0", packed["letters"])]
    actual = f"{100 * packed['letters'] / figures['tokens']:.2f} %"
    shown = ["<td>letters</td>", *(f"<td class='number'>{share}</td>" for share in ("25.00 %", actual))]
    head = "<th>source</th><th class='number'>target</th><th class='number'>actual</th>"
    assert "".join(shown) in page and head in page


def test_the_first_table_has_the_documents_after_each_stage(tmp_path: Path) -> None:
    letters: Rows = [{"text": f"Dear friend, letter {n // 2} is of the river.", "key": f"l-{n}"} for n in range(40)]
    sources = [local_source(tmp_path, "letters", letters)]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_dedup(content)
    write_quiz(tmp_path / "quiz", ["Of this nobody speaks here"])
    with_decontamination(content, str(tmp_path / "quiz"))
    with_pack(content)

    artifacts = build(StageARecipe.model_validate(content), tmp_path)
    page = read_page(artifacts["stage_a/report"])

    table = page.partition("<th>step</th>")[2]
    steps = re.findall(r"<tr><td>([^<]*)</td><td class='number'>([\d,]+)</td>", table)[:4]
    assert [(step, int(documents)) for step, documents in steps] == [
        ("in the sources", 40),
        ("without duplicates", 20),
        ("without items of evaluation sets", 20),
        (f"packed, {content['pack']['num_seqs']} rows", 20),
    ]
