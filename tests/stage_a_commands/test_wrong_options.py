"""One clear line for what a stage-a command is told and can't do."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Typed = subprocess.CompletedProcess[str]
Corpusmill = Callable[..., Typed]
Wrong = Callable[..., tuple[int, str]]


def test_an_input_that_is_not_there(wrong: Wrong) -> None:
    status, line = wrong("ingest-wikipedia", "--input", "nowhere", "--dump-date", "2026-11-01", "--out-dir", "bad")

    assert status == 2
    assert line == "nowhere: no file matches; correct the path, or quote the pattern for the shell"


def test_no_licence_of_an_extraction(wrong: Wrong) -> None:
    status, line = wrong("ingest-wikipedia", "--input", "extracted", "--out-dir", "bad")

    assert status == 2
    assert line.startswith("stage-a ingest-wikipedia: neither --dump-date nor --license is given")


def test_a_config_that_does_not_exist_names_the_nearest(wrong: Wrong) -> None:
    status, line = wrong("hf-stream", "--source", "fineweb-2", "--config-name", "eng_Lat", "--out-dir", "bad")

    assert status == 2
    assert "there is no config 'eng_Lat' among 3; nearest: eng_Latn" in line


def test_a_licence_that_does_not_exist_names_the_nearest(wrong: Wrong) -> None:
    common = ("normalize", "--input", "notes/*.jsonl", "--out-dir", "bad", "--domain", "d", "--source", "n")

    status, line = wrong(*common, "--license", "cc-by-sa-4")

    assert status == 2
    assert line.startswith("--license: there is no licence 'cc-by-sa-4'; did you mean cc-by-sa-4.0?")


@pytest.mark.slow
def test_a_report_on_what_is_no_source(wrong: Wrong, typed: dict[str, Typed]) -> None:
    status, line = wrong("report", "--input", "out/stage_a/raw/*", "--out", "bad/report")

    assert status == 2
    assert "this is a stage_a/raw; give normalised or filtered sources" in line


@pytest.mark.slow
def test_a_filter_file_that_is_not_there_or_has_an_unknown_rule(
    wrong: Wrong, typed: dict[str, Typed], work: Path
) -> None:
    (work / "misspelt.yaml").write_text("lenght: {min_words: 10}\n")

    missing = wrong("filter", "--filters", "non.yaml", "--out-dir", "out")
    misspelt = wrong("filter", "--filters", "misspelt.yaml", "--out-dir", "out")

    assert missing == (2, "non.yaml: there is no such filter file; there are misspelt, web")
    assert misspelt == (2, "misspelt.yaml: unknown key `lenght`; did you mean `length`?")


@pytest.mark.slow
def test_an_id_that_no_source_has(corpusmill: Corpusmill, typed: dict[str, Typed], work: Path) -> None:
    result = corpusmill("stage-a", "why", "nobody", "--data", work / "out")

    assert result.returncode == 1
    assert "has a document 'nobody'" in result.stderr
