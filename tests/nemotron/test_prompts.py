"""What rows ask, followed by commands: back to the rows and their lines, and from a line to what became of it."""

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
def made(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(corpusmill, tmp_path_factory.mktemp("prompts"), {"maths": {"low": ROWS}})


@pytest.mark.parametrize("step", ["prompts", "near_duplicates"])
def test_a_prompt_is_traced_to_its_normalised_row_and_its_line(corpusmill: Corpusmill, made: Path, step: str) -> None:
    lines = corpusmill("trace", made / step / "maths/low", "--doc-id", "maths/low/other").stdout.splitlines()
    told = json.loads(corpusmill("trace", made / step / "maths/low", "--doc-id", "maths/low/other", "--json").stdout)

    normalised = made / "normalized_shards/maths/low/data/low-00000-of-00001.parquet"
    line = made.parents[1] / "maths" / "low.jsonl"
    assert lines[0] == "prompt    maths/low/other"
    assert f"derived   {normalised} row 4" in lines
    assert "          line 5 (byte " in lines[5]
    assert lines[-2:] == [
        "licence   cc-by-4.0 (row: license)",
        "asked     Another problem altogether,⏎of some words.",
    ]
    assert told["made_of"] == [{"file": str(normalised), "row": 4}]
    assert json.loads(line.read_bytes()[told["source"]["row"] :].splitlines()[0])["uuid"] == "other"


def test_a_line_says_what_became_of_its_prompt_and_of_its_row(corpusmill: Corpusmill, made: Path) -> None:
    def fates(line: int) -> dict[str, str]:
        source = f"{made.parents[1]}/maths/low.jsonl:{line}"
        told = corpusmill("trace", "--source", source, "--data", made.parents[1]).stdout.splitlines()
        below = (one.split(": ", 1) for one in told if f"{made}/" in one and ": " in one)
        return {Path(place.split()[1]).relative_to(made).parts[0]: words for place, words in below}

    normalised, shard = "kept, data/low-00000-of-00001.parquet row", "shards/00000.jsonl.zst row"
    assert fates(1) == {
        "deduplicated": f"{normalised} 0",
        "prompts": f"kept, {shard} 0",
        "near_duplicates": "kept, shards/maths/low-00000.jsonl.zst row 0",
    }
    dropped = "dropped: no_completion (1 tokens of completion)"
    assert fates(2) == {"prompts": dropped, "deduplicated": dropped}
    found = fates(3)
    assert found["near_duplicates"].startswith("near duplicate: of maths/low/first, similarity 0.9")
    assert (found["prompts"], found["deduplicated"]) == (f"kept, {shard} 1", f"{normalised} 1")
    again = "dropped: duplicate_text (a row before it has the same text)"
    assert fates(4) == {"prompts": again, "deduplicated": again}


def test_a_near_duplicate_says_of_which_row_in_json(corpusmill: Corpusmill, made: Path) -> None:
    source = f"{made.parents[1]}/maths/low.jsonl:3"

    told = json.loads(corpusmill("trace", "--source", source, "--data", made.parents[1], "--json").stdout)

    [decided] = told["rows"][0]["near_duplicates"]
    assert (decided["outcome"], decided["decision"]["duplicate_of"]) == ("near_duplicate", "maths/low/first")
    assert 0.9 < decided["decision"]["similarity"] < 1
    [prompt] = told["rows"][0]["prompts"]
    assert (prompt["shard"], prompt["shard_row"]) == ("shards/00000.jsonl.zst", 1)


def test_a_prompt_is_shown_and_found_by_its_id_alone(corpusmill: Corpusmill, made: Path) -> None:
    prompts = made / "prompts/maths/low"

    shown = corpusmill("peek", prompts, "--row", 2).stdout
    gone = corpusmill("trace", prompts, "--doc-id", "maths/low/short")

    text = "Another problem altogether,\nof some words."
    assert shown == f"row 2: maths/low/other\nshards/00000.jsonl.zst row 2\n\n{text}\n"
    assert refused(gone).startswith(f"{prompts}: no prompt has the doc_id 'maths/low/short'; `corpusmill trace ")


def test_rows_at_one_place_of_two_files_of_one_name_are_told_apart(corpusmill: Corpusmill, tmp_path: Path) -> None:
    datasets = {"maths": {"low": [row("m", PROBLEM)]}, "more": {"low": [row("o", "Other words.")]}}
    folder = run(corpusmill, tmp_path / "data", datasets, deduplicate={"scope": "all"})

    for dataset, other in (("maths", "more"), ("more", "maths")):
        source = tmp_path / "data" / dataset / "low.jsonl"
        told = corpusmill("trace", "--source", f"{source}:1", "--data", tmp_path / "data").stdout
        assert f"{folder}/deduplicated/{dataset}/low: kept" in told
        assert f"{folder}/near_duplicates: kept, shards/{dataset}/low-00000.jsonl.zst row 0" in told
        assert f"/{other}/" not in told
