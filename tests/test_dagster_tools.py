"""Dagster's own commands work on this project as in docs/operations.md."""

import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from command_results import DOCS, Result, code_blocks
from free_ports import free_port

from pipeline_assets.instance import instance_home

PROJECT = Path(__file__).parents[1]
LOAD_S = 300  # minutes on a loaded machine; ten seconds on an idle one


def documented_commands() -> list[list[str]]:
    [block] = [block for block in code_blocks(DOCS / "operations.md") if "dg check defs" in block]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def environment_for(root: Path) -> dict[str, str]:
    """Return variables with the parent of the data root as `~`, and the root's own runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "CORPUSMILL_"))}
    return {**kept, "HOME": str(root.parent), "CORPUSMILL_DATA": str(root), "DAGSTER_HOME": str(instance_home(root))}


def run(words: list[str], root: Path) -> Result:
    program = Path(sys.executable).parent / Path(words[0]).name
    command = [str(program), *(word.replace("~", str(root.parent)) for word in words[1:])]
    return subprocess.run(command, cwd=PROJECT, env=environment_for(root), capture_output=True, text=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "my_folder"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(f'{{"text": "Row {row} of words."}}\n' for row in range(20)))
    return tmp_path / "data"


@pytest.mark.slow
def test_documented_commands_build_every_asset_of_a_recipe(root: Path) -> None:
    commands = [words for words in documented_commands() if words[1] != "dev"]
    assert [" ".join(words[:3]).removeprefix(".venv/bin/") for words in commands] == [
        "corpusmill init notes",
        "dg check defs",
        "dg list defs",
        "dg launch --assets",
        "dagster asset materialize",
        "dagster definitions validate",
    ]

    results = []
    for words in commands:
        results.append(run(words, root))
        assert results[-1].returncode == 0, f"{words}\n{results[-1].stdout}\n{results[-1].stderr}"

    assert "stage_a/notes/report" in results[2].stdout
    sealed = {path.parent.relative_to(root / "stage_a/notes").as_posix() for path in root.rglob("manifest.json")}
    assert sealed == {
        *(f"{stage}/my_folder" for stage in ("raw", "normalized", "filtered")),
        *(f"{stage}/notes" for stage in ("deduplicated", "packed", "report")),
    }


@pytest.mark.slow
def test_selection_without_a_match_builds_nothing(root: Path) -> None:
    selection = 'key:"stage_a/misspelled/packed"+'
    words = ["dagster", "asset", "materialize", "-m", "pipeline_assets.definitions", "--select", selection]

    result = run(words, root)

    assert result.returncode == 1
    assert "no asset is selected, so Dagster would materialize all" in result.stderr
    assert not list(root.rglob("manifest.json")) and not (root / "hub_cache").exists()


@pytest.mark.slow
def test_dagster_dev_serves_the_ui_as_documented(root: Path) -> None:
    [words] = [words for words in documented_commands() if words[1] == "dev"]
    port = str(free_port())
    words = [str(Path(sys.executable).parent / "dagster"), *words[1:-1], port]
    address = f"http://127.0.0.1:{port}/server_info"

    with subprocess.Popen(words, cwd=PROJECT, env=environment_for(root), stderr=subprocess.DEVNULL) as server:
        try:
            answer = wait_for(address)
        finally:
            server.terminate()

    assert '"dagster_version"' in answer


def wait_for(address: str) -> str:
    deadline = time.monotonic() + LOAD_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=LOAD_S) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            assert time.monotonic() < deadline, f"no answer from {address} in {LOAD_S} s"
            time.sleep(0.2)
