"""The memory of the services does not grow under constant requests of the UI."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services import skip_without_postgres

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MINUTES = "CORPUSMILL_TEST_MINUTES"


@pytest.fixture
def program() -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "server.py"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("samples", "growth"),
    [
        ([100.0] * 30 + [160.0] * 60, 0.0),  # caches filled in the first third do not count
        ([100.0] * 60 + [150.0] * 30, 50.0),
        ([100.0 + sample for sample in range(90)], 30.0),
        ([100.0] * 75 + [400.0] + [100.0] * 14, 0.0),  # nor does a peak
    ],
)
def test_growth_is_the_last_third_over_the_second(program: dict[str, Any], samples: list[float], growth: float) -> None:
    assert program["growth_mib"](samples) == growth


@pytest.mark.proof
def test_no_service_grows_in_an_hour_of_ui_requests() -> None:
    skip_without_postgres()
    command = [sys.executable, BENCHMARKS / "server.py", "--minutes", os.environ.get(MINUTES, "60")]

    result = subprocess.run(command, capture_output=True, text=True)

    assert result.returncode == 0, result.stdout + result.stderr
