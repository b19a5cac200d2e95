"""Runs of one recipe on one data root at the same time.

One of them builds. The others end in one clear line, or wait.
"""

import subprocess
from pathlib import Path

import pytest
from command_results import Corpusmill, RecipeIn, Started

from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.lock import locked

BUSY = "is building this"


def finished(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    _, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr
    return process.returncode, [line for line in stderr.splitlines() if line.startswith("corpusmill: ")]


@pytest.mark.parametrize("attempt", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_of_three_runs_at_once_one_builds_and_two_name_the_builder(
    started: Started, corpusmill: Corpusmill, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path, attempt: int
) -> None:
    words = ("run", recipe_in(), "--data", tmp_path / "data")
    env = {"HF_ENDPOINT": demo_hub.endpoint}

    results = sorted(finished(process) for process in [started(*words, env=env) for _ in range(3)])

    assert results[0] == (0, [])
    for status, lines in results[1:]:
        # One that started late finds everything built.
        assert status == 0 or (len(lines) == 1 and BUSY in lines[0])
    again = corpusmill(*words, env=env)
    assert again.returncode == 0, again.stderr
    assert not [path for path in (tmp_path / "data").rglob("*") if path.name.endswith(".tmp")]


def test_runs_that_wait_all_end_well(
    started: Started, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path
) -> None:
    words = ("run", recipe_in(), "--data", tmp_path / "data", "--wait")
    env = {"HF_ENDPOINT": demo_hub.endpoint}

    results = [finished(process) for process in [started(*words, env=env) for _ in range(3)]]

    assert results == [(0, [])] * 3


def test_a_run_waits_for_a_busy_artifact_and_then_goes_on(
    started: Started, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path
) -> None:
    target = tmp_path / "data" / "megatron" / "healing_text_v1" / "train"
    words = ("run", recipe_in(), "--data", tmp_path / "data", "--wait")
    with locked(target):
        process = started(*words, env={"HF_ENDPOINT": demo_hub.endpoint})
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting: " in line:
                break
        assert str(target) in line and BUSY in line
        assert process.poll() is None

    assert finished(process) == (0, [])
    assert (target / "manifest.json").is_file()
