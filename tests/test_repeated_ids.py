"""Ids that occur in two sources of a corpus, or in two corpora."""

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill
from document_corpus import numbered
from stage_a_build import build, local_source, parse_recipe, step
from stage_a_sources import with_decontamination, with_dedup

from pipeline_assets.spine.errors import InputError


def build_decontaminated(root: Path, item: str) -> Path:
    """Decontaminate two sources with equal ids; return the corpus.

    The report, which is built last, refuses equal ids.
    """
    (root / "quiz").mkdir(parents=True)
    (root / "quiz" / "test.jsonl").write_text(json.dumps({"id": "q", "question": item}) + "\n")
    sources = [
        local_source(root, name, [{"text": numbered(first + 100 * key, 40), "key": str(key)} for key in range(3)])
        for name, first in (("notes", 0), ("pages", 1000))
    ]
    content: dict[str, Any] = {}
    with_decontamination(content, str(root / "quiz"))
    content["decontamination"] |= {"action": "drop", "cut": None}
    with contextlib.suppress(InputError):
        build(parse_recipe(*sources, **content), root)
    return step(root, "decontaminated", "mixed")


@pytest.mark.parametrize(("first", "fates"), [(100, ["dropped", "kept"]), (1100, ["kept", "dropped"])])
def test_a_match_in_one_source_drops_no_equal_id_of_another(
    corpusmill: Corpusmill, tmp_path: Path, first: int, fates: list[str]
) -> None:
    build_decontaminated(tmp_path, numbered(first, 15))

    entries = json.loads(corpusmill("why", "1", "--data", tmp_path, "--json").stdout)

    assert [entry["decontaminated"][0]["outcome"] for entry in entries] == fates


def test_an_id_in_two_sources_is_traced_to_both(corpusmill: Corpusmill, tmp_path: Path) -> None:
    corpus = build_decontaminated(tmp_path, numbered(100, 15))

    both = json.loads(corpusmill("trace", corpus, "--doc-id", "2", "--json").stdout)
    single = json.loads(corpusmill("trace", corpus, "--doc-id", "1", "--json").stdout)

    assert [entry["shard"] for entry in both] == ["shards/notes-00000.jsonl.zst", "shards/pages-00000.jsonl.zst"]
    assert single["shard"] == "shards/pages-00000.jsonl.zst"


def test_two_corpora_with_repeated_ids_are_compared_row_by_row(corpusmill: Corpusmill, tmp_path: Path) -> None:
    a, b = (build_decontaminated(tmp_path / str(first), numbered(first, 15)) for first in (100, 1200))

    [comparison] = json.loads(corpusmill("diff", a, b, "--json").stdout)["documents"]

    # A lacks row 1 of the notes; B lacks row 2 of the pages.
    assert (comparison["only_in_a"], comparison["only_in_b"]) == (
        {"documents": 1, "examples": ["2"]},
        {"documents": 1, "examples": ["1"]},
    )
    assert comparison["in_both"] == {"documents": 4, "examples": ["0", "2", "0", "1"]}
    assert comparison["changed"]["documents"] == 0


def build_months(root: Path, may: Mapping[str, str], june: Mapping[str, str]) -> None:
    """Build a corpus of texts by id, and another one deduplicated against it."""
    content: dict[str, Any] = {}
    with_dedup(content)
    for month, texts, seen in (("may", may, []), ("june", june, ["stage_a/may/signatures/may"])):
        outputs = {"normalized_dir": f"stage_a/{month}/normalized", "signatures": True}
        source = local_source(root / month, "notes", [{"text": text, "key": key} for key, text in texts.items()])
        build(parse_recipe(source, **content | {"name": month, "outputs": outputs, "seen": seen}), root)


def test_rows_of_an_earlier_corpus_have_no_fate_in_the_later_one(corpusmill: Corpusmill, tmp_path: Path) -> None:
    build_months(tmp_path, *({str(key): numbered(first + 100 * key, 40) for key in range(2)} for first in (0, 1000)))

    entries = json.loads(corpusmill("why", "1", "--data", tmp_path, "--json").stdout)

    folders = {
        Path(entry["folder"]).parts[-3]: [Path(fate["folder"]).name for fate in entry["deduplicated"]]
        for entry in entries
    }
    assert folders == {"may": ["may"], "june": ["june"]}


def test_a_duplicate_with_the_id_of_the_earlier_document_is_named(corpusmill: Corpusmill, tmp_path: Path) -> None:
    changed = f"{numbered(0, 40)} changed"
    build_months(tmp_path, {"page": numbered(0, 40)}, {"page": changed, "other": numbered(900, 40)})
    (tmp_path / "text.txt").write_text(numbered(0, 40))
    (tmp_path / "ids.txt").write_text("page\n")

    by_text, by_id = (
        json.loads(corpusmill("forget", option, tmp_path / file, "--data", tmp_path, "--json").stdout)
        for option, file in (("--text", "text.txt"), ("--ids", "ids.txt"))
    )
    dropped = corpusmill("dropped", tmp_path / "stage_a/june/deduplicated/june").stdout.splitlines()

    assert (len(by_text["rows"]), by_text["near_copies"]) == (1, [["page", "page", 0.9743589743589743]])
    assert (len(by_id["rows"]), by_id["near_copies"]) == (2, [])
    assert dropped[-1].startswith("near_duplicate  of page, seen before in may, similarity 0.9744  page  ")


def test_later_corpora_are_searched_after_removal_of_the_earlier_one(corpusmill: Corpusmill, tmp_path: Path) -> None:
    build_months(tmp_path, {"a": "May."}, {"b": "June."})
    for name in ("normalized", "filtered", "deduplicated", "report"):
        shutil.rmtree(tmp_path / "stage_a" / "may" / name)

    result = json.loads(corpusmill("forget", "--data", tmp_path, "--json").stdout)

    assert result["unsearchable"] == {str(tmp_path / "stage_a/may/signatures/may"): "stage_a/deduplicated"}
