"""Commands of docs/dedup.md, and wrong use in one line."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill, Result, Wrong, only_line, read_table, type_page
from document_corpus import numbered
from stage_a_build import build, local_source, parse_recipe

pytestmark = pytest.mark.slow
STORE = "out/stage_a/signatures/all"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two filtered sources; the second repeats most of the first."""
    folder = tmp_path_factory.mktemp("work")
    notes = [{"text": numbered(100 * number, 40), "key": f"note-{number}"} for number in range(10)]
    copies = [{"text": f"{numbered(100 * number, 40)} end", "key": f"copy-{number}"} for number in range(8)]
    again = [{"text": numbered(100, 40).title(), "key": "again"}, {"text": numbered(5000, 30), "key": "other"}]
    sources = [local_source(folder / "in", "notes", notes), local_source(folder / "in", "pages", [*copies, *again])]
    build(parse_recipe(*sources, outputs={"normalized_dir": "stage_a/normalized"}), folder / "out")
    return folder


@pytest.fixture(scope="module")
def results(corpusmill: Corpusmill, work: Path) -> dict[str, Result]:
    """Run the page's commands with a dropped DOC_ID; return results by command."""
    answers = type_page("dedup.md", corpusmill, "copy-3", cwd=work)
    return {"dedup --seen" if "--seen" in words else words[1]: result for words, result in answers}


@pytest.fixture
def wrong(corpusmill: Corpusmill, work: Path) -> Wrong:
    def answer(*options: str) -> tuple[int, str]:
        arguments = ("--input", "out/stage_a/filtered/*", "--out-dir", "out/stage_a/deduplicated/wrong", *options)
        result = corpusmill("stage-a", "dedup", *arguments, cwd=work)
        return result.returncode, only_line(result)

    return answer


def test_output_counts_kept_and_dropped_documents_by_source(results: dict[str, Result]) -> None:
    sources = read_table(results["dedup"], "by source")

    columns = ("in", "out", "exact duplicate", "near duplicate")
    counts = {name: [row[column] for column in columns] for name, row in sources.items()}
    assert counts == {"notes": ["10", "10", "0", "0"], "pages": ["10", "1", "1", "8"]}
    assert "warning" not in results["dedup"].stderr


def test_later_corpus_is_deduplicated_against_stored_signatures(
    results: dict[str, Result], corpusmill: Corpusmill, work: Path
) -> None:
    assert results["signatures"].stdout.splitlines()[2] == "  documents 11"
    pages = read_table(results["dedup --seen"], "by source")["pages"]
    columns = ("in", "exact duplicate", "near duplicate", "of seen")
    assert [pages[column] for column in columns] == ["10", "2", "8", "10"]

    lines = corpusmill("dedup", "show", "copy-5", "--data", "out", cwd=work).stdout.splitlines()
    why = corpusmill("stage-a", "why", "copy-5", "--data", "out", cwd=work).stdout

    (work / "out" / "stage_a" / "deduplicated" / "all").rename(work / "elsewhere")
    without = corpusmill("dedup", "show", "copy-5", "--data", "out", cwd=work).stdout.splitlines()
    (work / "elsewhere").rename(work / "out" / "stage_a" / "deduplicated" / "all")
    assert "kept  note-5  (seen before, in the store all; its corpus is not in out)" in without

    [kept] = [line for line in lines if "seen before" in line]
    place = r"\(notes, /\S*/notes\S*\.jsonl line 6 \(byte [\d,]+\)\)"
    assert re.match(rf"kept  note-5  {place}  \(seen before, in ", kept), kept
    assert "near duplicate of note-5, seen before in all" in why


def test_explain_recommends_bands_or_a_distance(results: dict[str, Result], corpusmill: Corpusmill, work: Path) -> None:
    lines = results["explain"].stdout.splitlines()
    sketch_lines = corpusmill("dedup", "explain", "--proposer", "faiss").stdout.splitlines()
    explained = json.loads(corpusmill("dedup", "explain", "--threshold", "0.5", "--json", cwd=work).stdout)

    assert lines[0] == "16 bands of 7 rows (recommended): 97.7% of pairs at 0.8"
    assert [line.split("█")[-1].strip() for line in lines if "threshold" in line] == ["← threshold"]
    assert sketch_lines[0] == "48 of 256 bits may differ (recommended): 95.8% of pairs at 0.7"
    assert explained["recommended"] == {"bands": 28, "rows": 4} or explained["ways"][0]["at_threshold"] >= 0.95


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--threshold", "1.5"], "--threshold must be in (0, 1], got 1.5; correct the value"),
        (["--bands", "13"], "dedup explain: --bands times 8 rows must equal 112 permutations, got 104; correct it"),
        (["--proposer", "faiss", "--bits", "12"], "--bits must be a multiple of 8, got 12; correct the value"),
    ],
)
def test_explain_names_the_option_of_an_invalid_value(options: list[str], line: str, corpusmill: Corpusmill) -> None:
    result = corpusmill("dedup", "explain", *options)

    assert (result.returncode, only_line(result)) == (2, line)


def test_faiss_finds_the_duplicates_of_bands(results: dict[str, Result], corpusmill: Corpusmill, work: Path) -> None:
    arguments = ("--input", "out/stage_a/filtered/*", "--out-dir", "out/stage_a/deduplicated/by_faiss")

    result = corpusmill("stage-a", "dedup", *arguments, "--proposer", "faiss", "--faiss-gpu", "1", cwd=work)

    assert read_table(result, "by source") == read_table(results["dedup"], "by source")
    assert "faiss searches on " in result.stderr


def test_show_compares_a_document_with_the_kept_one_word_by_word(
    results: dict[str, Result], corpusmill: Corpusmill, work: Path
) -> None:
    lines, why = results["show"].stdout.splitlines(), results["why"].stdout.splitlines()
    groups = json.loads(corpusmill("dedup", "show", "copy-3", "--data", "out", "--json", cwd=work).stdout)
    unknown = corpusmill("dedup", "show", "nowhere", "--data", "out", cwd=work)

    assert re.fullmatch(r"kept  note-3  \(notes, /\S*/notes\S*\.jsonl line 4 \(byte [\d,]+\)\)", lines[1]), lines[1]
    assert re.fullmatch(r"near duplicate  copy-3  \(pages, /\S*/pages\S*\.jsonl line 4 \(byte [\d,]+\)\)", lines[3])
    assert lines[4] == "  similarity 0.9730, 97.3% of its shingles are in the kept one"
    assert lines[5] == "  … 34 equal words … w334 w335 w336 w337 w338 w339 {+end+}"
    assert [line.strip() for line in why[-3:]] == [
        "out/stage_a/deduplicated/all",
        "near duplicate of note-3",
        "similarity 0.9730; side by side: corpusmill dedup show copy-3 --data out",
    ]
    assert [member["doc_id"] for member in groups[0]["gone"]] == ["copy-3"]
    assert unknown.returncode == 1
    assert "document 'nowhere' not found in the deduplicated corpora of out" in unknown.stderr


def test_report_has_duplicates_the_largest_groups_and_tokens_if_requested(
    results: dict[str, Result], corpusmill: Corpusmill, work: Path
) -> None:
    arguments = ("--input", "out/stage_a/deduplicated/all", "--out", "out/report_without", "--no-tokens")

    lines = results["report"].stdout.splitlines()
    without = corpusmill("stage-a", "report", *arguments, cwd=work)

    assert lines[2].endswith("tokens 1,618")
    assert lines[-1].endswith("out/stage_a/reports/deduplicated/report.html")
    page = (work / "out/stage_a/reports/deduplicated/report.html").read_text()
    assert "<h2>Duplicates</h2>" in page and "<h2>Largest groups</h2>" in page and "note-3" in page
    assert without.stdout.splitlines()[2] == lines[2].replace(", tokens 1,618", "")
    assert '"tokens"' not in (work / "out" / "report_without" / "report.json").read_text()
    assert without.stderr.splitlines()[0] == (
        f"warning: out/report_without is in none of the folders of {work / 'out'} with artifacts: status, gc, forget "
        "and trace will not find the new artifact; set --out-dir to a folder below stage_a/ of its data root"
    )


def test_too_many_removals_exit_with_1_and_name_the_source(corpusmill: Corpusmill, results: object, work: Path) -> None:
    arguments = ("--input", "out/stage_a/filtered/*", "--out-dir", "out/stage_a/deduplicated/all")

    result = corpusmill("stage-a", "dedup", *arguments, "--max-removed", "0.5", cwd=work)

    assert result.returncode == 1
    counts = "notes: 0 of 10 (0.0%, at most 50.0%); pages: 9 of 10 (90.0%, MORE THAN 50.0%)"
    advice = "look at some with `corpusmill dedup show`, then raise `max_removed`"
    assert f"removals_within_caps failed: {counts}: {advice}" in only_line(result)
    assert corpusmill("dedup", "show", "copy-0", "--data", "out", cwd=work).returncode == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--threshold", "2"), "--threshold must be in (0, 1], got 2"),
        (("--bands", "13"), "--bands times 8 rows must equal 112 permutations, got 104"),
        (("--permutations", "10", "--bands", "20"), "--bands times 1 row must equal 10 permutations, got 20"),
        (("--max-distance", "40"), "--max-distance: requires --proposer faiss; add it, or omit this option"),
        (("--bits", "512"), "--bits: requires --proposer faiss; add it, or omit this option"),
        (("--bits", "256"), "--bits: requires --proposer faiss; add it, or omit this option"),  # the default
        (("--mode", "exact", "--bits", "256"), "--bits: requires --mode near or both; add it, or omit this option"),
        (("--mode", "exact", "--proposer", "minhash"), "--proposer: requires --mode near or both; omit one of the two"),
        (("--proposer", "faiss", "--bands", "14"), "--bands: requires --proposer minhash; add it, or omit this option"),
        (("--mode", "exact", "--threshold", "0.9"), "--threshold: requires --mode near or both; add it, or omit this"),
        (("--mode", "exact", "--seed", "2"), "--seed: requires --mode near or both; add it, or omit this option"),
        (("--mode", "exact", "--proposer", "faiss"), "--proposer: requires --mode near or both; omit one of the two"),
        (
            ("--near-selection", "quality"),
            "--near-selection quality requires --quality-column, and other selections do not allow it; correct it",
        ),
        (
            ("--max-removed", "7"),
            "--max-removed: a fraction must be at most 1 (0.3 for 30 %), got 7; correct it",
        ),
        (("--input", "out/stage_a/normalized/notes"), "two inputs have the name notes"),
        (("--input", "out/stage_a/filtered/notes"), "out/stage_a/filtered/notes: the input is repeated; pass it once"),
        (
            ("--seen", STORE, "--bands", "14"),
            "the store has bands 28, rows 4; this run has bands 14, rows 8; use the store's values, or",
        ),
        (("--seen", STORE, "--seen", f"out/../{STORE}"), f"out/../{STORE}: the input is repeated; pass it once"),
    ],
)
def test_wrong_options_exit_with_2(wrong: Wrong, results: object, options: tuple[str, ...], line: str) -> None:
    status, message = wrong(*options)

    assert (status, line in message) == (2, True), message


def test_stores_with_equal_names_are_refused(wrong: Wrong, results: object, work: Path) -> None:
    copy = work / "copied" / Path(STORE).name
    shutil.copytree(work / STORE, copy)

    status, line = wrong("--seen", STORE, "--seen", f"copied/{copy.name}")

    assert (status, line) == (2, f"{copy}: two inputs have the name all; pass one of them")
