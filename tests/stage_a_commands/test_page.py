"""Stage A commands of docs/stage_a.md, in their order, with their output."""

import json
import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill, Result
from stage_a_sources import SITES

from pipeline_assets.demo.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow


def test_every_command_of_the_page_runs(typed: dict[str, Result]) -> None:
    assert list(typed) == [
        "hf-configs",
        "hf-stream",
        "ingest-wikipedia",
        "ingest-stackexchange",
        "normalize",
        "ingest-manifest",
        "filter",
        "report",
        "why",
    ]


def test_configs_are_matched_by_whole_names(
    typed: dict[str, Result], corpusmill: Corpusmill, hub: LoopbackHub, tmp_path: Path
) -> None:
    words = ("stage-a", "hf-configs", "--dataset", "fineweb-2")
    env = {"HF_ENDPOINT": hub.endpoint, "CORPUSMILL_DATA": str(tmp_path)}
    in_bengali_script, by_script = (
        corpusmill(*words, "--contains", "ben", env=env),
        corpusmill(*words, "--filter", "beng", env=env),
    )

    assert typed["hf-configs"].stdout == "asm_Beng\n"
    assert in_bengali_script.stdout == by_script.stdout == "asm_Beng\nben_Beng\n"
    assert "warning: 'ben' also occurs in names of other languages: asm_Beng" in in_bengali_script.stderr
    assert "use --lang" in by_script.stderr


def test_configs_without_a_language_are_not_of_other_languages(
    corpusmill: Corpusmill, hub: LoopbackHub, tmp_path: Path
) -> None:
    words = ("stage-a", "hf-configs", "--dataset", "me/dumps", "--contains", "CC-MAIN")

    listed = corpusmill(*words, env={"HF_ENDPOINT": hub.endpoint, "CORPUSMILL_DATA": str(tmp_path)})

    assert listed.stdout == "CC-MAIN-2013-20\n" and "warning" not in listed.stderr


def test_command_prints_the_counts_of_each_source(typed: dict[str, Result]) -> None:
    assert "30 rows in = 24 documents + 6 rejected (title_only)" in typed["ingest-wikipedia"].stdout
    assert typed["ingest-stackexchange"].stdout.count("merged") == 2
    assert "out/stage_a/normalized/notes.manifest.json" in typed["normalize"].stdout
    assert "80 rows in = 52 documents + 28 dropped (int_score >= 3)" in typed["hf-stream"].stdout


def test_progress_names_the_current_source(typed: dict[str, Result]) -> None:
    for command, beginnings in {
        "hf-stream": ["plan fineweb-edu: ", "fetch fineweb-edu: ", "normalize fineweb-edu: "],
        "ingest-stackexchange": [f"{step} {site}: " for site in SITES for step in ("hash", "spill", "normalize")],
        "filter": ["filter notes: ", "filter wikipedia: "],
    }.items():
        lines = [line.partition(" ")[2] for line in typed[command].stderr.splitlines()]
        assert [beginning for beginning in beginnings if not any(line.startswith(beginning) for line in lines)] == []


def test_recipe_and_group_manifest_are_written(typed: dict[str, Result], work: Path) -> None:
    recipe = (work / "out" / "recipes" / "wikipedia.yaml").read_text(encoding="utf-8")
    group = work / "out" / "stage_a" / "normalized" / "wikipedia.manifest.json"

    assert "dump_date: '2026-11-01'" in recipe
    assert group.read_bytes() == (group.parent / "wikipedia" / "manifest.json").read_bytes()


def test_status_of_command_recipes_is_current(typed: dict[str, Result], work: Path, corpusmill: Corpusmill) -> None:
    report = json.loads(corpusmill("status", "--data", work / "out", "--json").stdout)

    states = {recipe["recipe"]: {row["state"] for row in recipe["artifacts"]} for recipe in report["recipes"]}
    by_hand = states.pop("stage_a_v1")
    assert by_hand == {"current", "missing"}
    assert set(states) == {"fineweb-edu", "wikipedia", "stackexchange", "notes", "filter-web"}
    assert all(artifact_states == {"current"} for artifact_states in states.values())


def test_report_counts_the_filtered_sources(typed: dict[str, Result], work: Path) -> None:
    report = json.loads((work / "out" / "stage_a" / "report" / "report.json").read_bytes())

    assert set(report["sources"]) == {"fineweb-edu", "wikipedia", *SITES, "notes"}
    assert report["sources"]["wikipedia"]["documents"] == 24
    assert report["licences"]["unknown"]["documents"] > 0


def test_why_prints_the_origin_and_every_measurement(typed: dict[str, Result]) -> None:
    lines = typed["why"].stdout.splitlines()

    assert lines[1].strip().startswith("from     AA/wiki_00 line ")
    assert "  licence  cc-by-sa-4.0 (date: 2026-11-01)" in lines
    assert "  kept" in lines
    assert "    few_words 63 > 10" in lines


def test_repeated_command_builds_nothing(
    corpusmill: Corpusmill, typed: dict[str, Result], work: Path, tmp_path: Path
) -> None:
    shutil.copytree(work / "out", tmp_path / "out", symlinks=True)

    again = corpusmill(
        *("stage-a", "ingest-wikipedia", "--input", "extracted", "--dump-date", "2026-11-01", "--language", "en"),
        *("--out-dir", tmp_path / "out"),
        cwd=work,
    )

    assert again.returncode == 0, again.stderr
    assert "normalize wikipedia" not in again.stderr
    assert "24 documents" in again.stdout
