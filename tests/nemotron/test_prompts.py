"""Traces of prompts to rows and lines, and of lines to prompts and rows."""

import json
from pathlib import Path

import pytest
from command_results import Corpusmill, refused
from nemotron_build import ANSWER, row, run

PROBLEM = " ".join(f"word{number}" for number in range(60))
ALIKE = PROBLEM.replace("word59", "other")


ROWS = [
    row("first", PROBLEM),
    row("short", "What is two and two?", "4"),
    row("alike", ALIKE, f"{ANSWER} It is indeed."),
    row("again", PROBLEM),
    row("other", "Another problem altogether,\nof some words.\0"),
]


@pytest.fixture(scope="module")
def built(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(corpusmill, tmp_path_factory.mktemp("prompts"), {"maths": {"low": ROWS}})


@pytest.mark.parametrize("step", ["prompts", "near_duplicates"])
def test_prompt_is_traced_to_its_normalised_row_and_line(corpusmill: Corpusmill, built: Path, step: str) -> None:
    lines = corpusmill("trace", built / step / "maths/low", "--doc-id", "maths/low/other").stdout.splitlines()
    trace = json.loads(corpusmill("trace", built / step / "maths/low", "--doc-id", "maths/low/other", "--json").stdout)

    normalised = built / "normalized_shards/maths/low/data/low-00000-of-00001.parquet"
    line = built.parents[1] / "maths" / "low.jsonl"
    assert lines[0] == "prompt    maths/low/other"
    assert f"derived   {normalised} row 4" in lines
    assert "          line 5 (byte " in lines[5]
    assert lines[-2:] == [
        "licence   cc-by-4.0 (row: license)",
        "asked     Another problem altogether,⏎of some words.",
    ]
    assert trace["made_of"] == [{"file": str(normalised), "row": 4}]
    assert json.loads(line.read_bytes()[trace["source"]["row"] :].splitlines()[0])["uuid"] == "other"


def test_line_is_followed_to_its_prompt_and_its_row(corpusmill: Corpusmill, built: Path) -> None:
    def fates(line: int) -> dict[str, str]:
        source = f"{built.parents[1]}/maths/low.jsonl:{line}"
        output = corpusmill("trace", "--source", source, "--data", built.parents[1]).stdout.splitlines()
        fates_by_path = (entry.split(": ", 1) for entry in output if f"{built}/" in entry and ": " in entry)
        return {Path(place.split()[1]).relative_to(built).parts[0]: words for place, words in fates_by_path}

    normalised, shard = "kept, data/low-00000-of-00001.parquet row", "shards/00000.jsonl.zst row"
    assert fates(1) == {
        "deduplicated": f"{normalised} 0",
        "prompts": f"kept, {shard} 0",
        "near_duplicates": "kept, shards/maths/low-00000.jsonl.zst row 0",
    }
    dropped = "dropped: no_completion (1 tokens of completion)"
    assert fates(2) == {"prompts": dropped, "deduplicated": dropped}
    outcomes = fates(3)
    assert outcomes["near_duplicates"].startswith("near duplicate: of maths/low/first, similarity 0.9")
    assert (outcomes["prompts"], outcomes["deduplicated"]) == (f"kept, {shard} 1", f"{normalised} 1")
    again = "dropped: duplicate_text (a row before it has the same text)"
    assert fates(4) == {"prompts": again, "deduplicated": again}


def test_json_names_the_row_that_a_near_duplicate_repeats(corpusmill: Corpusmill, built: Path) -> None:
    source = f"{built.parents[1]}/maths/low.jsonl:3"

    trace = json.loads(corpusmill("trace", "--source", source, "--data", built.parents[1], "--json").stdout)

    [decided] = trace["rows"][0]["near_duplicates"]
    assert (decided["outcome"], decided["decision"]["duplicate_of"]) == ("near_duplicate", "maths/low/first")
    assert 0.9 < decided["decision"]["similarity"] < 1
    [prompt] = trace["rows"][0]["prompts"]
    assert (prompt["shard"], prompt["shard_row"]) == ("shards/00000.jsonl.zst", 1)


def test_prompt_is_previewed_and_found_by_its_id(corpusmill: Corpusmill, built: Path) -> None:
    prompts = built / "prompts/maths/low"

    output = corpusmill("peek", prompts, "--row", 2).stdout
    missing = corpusmill("trace", prompts, "--doc-id", "maths/low/short")

    text = "Another problem altogether,\nof some words."
    assert output == f"row 2: maths/low/other\nshards/00000.jsonl.zst row 2\n\n{text}\n"
    assert refused(missing).startswith(f"{prompts}: no prompt has the doc_id 'maths/low/short'; `corpusmill trace ")


def test_rows_of_files_with_equal_names_are_traced_separately(corpusmill: Corpusmill, tmp_path: Path) -> None:
    datasets = {"maths": {"low": [row("m", PROBLEM)]}, "more": {"low": [row("o", "Other words.")]}}
    folder = run(corpusmill, tmp_path / "data", datasets, deduplicate={"scope": "all"})

    for dataset, other in (("maths", "more"), ("more", "maths")):
        source = tmp_path / "data" / dataset / "low.jsonl"
        output = corpusmill("trace", "--source", f"{source}:1", "--data", tmp_path / "data").stdout
        assert f"{folder}/deduplicated/{dataset}/low: kept" in output
        assert f"{folder}/near_duplicates: kept, shards/{dataset}/low-00000.jsonl.zst row 0" in output
        assert f"/{other}/" not in output
