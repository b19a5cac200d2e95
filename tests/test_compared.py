"""The page docs/compared.md shows the results of its program."""

import json
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
PROGRAM = PROJECT / "benchmarks" / "compared.py"


@pytest.fixture
def program() -> dict[str, Any]:
    return runpy.run_path(str(PROGRAM))


def read_page_rows() -> list[list[str]]:
    page = (PROJECT / "docs" / "compared.md").read_text(encoding="utf-8")
    lines = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if len(cells) == 7]


def test_page_has_the_columns_and_the_cases_of_the_program(program: dict[str, Any]) -> None:
    head, *rows = read_page_rows()

    cases = [(case.fault, f"{case.system}: {case.way}") for case in program["own_cases"]() + program["peer_cases"]()]
    assert tuple(head) == program["COLUMNS"]
    assert sorted((fault, way) for fault, way, *_ in rows) == sorted(cases)


def test_only_a_loss_without_a_message_is_bold(program: dict[str, Any]) -> None:
    outcome = program["Outcome"]

    assert outcome("", Counter("aab"), 3).cells() == ["3", "2", "1", "1", "**nothing**"]
    assert outcome("fails: EOFError", Counter("ab"), 3).cells() == ["3", "2", "0", "1", "fails: EOFError"]
    assert outcome("", Counter("abc"), 3).cells() == ["3", "3", "0", "0", "nothing"]
    assert outcome("fails: no file", Counter(), 3).cells() == ["3", "none", "–", "–", "fails: no file"]


@pytest.mark.slow
def test_effects_of_faults_on_corpusmill_match_the_page() -> None:
    pytest.importorskip("torch")
    page_figures = {(fault, way): figures for fault, way, *figures, _ in read_page_rows()}

    command = [sys.executable, str(PROGRAM), "--only", "corpusmill: "]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)

    cases = json.loads(result.stdout.splitlines()[-1])["cases"]
    assert len(cases) == 7
    for case in cases:
        expected, found, repeated, _ = page_figures[case["fault"], case["with"]]
        assert f"{case['expected']:,}" == expected
        assert (f"{case['found']:,}", f"{case['repeated']:,}") == (
            found.replace("none", "0"),
            repeated.replace("–", "0"),
        )
