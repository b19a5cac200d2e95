"""The commands of docs/nemotron.md and their results."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill, Result
from huggingface_hub import DatasetCard
from nemotron_hub import SPLITS

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.demo.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow
AGENTIC = "nvidia/Nemotron-Agentic-v1"


def test_the_command_prints_its_artifacts_with_the_digests_of_the_assets(
    typed: list[Result], nemotron_hub: LoopbackHub, work: Path, undisturbed: dict[str, str]
) -> None:
    lines = typed[0].stdout.splitlines()

    folder = work / "out" / "nemotron" / "inventory-nemotron-agentic-v1" / "inventory" / "nemotron-agentic-v1"
    assert lines[0] == str(folder / "interactive_agent")
    assert lines[1].strip() == undisturbed["nemotron/inventory/nemotron-agentic-v1/interactive_agent"]
    assert lines[7].strip() == undisturbed["nemotron/inventory/nemotron-agentic-v1/tool_calling"]
    assert "3 rows in = 3 documents" in lines[2]
    assert lines[-1].strip() == str(folder / "tool_calling" / "metadata_coverage.md")
    assert f"{AGENTIC} at {nemotron_hub.commits()[AGENTIC]}" in typed[0].stderr


def test_a_sample_of_one_split_is_recorded_as_a_sample(typed: list[Result], work: Path) -> None:
    assert "2 rows in = 2 documents" in typed[1].stdout

    inventory = json.loads(Path(typed[1].stdout.splitlines()[-2].strip()).read_bytes())
    [(dataset, content)] = inventory.items()
    [(split, entry)] = content["splits"].items()
    assert (dataset, split, entry["scan"]["max_rows"], entry["rows"]) == ("nvidia/Nemotron-Science-v1", "MCQ", 2, None)


def test_a_folder_is_read_as_the_hub_is(typed: list[Result], work: Path) -> None:
    files = [Path(line.strip()) for line in typed[2].stdout.splitlines() if line.endswith("inventory.json")]

    splits = {}
    for file in files:
        splits |= json.loads(file.read_bytes())["Nemotron-Math-v2"]["splits"]
    assert list(splits) == list(SPLITS["nvidia/Nemotron-Math-v2"])
    assert splits["low"]["coverage"]["uuid"]["share"] == "1.0000"
    assert splits["high_part00"]["coverage"]["uuid"]["share"] == "0.0000"
    assert splits["high_part01"]["coverage"]["tools"]["share"] == "1.0000"
    assert splits["high_part02"]["tags"]["license"] == {"cc-by-sa-4.0": 3}
    assert [file["path"] for file in splits["high_part00"]["files"]] == ["data/high.part_00.jsonl"]
    assert splits["low"]["revision"] is None


def test_artifacts_of_a_command_are_up_to_date_for_its_recipe(typed: list[Result]) -> None:
    assert [line.split()[0] for line in typed[4].stdout.splitlines()] == ["current"] * 4


def test_rows_and_folder_have_the_assets_digests(typed: list[Result], work: Path, undisturbed: dict[str, str]) -> None:
    lines = [line.strip() for line in typed[5].stdout.splitlines()]

    for split in ("interactive_agent", "tool_calling"):
        digest = lines.index(undisturbed[f"nemotron/normalized_shards/nemotron-agentic-v1/{split}"])
        assert lines[digest + 1] == "3 rows in = 3 documents"
    digest = lines.index(undisturbed["nemotron/hf_layout/nemotron-agentic-v1"])
    assert ", documents 6, splits 2, " in lines[digest + 1]


def test_the_folder_for_a_hub_has_all_splits_without_copying_a_byte(typed: list[Result], work: Path) -> None:
    recipe = work / "out" / "nemotron" / "normalize-nemotron-agentic-v1"
    folder = recipe / "hf_layout" / "nemotron-agentic-v1"

    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == [
        "README.md",
        "data/interactive_agent-00000-of-00001.parquet",
        "data/tool_calling-00000-of-00001.parquet",
        "interactive_agent__tools_catalog.json",
        "manifest.json",
        "tool_calling__tools_catalog.json",
    ]
    shard = "data/tool_calling-00000-of-00001.parquet"
    original = recipe / "normalized_shards" / "nemotron-agentic-v1" / "tool_calling" / shard
    assert os.path.samefile(folder / shard, original)
    assert pq.read_schema(folder / shard).equals(SCHEMA)
    card = DatasetCard.load(folder / "README.md")
    assert [file["split"] for file in card.data.configs[0]["data_files"]] == ["interactive_agent", "tool_calling"]
    assert "| `default` | `tool_calling` | 3 |" in card.text and "| " + f"`{AGENTIC}` | " in card.text


def test_a_sample_names_places_in_the_whole_file(typed: list[Result], nemotron_hub: LoopbackHub, work: Path) -> None:
    assert "  2 rows in = 2 documents\n" in typed[6].stdout

    folder = Path(typed[6].stdout.splitlines()[0])
    rows = pq.read_table(folder / "data" / "RQA-00000-of-00001.parquet").to_pylist()
    assert rows[0]["source_row"] == 0 < rows[1]["source_row"]
    assert {row["source_file"] for row in rows} == {"data/RQA.jsonl"}
    assert {row["source_revision"] for row in rows} == {nemotron_hub.commits()["nvidia/Nemotron-Science-v1"]}


def test_harmony_text_is_kept_unchanged(typed: list[Result], work: Path) -> None:
    folder = Path(typed[7].stdout.splitlines()[0])

    [row] = pq.read_table(folder / "data" / "train-00000-of-00001.parquet").to_pylist()
    source_row = json.loads((work / "datasets" / "harmony-tools" / "train.jsonl").read_text().splitlines()[0])
    assert row["text"] == source_row["text"]
    assert (row["meta_domain"], row["template"], row["source_revision"]) == ("math", "plain/1", None)
    assert [*read_line_blocks(folder / "rejects.jsonl.zst")] == []
    [block] = read_line_blocks(folder / "dropped.jsonl.zst")
    assert json.loads(block)["detail"].startswith("text_outside_messages")
    assert "1 dropped (invalid_harmony)" in typed[7].stdout


def test_the_trace_of_a_dropped_row_has_the_reason(typed: list[Result], corpusmill: Corpusmill, work: Path) -> None:
    source = work / "datasets" / "harmony-tools" / "train.jsonl"

    result = corpusmill("trace", "--source", f"{source}:2", "--data", work / "out")

    assert result.returncode == 0, result.stderr
    assert "dropped: invalid_harmony (text_outside_messages" in result.stdout


def test_a_folder_for_a_hub_is_verified_down_to_the_pin(typed: list[Result]) -> None:
    kinds = [line.split()[1] for line in typed[8].stdout.splitlines() if line.startswith("intact  nemotron/")]
    assert sorted(set(kinds)) == ["nemotron/hf_layout", "nemotron/normalized_shards", "nemotron/raw"]


def test_a_row_is_traced_to_its_line_and_shown(typed: list[Result], nemotron_hub: LoopbackHub, work: Path) -> None:
    commit = nemotron_hub.commits()[AGENTIC]
    shard = work / "out" / "nemotron" / "normalize-nemotron-agentic-v1" / "normalized_shards" / "nemotron-agentic-v1"
    rows = pq.read_table(shard / "tool_calling" / "data" / "tool_calling-00000-of-00001.parquet").to_pylist()

    assert f"source    {AGENTIC}@{commit}:data/tool_calling.jsonl#{rows[1]['source_row']}" in typed[9].stdout
    assert typed[9].stdout.startswith(f"row       {rows[1]['id']}\n")
    assert typed[10].stdout.startswith(f"row 1: {rows[1]['id']}, {rows[1]['stats_tokens']:,} tokens\n")
