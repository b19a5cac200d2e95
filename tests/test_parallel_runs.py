"""Runs of one recipe on one data root at the same time.

One of them builds, and the others end in one clear line, or wait. With `--join` they share the artifacts.
"""

import itertools
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from command_results import Corpusmill, RecipeIn, Started
from paused_runs import find, pause_at, wait_for

from pipeline_assets.commands.admin import init
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lock import locked

BUSY = "is building this"
SEALED = "*/[!.]*/manifest.json"


def wait_for_exit(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    _, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr
    return process.returncode, [line for line in stderr.splitlines() if line.startswith("corpusmill: ")]


@pytest.mark.parametrize("attempt", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_one_of_three_concurrent_runs_builds_and_two_name_the_builder(
    started: Started, corpusmill: Corpusmill, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path, attempt: int
) -> None:
    args = ("run", recipe_in(), "--data", tmp_path / "data")
    env = {"HF_ENDPOINT": demo_hub.endpoint}

    results = sorted(wait_for_exit(process) for process in [started(*args, env=env) for _ in range(3)])

    assert results[0] == (0, [])
    for status, lines in results[1:]:
        # A run that started late finds everything built.
        assert status == 0 or (len(lines) == 1 and BUSY in lines[0])
    rerun = corpusmill(*args, env=env)
    assert rerun.returncode == 0, rerun.stderr
    assert not [path for path in (tmp_path / "data").rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.slow
def test_all_waiting_runs_succeed(started: Started, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path) -> None:
    args = ("run", recipe_in(), "--data", tmp_path / "data", "--wait")
    env = {"HF_ENDPOINT": demo_hub.endpoint}

    results = [wait_for_exit(process) for process in [started(*args, env=env) for _ in range(3)]]

    assert results == [(0, [])] * 3


@pytest.mark.slow
def test_a_run_waits_for_a_busy_artifact_and_then_finishes(
    started: Started, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path
) -> None:
    target = tmp_path / "data" / "megatron" / "healing_text_v1" / "train"
    args = ("run", recipe_in(), "--data", tmp_path / "data", "--wait")
    with locked(target):
        process = started(*args, env={"HF_ENDPOINT": demo_hub.endpoint})
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting: " in line:
                break
        assert str(target) in line and BUSY in line
        assert process.poll() is None

    assert wait_for_exit(process) == (0, [])
    assert (target / "manifest.json").is_file()


def test_a_joined_run_counts_own_and_other_artifacts(corpusmill: Corpusmill, demo_root: Path) -> None:
    result = corpusmill("run", "healing_text_v1", "--data", demo_root, "--join")

    assert result.returncode == 0
    assert result.stderr.endswith("5 artifacts: this process built 0, other processes 0, and 5 existed before\n")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["current"] * 5


@pytest.mark.slow
def test_joined_runs_finish_the_work_of_a_killed_one(started: Started, corpusmill: Corpusmill, tmp_path: Path) -> None:
    sources = [f"s{number}" for number in range(12)]
    for root in ("data", "alone"):
        write_sources(tmp_path / root, sources)
    args, out = ("run", "many", "--data", tmp_path / "data", "--join", "--workers", 0), tmp_path / "data/stage_a/many"
    victim = started(*args, env=pause_at("/.receipts/normalize/", tmp_path / "first"))
    wait_for(victim, out, "normalized/[!.]*/manifest.json")
    wait_for(victim, out, "normalized/.*.building.*/.receipts/normalize/.*.tmp")  # it keeps its lock until its death
    survivors = [started(*args, env=pause_at("/manifest.json", until=tmp_path / "go")) for _ in range(2)]
    for process in survivors:
        wait_for(process, out, f"*/*/.manifest.json.*.{process.pid}.*.tmp")  # it has an artifact to seal
    sealed = len(find(out, SEALED))
    (tmp_path / "go").touch()
    wait_for(survivors[0], out, SEALED, sealed + 1)
    os.killpg(victim.pid, signal.SIGKILL)

    results = [process.communicate(timeout=300)[1] for process in survivors]

    assert [process.returncode for process in survivors] == [0, 0], results
    last = re.compile(r"39 artifacts: this process built (\d+), other processes (\d+), and (\d+) existed before\n\Z")
    counts = [[int(count) for count in match.groups()] for match in map(last.search, results) if match]
    assert [sum(own) for own in counts] == [39, 39]
    assert all(built > 0 for built, _, _ in counts)
    assert sum(built for built, _, _ in counts) < 39  # the killed run sealed at least one artifact
    alone = corpusmill("run", "many", "--data", tmp_path / "alone", "--workers", 2)
    assert alone.returncode == 0, alone.stderr
    assert read_digests(tmp_path / "data") == read_digests(tmp_path / "alone")
    verified = corpusmill("verify", tmp_path / "data" / "stage_a" / "many" / "report" / "many", "--upstream")
    assert verified.returncode == 0, verified.stderr


def write_sources(root: Path, sources: list[str]) -> None:
    """Write twelve sources of unlike words that are deduplicated and packed together."""
    vocabulary = ["".join(letters) for letters in itertools.product("bdfgkl", "aeiou", "mnprst")]
    sections = []
    for number, source in enumerate(sources):
        path = root / "sources" / source / "pages.jsonl"
        path.parent.mkdir(parents=True)
        texts = (" ".join(vocabulary[(number + page * step) % 180] for step in range(300)) for page in range(1, 300))
        path.write_text(
            "".join(json.dumps({"id": f"{source}-{page}", "text": text}) + "\n" for page, text in enumerate(texts))
        )
        folder = {"path": str(path.parent.relative_to(root)), "files": ["*.jsonl"]}
        sections.append({"kind": "local", "source": source, **folder, "domain": "web", "license_tag": "cc0-1.0"})
    recipe = {"system": "stage_a", "name": "many", "sources": sections, "dedup": {}, "pack": {"seq_len": 512}}
    (root / "recipes").mkdir()
    (root / "recipes" / "many.yaml").write_text(json.dumps(recipe))


def read_digests(root: Path) -> dict[str, str]:
    paths = (root / "stage_a").rglob("manifest.json")
    return {str(path.relative_to(root)): json.loads(path.read_text())["digest"] for path in paths}


def test_init_replaces_no_recipe_written_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, path = tmp_path / "notes", tmp_path / "data/recipes/mine.yaml"
    notes.mkdir()
    (notes / "note.txt").write_text("A note about the garden.\n")

    def write_recipe(operation: durable.Operation, folder: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# of another process\n")

    monkeypatch.setattr(durable, "failpoint", write_recipe)
    with pytest.raises(UsageError, match="the recipe exists"):
        init("mine", [str(notes)], tmp_path / "data")

    assert path.read_text() == "# of another process\n"
