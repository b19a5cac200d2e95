"""`corpusmill dropped` lists dropped and rejected rows by reason."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill, refused
from document_corpus import numbered
from nemotron_build import build as build_nemotron
from nemotron_build import offline, write_nemotron
from own_steps import DECIDES, build_step, write_step
from stage_a_build import build, local_source, parse_recipe, step
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.commands.dropped import _locate_rows
from pipeline_assets.corpus.dropped_rows import DroppedRow
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.lineage import Lineage

LEAK = "the tide turns at noon and the boats come home to the old stone quay"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two short notes, a bad line, a copy, a near duplicate and a leak."""
    root = tmp_path_factory.mktemp("dropped")
    notes = [{"text": numbered(100 * number, 40), "key": f"note-{number}"} for number in range(4)]
    notes += [{"text": "Short.", "key": "short-0"}, {"text": None, "key": "none"}]
    notes += [{"text": "Short\n<b>too</b>.", "key": "short-1"}, {"text": f"{numbered(900, 30)} {LEAK}", "key": "leak"}]
    pages = [{"text": numbered(100, 40), "key": "copy"}, {"text": f"{numbered(200, 40)} end", "key": "near"}]
    pages.append({"text": numbered(5000, 40), "key": "own"})
    changes: dict[str, Any] = {"filters": {"length": {"min_words": 3}}, "max_reject_fraction": "0.5"}
    sources = [local_source(root, name, rows, **changes) for name, rows in (("notes", notes), ("pages", pages))]
    sections: dict[str, Any] = {}
    with_dedup(sections)
    write_quiz(root / "quiz", [LEAK])
    with_decontamination(sections, str(root / "quiz"))
    del sections["decontamination"]["cut"]
    sections["decontamination"]["action"] = "drop"
    build(parse_recipe(*sources, **sections), root)
    return root


def test_output_is_counts_by_reason_then_each_row_with_file_and_line(corpusmill: Corpusmill, root: Path) -> None:
    folder, file = step(root, "filtered", "notes"), root / "sources" / "notes" / "rows.jsonl"
    short, longer = (file.read_bytes().index(b'{"text": "Short' + end) for end in (b".", b"\\n"))

    result = corpusmill("dropped", folder, "--text")
    traced = corpusmill("trace", "--source", f"{file}#{short}", "--data", root)

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{folder}: 7 in = 5 out + 2 dropped + 0 rejected",
        "          2 dropped: few_words",
        f"few_words  1 < 3  short-0  {file}#{short}, line 5 (byte {short:,})",
        "    Short.",
        f"few_words  2 < 3  short-1  {file}#{longer}, line 7 (byte {longer:,})",
        "    Short⏎<b>too</b>.",
    ]
    assert "document  short-0\n" in traced.stdout and "dropped: few_words 1 < 3" in traced.stdout


@pytest.mark.parametrize(
    ("kind", "source", "rows"),
    [
        ("normalized", "notes", [("no_text", "null", "", '{"text": null, "key": "none"}')]),
        (
            *("deduplicated", "mixed"),
            [
                ("exact_duplicate", "of note-1, similarity 1.0", "copy", numbered(100, 40)),
                ("near_duplicate", "of note-2, similarity 0.9", "near", f"{numbered(200, 40)} end"),
            ],
        ),
        ("decontaminated", "mixed", [("contaminated", "quiz q-0", "leak", f"{numbered(900, 30)} {LEAK}")]),
    ],
)
def test_every_kind_that_drops_rows_lists_them_with_reason_id_and_text(
    corpusmill: Corpusmill, root: Path, kind: str, source: str, rows: list[tuple[str, str, str, str]]
) -> None:
    listed = json.loads(corpusmill("dropped", step(root, kind, source), "--json", "--text").stdout)["rows"]

    for row, (reason, detail, doc_id, text) in zip(listed, rows, strict=True):
        assert (row["reason"], row["doc_id"], row["text"]) == (reason, doc_id, text[:300])
        assert row["detail"].startswith(detail)
        assert Path(row["place"].partition("#")[0]).is_file()


def test_document_rejected_by_a_custom_step_is_listed_by_source_row(corpusmill: Corpusmill, tmp_path: Path) -> None:
    texts = ["kept", "error here"]
    folder = build_step(write_step(tmp_path, DECIDES, texts, max_reject_fraction="0.5"), tmp_path / "data").folder
    file = tmp_path / "sources" / "notes" / "rows.jsonl"
    at = len(file.read_bytes().splitlines(keepends=True)[0])

    lines = corpusmill("dropped", folder, "--text").stdout.splitlines()

    assert lines[2:] == [
        f"step_failed  my_filter.py:15: ZeroDivisionError: division by zero  note-1  {file}#{at}, line 2 (byte {at})",
        "    error here",
    ]


def test_reject_of_an_unknown_input_has_no_id_and_no_text(tmp_path: Path) -> None:
    sources = [local_source(tmp_path, name, [{"text": f"{name} {LEAK}", "key": name}]) for name in ("notes", "pages")]
    write_quiz(tmp_path / "quiz", ["a question that nobody asks in this small corpus of two texts"])
    sections: dict[str, Any] = {}
    with_decontamination(sections, str(tmp_path / "quiz"))
    root = tmp_path / "data"
    build(parse_recipe(*sources, **sections), root)
    corpus = open_artifact(step(root, "decontaminated", "mixed"))
    reject = DroppedRow("killed_worker", "", "shards/00000.jsonl.zst", 0)

    assert [*_locate_rows(corpus, [reject], Lineage(root), True)] == [(reject, "shards/00000.jsonl.zst row 0", None)]


def test_reason_and_limit_select_rows_and_the_rest_is_counted(corpusmill: Corpusmill, root: Path) -> None:
    folder = step(root, "deduplicated", "mixed")

    near = json.loads(corpusmill("dropped", folder, "--reason", "near_duplicate", "--json").stdout)["rows"]
    first = corpusmill("dropped", folder, "--limit", 1).stdout.splitlines()
    none = corpusmill("dropped", folder, "--limit", 0).stdout.splitlines()

    assert [row["doc_id"] for row in near] == ["near"]
    more = "more; --limit sets how many are listed, --reason selects one reason"
    assert (len(first), first[-1]) == (5, f"and 1 {more}")
    assert (len(none), none[-1]) == (4, f"and 2 {more}")


def test_reasons_without_rows_in_a_file_are_named(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    beer = step(stage_a_root, "normalized", "beer.stackexchange.com")

    lines = corpusmill("dropped", beer).stdout.splitlines()

    assert lines[-1] == "counted, but not listed row by row: low_question_score"
    assert "         18 dropped: low_question_score" in lines


def test_rows_of_conversations_are_listed(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "out"
    build_nemotron(write_nemotron(tmp_path), root, offline(tmp_path / "cache"), RunSettings())
    folders = [path.parent for path in sorted(root.glob("nemotron/*/deduplicated/**/manifest.json"))]
    folder = next(folder for folder in folders if open_artifact(folder).manifest.identity.ledger.dropped)

    answer = json.loads(corpusmill("dropped", folder, "--json").stdout)

    reasons = [row["reason"] for row in answer["rows"]]
    assert {reason: reasons.count(reason) for reason in reasons} == answer["ledger"]["dropped"]
    assert all("#" in row["place"] for row in answer["rows"])


def test_row_with_a_missing_input_has_its_shard_and_no_text(corpusmill: Corpusmill, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "stage_a" / "mixed" / "filtered" / "notes"
    shutil.copytree(step(root, "filtered", "notes"), copy)

    lines = corpusmill("dropped", copy, "--text").stdout.splitlines()

    assert lines[2:4] == [
        "few_words  1 < 3  short-0  shards/00000.jsonl.zst row 4",
        "    (only its source has the text)",
    ]


def test_row_of_a_deleted_source_file_has_its_address_and_no_text(corpusmill: Corpusmill, tmp_path: Path) -> None:
    rows = [{"text": "One.", "key": "one\ntwo"}, {"text": None, "key": "none"}]
    build(parse_recipe(local_source(tmp_path, "notes", rows, max_reject_fraction="0.5")), tmp_path)
    folder, file = step(tmp_path, "normalized", "notes"), tmp_path / "sources" / "notes" / "rows.jsonl"
    start = file.read_bytes().index(b'{"text": null')
    file.unlink()

    dropped = corpusmill("dropped", folder, "--text")
    traced = corpusmill("trace", folder, "--row", 0, "--record")
    peek = corpusmill("peek", folder, "--row", 0)

    assert (dropped.returncode, dropped.stdout.splitlines()[-1]) == (0, "    (only its source has the text)")
    assert f"  {file}#{start}, byte {start}\n" in dropped.stdout
    assert refused(traced, 1) == f"{file}: file not found; restore the file"
    assert peek.stdout.splitlines()[0] == "row 0: one⏎two"


def test_wrong_use_is_one_line_with_the_valid_choices(corpusmill: Corpusmill, root: Path) -> None:
    folder, kept_all = step(root, "deduplicated", "mixed"), step(root, "normalized", "pages")
    raw = step(root, "raw", "notes")
    cases = {
        (folder, "--reason", "x"): "--reason: no row has the reason 'x'; choose one of exact_duplicate, near_duplicate",
        (kept_all, "--reason", "x"): "--reason: no row has the reason 'x'; omit it: no row was dropped or rejected",
        (raw,): f"{raw}: this artifact counts no rows; choose a folder of documents, rows or tokens",
        (folder, "--limit", "-1"): "--limit: must be at least 0, got '-1'; see corpusmill dropped --help",
    }

    for words, line in cases.items():
        assert refused(corpusmill("dropped", *words)) == line
