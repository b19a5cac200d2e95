"""The page docs/evidence.md has the figures of matrices, machine and commit."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
PROGRAM = PROJECT / "benchmarks" / "evidence.py"
RESULT = {
    "matrix": "flips",
    "command": "python benchmarks/flips.py --flips 1000",
    "commit": "abc1234567",
    "date": "2026-01-02",
    "machine": "a machine, 2 cores",
    "seconds": 130,
    "cases": 1003,
    "failures": 2,
    "rows": [{"role": "source | hub", "flips": 1003, "correct digest": 400}],
}


@pytest.fixture
def program() -> dict[str, Any]:
    return runpy.run_path(str(PROGRAM))


def write_page(folder: Path) -> "subprocess.CompletedProcess[str]":
    places = {"--results": folder, "--kept": folder / "kept", "--page": folder / "page.md"}
    command = [sys.executable, str(PROGRAM), *(str(part) for place in places.items() for part in place)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_result_has_its_row_table_and_machine_and_others_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "flips.json").write_text(json.dumps(RESULT))

    result = write_page(tmp_path)

    assert result.returncode == 0, result.stderr
    page = (tmp_path / "page.md").read_text()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[3:] for line in page.splitlines() if line[:1] == "|"}
    assert rows["[Flipped bits](#flipped-bits)"] == ["1,003", "2", "abc1234567 |"]
    assert rows["Crash points"] == ["not run", "–", "– |"]
    assert page.endswith(
        "## Flipped bits\n\n"
        "`python benchmarks/flips.py --flips 1000` at abc1234567, 2026-01-02, 2 min, on a machine, 2 cores.\n\n"
        "| role | flips | correct digest |\n|---|---|---|\n| source \\| hub | 1,003 | 400 |\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no results; run one of: python benchmarks/crashes.py"),
        ("{", "flips.json: not JSON"),
        ("[]", "flips.json: not a result of a matrix"),
        (json.dumps(RESULT | {"matrix": "crashes"}), "flips.json: not a result of a matrix"),
    ],
    ids=["none", "cut", "list", "other name"],
)
def test_invalid_result_is_one_line_and_writes_no_page(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "flips.json").write_text(content)

    result = write_page(tmp_path)

    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert message in result.stderr
    assert not (tmp_path / "page.md").exists()


def test_result_of_a_matrix_is_read_by_the_page(program: dict[str, Any], tmp_path: Path) -> None:
    program["write_result"].__globals__["RESULTS"] = tmp_path

    path = program["write_result"]("faults", cases=7, failures=1, rows=[{"read": "pin", "same": 7}], seconds=3.4)

    [(name, result)] = program["read_results"](tmp_path).items()
    assert (path, name, result["cases"], result["failures"]) == (tmp_path / "faults.json", "faults", 7, 1)
    assert "| pin | 7 |" in program["page"]({name: result})


def test_new_result_replaces_only_the_figures_of_its_matrix(tmp_path: Path) -> None:
    for name in ("flips", "forged"):
        (tmp_path / f"{name}.json").write_text(json.dumps(RESULT | {"matrix": name}))
    assert write_page(tmp_path).returncode == 0
    (tmp_path / "flips.json").write_text(json.dumps(RESULT | {"cases": 5000}))

    result = write_page(tmp_path)

    assert result.returncode == 0, result.stderr
    page = (tmp_path / "page.md").read_text()
    assert "| 5,000 | 2 | abc1234567 |" in page
    assert "| 1,003 | 2 | abc1234567 |" in page
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["flips.json", "forged.json"]


def test_page_of_the_project_shows_the_stored_results(program: dict[str, Any]) -> None:
    page = (PROJECT / "docs" / "evidence.md").read_text(encoding="utf-8")

    assert page == program["page"](program["read_results"](PROJECT / "benchmarks" / "evidence"))
