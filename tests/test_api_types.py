"""The types of the Python API, as a type checker reads them."""

import subprocess
import sys
from pathlib import Path

import pytest

API = Path(__file__).parents[1] / "pipeline_assets" / "api"


@pytest.mark.slow
def test_a_type_checker_finds_misspelled_names(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import corpusmill\ncorpusmill.open_folder('x')\ncorpusmill.open_foldr('x')\n")
    options = ["--explicit-package-bases", "--follow-imports=skip", program.name, API / "corpusmill"]

    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options], cwd=tmp_path, env={"MYPYPATH": API}, capture_output=True, text=True
    )

    error = 'Module has no attribute "open_foldr"; maybe "open_folder"?  [attr-defined]'
    errors = [line for line in result.stdout.splitlines() if line.startswith("program.py:")]
    assert errors == [f"program.py:3: error: {error}"]
