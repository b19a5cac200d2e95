"""The stage-a commands as docs/stage_a.md has them, typed one after the other, and what they answer."""

import json
import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill, Typed
from stage_a_sources import SITES

from pipeline_assets.demo.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow


def test_every_command_of_the_page_runs(typed: dict[str, Typed]) -> None:
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


def test_configs_are_matched_whole(typed: dict[str, Typed], corpusmill: Corpusmill, hub: LoopbackHub) -> None:
    words, env = ("stage-a", "hf-configs", "--dataset", "fineweb-2"), {"HF_ENDPOINT": hub.endpoint}
    in_bengali_script, by_script = (
        corpusmill(*words, "--contains", "ben", env=env),
        corpusmill(*words, "--filter", "beng", env=env),
    )

    assert typed["hf-configs"].stdout == "asm_Beng\n"
    assert in_bengali_script.stdout == by_script.stdout == "asm_Beng\nben_Beng\n"
    assert "warning: 'ben' also occurs in 1 names of other languages: asm_Beng" in in_bengali_script.stderr
    assert "use --lang" in by_script.stderr


def test_a_command_says_what_came_out_of_each_source(typed: dict[str, Typed]) -> None:
    assert "30 rows in = 24 documents + 6 rejected (title_only)" in typed["ingest-wikipedia"].stdout
    assert typed["ingest-stackexchange"].stdout.count("merged") == 2
    assert "out/stage_a/normalized/notes.manifest.json" in typed["normalize"].stdout
    assert "80 rows in = 52 documents + 28 dropped (int_score >= 3)" in typed["hf-stream"].stdout


def test_progress_names_the_source_that_is_built(typed: dict[str, Typed]) -> None:
    for command, beginnings in {
        "hf-stream": ["plan fineweb-edu: ", "fetch fineweb-edu: ", "normalize fineweb-edu: "],
        "ingest-stackexchange": [f"{step} {site}: " for site in SITES for step in ("hash", "spill", "normalize")],
        "filter": ["filter notes: ", "filter wikipedia: "],
    }.items():
        lines = [line.partition(" ")[2] for line in typed[command].stderr.splitlines()]
        assert [one for one in beginnings if not any(line.startswith(one) for line in lines)] == []


def test_the_recipe_that_ran_and_the_groups_manifest_are_written(typed: dict[str, Typed], work: Path) -> None:
    recipe = (work / "out" / "recipes" / "wikipedia.yaml").read_text(encoding="utf-8")
    group = work / "out" / "stage_a" / "normalized" / "wikipedia.manifest.json"

    assert "dump_date: '2026-11-01'" in recipe
    assert group.read_bytes() == (group.parent / "wikipedia" / "manifest.json").read_bytes()


def test_status_misses_nothing_that_no_command_was_asked_for(
    typed: dict[str, Typed], work: Path, corpusmill: Corpusmill
) -> None:
    report = json.loads(corpusmill("status", "--data", work / "out", "--json").stdout)

    states = {one["recipe"]: {row["state"] for row in one["artifacts"]} for one in report["recipes"]}
    by_hand = states.pop("stage_a_v1")
    assert by_hand == {"current", "missing"}
    assert set(states) == {"fineweb-edu", "wikipedia", "stackexchange", "notes", "filter-web"}
    assert all(found == {"current"} for found in states.values())


def test_the_report_counts_what_was_filtered(typed: dict[str, Typed], work: Path) -> None:
    report = json.loads((work / "out" / "stage_a" / "report" / "report.json").read_bytes())

    assert set(report["sources"]) == {"fineweb-edu", "wikipedia", *SITES, "notes"}
    assert report["sources"]["wikipedia"]["documents"] == 24
    assert report["licences"]["unknown"]["documents"] > 0


def test_why_tells_where_from_and_every_measurement(typed: dict[str, Typed]) -> None:
    lines = typed["why"].stdout.splitlines()

    assert lines[1].strip().startswith("from     AA/wiki_00 line ")
    assert "  licence  cc-by-sa-4.0 (date: 2026-11-01)" in lines
    assert "  kept" in lines
    assert "    few_words 63 > 10" in lines


def test_the_same_command_again_builds_nothing(
    corpusmill: Corpusmill, typed: dict[str, Typed], work: Path, tmp_path: Path
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
