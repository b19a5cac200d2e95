"""Plan memory: a few arrays of 4 bytes per draw, 10**8 documents in 2 GiB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
DOCUMENTS = 10_000_000  # each array is above 32 MiB, so that malloc returns it to the system when it is freed


def measure_peak_mib(folder: Path, strategy: str, documents: int) -> float:
    """Return the peak memory of a process that plans synthetic documents."""
    folder.mkdir()
    command = [sys.executable, PROJECT / "benchmarks" / "plan_flow.py", strategy, folder, str(documents)]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=True
    )
    _, peak = json.loads(result.stdout)
    return float(peak)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["sequential", "best_fit"])
def test_a_plan_takes_at_most_twenty_bytes_per_document(tmp_path: Path, strategy: str) -> None:
    few, many = (measure_peak_mib(tmp_path / str(count), strategy, count) for count in (DOCUMENTS // 40, DOCUMENTS))

    assert (many - few) * 2**20 <= 20 * DOCUMENTS
