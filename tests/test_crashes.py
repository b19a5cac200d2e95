"""The demo's builds and the command itself, killed and stopped: after a restart the content of an undisturbed run.

kill -9 at every step of everything, on tiny shards, is in crashes/test_crash_matrix.py.
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
from crash_points import killed_at, steps_of
from held_runs import PATIENCE_S, hold_at, wait_for

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.spine.artifact import Damage, open_artifact, verify
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import PLAN_FILE, leftover_path
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
    """Builds the healing set below a root, without Dagster; the digests of its artifacts.

    The hub's bytes are in the cache that the demo filled, so that no test needs a server.
    """

    def built(root: Path, engine: RunSettings) -> list[str]:
        run = Run(root, engine, HubFiles(demo_root / "hub_cache", endpoint="http://127.0.0.1:9"))
        artifacts = [target.kind.build(target, run) for target in recipe.targets()]
        return [artifact.manifest.digest for artifact in artifacts]

    return built


@pytest.fixture(scope="module")
def undisturbed(demo_root: Path, recipe: HealingRecipe) -> list[str]:
    """The digests that the demo came to."""
    return [open_artifact(demo_root / target.folder).manifest.digest for target in recipe.targets()]


@pytest.fixture(scope="module")
def steps(build: Build, tmp_path_factory: pytest.TempPathFactory) -> int:
    return len(steps_of(lambda: build(tmp_path_factory.mktemp("counted"), INLINE)))


def damage_below(root: Path, recipe: HealingRecipe) -> list[Damage]:
    return [
        item
        for target in recipe.targets()
        for item in verify(open_artifact(root / target.folder), SYSTEMS.label_names)
        if isinstance(item, Damage)
    ]


@pytest.mark.parametrize(
    ("engine", "seed"),
    [
        pytest.param(engine, seed, marks=[] if seed in some else pytest.mark.slow)
        for engine, seeds, some in (
            (INLINE, range(8), range(4)),
            (FORK, range(8, 17), range(8, 12)),
            (SPAWN, range(17, 20), (18,)),
        )
        for seed in seeds
    ],
    ids=lambda value: f"{value.start_method}-{value.workers}" if isinstance(value, RunSettings) else str(value),
)
def test_a_run_killed_at_a_seeded_step_is_resumed_to_the_same_digests(
    engine: RunSettings,
    seed: int,
    build: Build,
    steps: int,
    recipe: HealingRecipe,
    undisturbed: list[str],
    tmp_path: Path,
) -> None:
    # Spawned workers don't inherit the failpoint, so that there the parent's own steps, a third of all, are counted.
    step = random.Random(seed).randrange(1, steps if engine is not SPAWN else steps // 4)

    killed_before = killed_at(step, lambda: build(tmp_path, engine))
    digests = build(tmp_path, INLINE)

    assert killed_before is not None
    assert digests == undisturbed
    assert damage_below(tmp_path, recipe) == []
    names = [path.name for path in tmp_path.rglob("*")]
    assert [name for name in names if ".building." in name or name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    "engine", [pytest.param(ONE_SPAWNED, marks=pytest.mark.slow), FORK], ids=["one-spawned", "two-forked"]
)
def test_other_workers_come_to_the_same_digests(
    engine: RunSettings, build: Build, undisturbed: list[str], tmp_path: Path
) -> None:
    assert build(tmp_path, engine) == undisturbed


def test_a_run_killed_again_and_again_still_gets_there(
    build: Build, steps: int, recipe: HealingRecipe, undisturbed: list[str], tmp_path: Path
) -> None:
    seeds = random.Random(99)

    kills = [killed_at(seeds.randrange(1, steps // 2), lambda: build(tmp_path, INLINE)) for _ in range(6)]

    assert len(kills) - kills.count(None) >= 2
    assert build(tmp_path, INLINE) == undisturbed
    assert damage_below(tmp_path, recipe) == []


def test_a_resumed_run_does_not_do_finished_shards_again(build: Build, steps: int, tmp_path: Path) -> None:
    killed_at(steps // 3, lambda: build(tmp_path, INLINE))

    resumed = len(steps_of(lambda: build(tmp_path, INLINE)))

    assert resumed < steps * 0.85


def test_a_second_run_rewrites_nothing(build: Build, undisturbed: list[str], tmp_path: Path) -> None:
    build(tmp_path, INLINE)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}

    assert steps_of(lambda: build(tmp_path, FORK)) == []

    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before


@pytest.fixture
def running_demo(tmp_path: Path, demo_root: Path, recipe: HealingRecipe) -> Path:
    """A data root with the demo's hub and nothing built. A snapshot was begun, so that small ones have workers too."""
    shutil.copytree(demo_root / HUB_FOLDER, tmp_path / "data" / HUB_FOLDER)
    begun = leftover_path(tmp_path / "data" / recipe.targets()[0].folder, "building", 1)
    begun.mkdir(parents=True)
    (begun / PLAN_FILE).write_text("{}")
    return tmp_path / "data"


def children_of(pid: int) -> list[str]:
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()


def leftover_processes(pids: list[str]) -> list[str]:
    """Those that still run a minute later."""
    deadline = time.monotonic() + PATIENCE_S
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


def test_the_command_killed_in_the_middle_leaves_no_process_and_goes_on(
    running_demo: Path,
    corpusmill: Corpusmill,
    started: Started,
    tmp_path: Path,
    recipe: HealingRecipe,
    undisturbed: list[str],
) -> None:
    words = ("demo", "--data", str(running_demo), "--only", "healing")
    process = started(*words, env=hold_at("/.receipts/convert/", tmp_path / "first"))
    wait_for(process, running_demo, CONVERTED)
    workers = children_of(process.pid)
    process.kill()
    process.communicate()
    result = corpusmill(*words)

    assert workers
    assert leftover_processes(workers) == []
    assert result.returncode == 0, result.stderr
    assert [open_artifact(running_demo / target.folder).manifest.digest for target in recipe.targets()] == undisturbed


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("demo", signal.SIGINT),
        ("run healing_text_v1", signal.SIGINT),
        ("run healing_text_v1", signal.SIGHUP),
        pytest.param("run healing_text_v1", signal.SIGTERM, marks=pytest.mark.slow),
    ],
    ids=["demo, Ctrl-C", "Ctrl-C", "SIGHUP", "SIGTERM"],
)
def test_a_stopped_command_says_how_to_go_on_and_leaves_no_process(
    words: str,
    number: signal.Signals,
    running_demo: Path,
    demo_root: Path,
    started: Started,
    tmp_path: Path,
) -> None:
    shutil.copytree(demo_root / "recipes", running_demo / "recipes")
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the tests themselves ignore it
    with LoopbackHub(running_demo / HUB_FOLDER) as hub:
        env = {"HF_ENDPOINT": hub.endpoint, **hold_at("/.receipts/convert/", tmp_path / "first")}
        process = started(*words.split(), "--data", running_demo, env=env)
        signal.signal(signal.SIGHUP, ignored)
        wait_for(process, running_demo, CONVERTED)
        workers = children_of(process.pid)
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)

    assert workers
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.endswith(f"stopped\nto continue: corpusmill {words} --data {running_demo}\n")
    assert said.count("to continue: ") == 1
    assert leftover_processes(workers) == []


def test_a_ctrl_c_that_python_ignores_in_a_callback_still_stops_the_command() -> None:
    program = """
import os, signal, time, weakref
from pipeline_assets.commands.terminal import resume_hint

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
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert "stopped\nto continue: corpusmill run x\n" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_stop_while_a_class_is_created_is_not_taken_for_an_error_of_an_import(number: signal.Signals) -> None:
    program = f"""
import os, signal
from pipeline_assets.commands.terminal import resume_hint

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
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert ended.stderr.startswith("stopped\nto continue: corpusmill run x\n")


def test_a_forked_process_that_is_told_to_stop_ends_by_the_signal() -> None:
    program = """
import os, signal
from pipeline_assets.commands.terminal import resume_hint

with resume_hint("corpusmill run x"):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert os.WTERMSIG(int(ended.stdout)) == signal.SIGTERM
