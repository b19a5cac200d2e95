"""Killed and stopped builds of the demo are resumed to equal content.

crashes/test_crash_matrix.py kills builds of tiny shards at every step.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_results import Corpusmill, Started
from crash_points import kill_at, list_steps
from paused_runs import PATIENCE_S, pause_at, wait_for

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.spine.artifact import Damage, open_artifact, verify
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import PLAN_FILE, sibling_path
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import SYSTEMS

CONVERTED = "corpora/*/*.building.*/.receipts/convert/*.json"
Build = Callable[[Path, RunSettings], list[str]]
INLINE = RunSettings()
FORK = RunSettings(2)
SPAWN = RunSettings(2, "spawn")
ONE_SPAWNED = RunSettings(1, "spawn")


@pytest.fixture(scope="module")
def recipe(demo_root: Path) -> HealingRecipe:
    return SYSTEMS.read_recipe(demo_root / "recipes" / "healing_text_v1.yaml")


@pytest.fixture(scope="module")
def build(demo_root: Path, recipe: HealingRecipe) -> Build:
    """Return a function that builds the healing set and returns its digests.

    It needs neither Dagster nor a server, because it reads the hub cache of the demo.
    """

    def build_all(root: Path, engine: RunSettings) -> list[str]:
        run = Run(root, engine, HubFiles(demo_root / "hub_cache", endpoint="http://127.0.0.1:9"))
        artifacts = [target.kind.build(target, run) for target in recipe.targets()]
        return [artifact.manifest.digest for artifact in artifacts]

    return build_all


@pytest.fixture(scope="module")
def undisturbed(demo_root: Path, recipe: HealingRecipe) -> list[str]:
    """Return the digests of the demo."""
    return [open_artifact(demo_root / target.folder).manifest.digest for target in recipe.targets()]


@pytest.fixture(scope="module")
def steps(build: Build, tmp_path_factory: pytest.TempPathFactory) -> int:
    return len(list_steps(lambda: build(tmp_path_factory.mktemp("counted"), INLINE)))


def find_damage(root: Path, recipe: HealingRecipe) -> list[Damage]:
    return [
        item
        for target in recipe.targets()
        for item in verify(open_artifact(root / target.folder), SYSTEMS.label_names)
        if isinstance(item, Damage)
    ]


@pytest.mark.parametrize(
    ("engine", "seed"),
    [
        pytest.param(engine, seed, marks=[] if seed in fast_seeds else pytest.mark.slow)
        for engine, seeds, fast_seeds in (
            (INLINE, range(8), range(2)),
            (FORK, range(8, 17), range(8, 10)),
            (SPAWN, range(17, 20), (18,)),
        )
        for seed in seeds
    ],
    ids=lambda value: f"{value.start_method}-{value.workers}" if isinstance(value, RunSettings) else str(value),
)
def test_run_killed_at_a_seeded_step_is_resumed_to_the_same_digests(
    engine: RunSettings,
    seed: int,
    build: Build,
    steps: int,
    recipe: HealingRecipe,
    undisturbed: list[str],
    tmp_path: Path,
) -> None:
    # Spawned workers do not inherit the failpoint, so only the steps of the parent count, a third of all.
    step = random.Random(seed).randrange(1, steps if engine is not SPAWN else steps // 4)

    killed_before = kill_at(step, lambda: build(tmp_path, engine))
    digests = build(tmp_path, INLINE)

    assert killed_before is not None
    assert digests == undisturbed
    assert find_damage(tmp_path, recipe) == []
    names = [path.name for path in tmp_path.rglob("*")]
    assert [name for name in names if ".building." in name or name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    "engine", [pytest.param(ONE_SPAWNED, marks=pytest.mark.slow), FORK], ids=["one-spawned", "two-forked"]
)
def test_other_workers_build_equal_digests(
    engine: RunSettings, build: Build, undisturbed: list[str], tmp_path: Path
) -> None:
    assert build(tmp_path, engine) == undisturbed


def test_run_killed_repeatedly_is_completed(
    build: Build, steps: int, recipe: HealingRecipe, undisturbed: list[str], tmp_path: Path
) -> None:
    seeds = random.Random(99)

    kills = [kill_at(seeds.randrange(1, steps // 2), lambda: build(tmp_path, INLINE)) for _ in range(6)]

    assert len(kills) - kills.count(None) >= 2
    assert build(tmp_path, INLINE) == undisturbed
    assert find_damage(tmp_path, recipe) == []


def test_resumed_run_does_not_rebuild_finished_shards(build: Build, steps: int, tmp_path: Path) -> None:
    kill_at(steps // 3, lambda: build(tmp_path, INLINE))

    resumed = len(list_steps(lambda: build(tmp_path, INLINE)))

    assert resumed < steps * 0.85


def test_second_run_rewrites_nothing(build: Build, undisturbed: list[str], tmp_path: Path) -> None:
    build(tmp_path, INLINE)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}

    assert list_steps(lambda: build(tmp_path, FORK)) == []

    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before


@pytest.fixture
def running_demo(tmp_path: Path, demo_root: Path, recipe: HealingRecipe) -> Path:
    """Copy the demo's hub next to a partial snapshot, after which builds use workers."""
    shutil.copytree(demo_root / HUB_FOLDER, tmp_path / "data" / HUB_FOLDER)
    staging = sibling_path(tmp_path / "data" / recipe.targets()[0].folder, "building", 1)
    staging.mkdir(parents=True)
    (staging / PLAN_FILE).write_text("{}")
    return tmp_path / "data"


def child_pids(pid: int) -> list[str]:
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()


def wait_for_exit(pids: list[str]) -> list[str]:
    """Wait a minute for processes to end and return the running ones."""
    deadline = time.monotonic() + PATIENCE_S
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


def test_killed_command_leaves_no_process_and_is_resumed(
    running_demo: Path,
    corpusmill: Corpusmill,
    started: Started,
    tmp_path: Path,
    recipe: HealingRecipe,
    undisturbed: list[str],
) -> None:
    words = ("demo", "--data", str(running_demo), "--only", "healing")
    process = started(*words, env=pause_at("/.receipts/convert/", tmp_path / "first"))
    wait_for(process, running_demo, CONVERTED)
    workers = child_pids(process.pid)
    process.kill()
    process.communicate()
    result = corpusmill(*words)

    assert workers
    assert wait_for_exit(workers) == []
    assert result.returncode == 0, result.stderr
    assert [open_artifact(running_demo / target.folder).manifest.digest for target in recipe.targets()] == undisturbed


@pytest.mark.usefixtures("_default_hangup")
@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param("demo", signal.SIGINT, marks=pytest.mark.slow),
        ("run healing_text_v1", signal.SIGINT),
        pytest.param("run healing_text_v1", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("run healing_text_v1", signal.SIGTERM, marks=pytest.mark.slow),
    ],
    ids=["demo, Ctrl-C", "Ctrl-C", "SIGHUP", "SIGTERM"],
)
def test_stopped_command_prints_how_to_continue_and_leaves_no_process(
    words: str,
    number: signal.Signals,
    running_demo: Path,
    demo_root: Path,
    started: Started,
    tmp_path: Path,
) -> None:
    shutil.copytree(demo_root / "recipes", running_demo / "recipes")
    with LoopbackHub(running_demo / HUB_FOLDER) as hub:
        env = {"HF_ENDPOINT": hub.endpoint, **pause_at("/.receipts/convert/", tmp_path / "first")}
        process = started(*words.split(), "--data", running_demo, env=env)
        wait_for(process, running_demo, CONVERTED)
        workers = child_pids(process.pid)
        os.killpg(process.pid, number)
        _, stderr = process.communicate(timeout=60)

    assert workers
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.endswith(f"stopped\nto continue: corpusmill {words} --data {running_demo}\n")
    assert stderr.count("to continue: ") == 1
    assert wait_for_exit(workers) == []


def run_program(code: str) -> subprocess.CompletedProcess[str]:
    """Run code below imports of signals and of the hint that stopped commands print."""
    program = f"import os, signal, time, weakref\nfrom pipeline_assets.commands.terminal import resume_hint\n{code}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_ctrl_c_that_python_ignores_in_a_callback_stops_the_command() -> None:
    result = run_program("""
class Import:
    pass

def interrupt(reference):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)

with resume_hint("corpusmill run x"):
    module = Import()
    reference = weakref.ref(module, interrupt)
    del module
    time.sleep(600)
""")

    assert "stopped\nto continue: corpusmill run x\n" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_stop_during_class_creation_is_not_caught_as_an_exception(number: signal.Signals) -> None:
    result = run_program(f"""
class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), {number})

with resume_hint("corpusmill run x"):
    try:
        class Imported:
            field = Field()
    except Exception:
        pass  # as for a file that a parser cannot read
    signal.pause()
""")

    assert result.stderr.startswith("stopped\nto continue: corpusmill run x\n")


def test_stop_while_pydantic_builds_a_model_is_not_an_error_of_the_schema() -> None:
    result = run_program("""
from typing import Annotated
from pydantic import BaseModel
from pydantic_core import core_schema

class Choice:
    is_stopped = False

    def __hash__(self):
        if not Choice.is_stopped:
            Choice.is_stopped = True
            os.kill(os.getpid(), signal.SIGINT)
        return 1

class Marker:
    def __get_pydantic_core_schema__(self, source, handler):
        return core_schema.literal_schema([Choice()])

with resume_hint("corpusmill run x"):
    class Recipe(BaseModel):
        choice: Annotated[object, Marker()]
    signal.pause()
""")

    assert result.stderr.startswith("stopped\nto continue: corpusmill run x\n")


def test_signalled_forked_process_ends_by_the_signal() -> None:
    result = run_program("""
with resume_hint("corpusmill run x"):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
""")

    assert os.WTERMSIG(int(result.stdout)) == signal.SIGTERM
