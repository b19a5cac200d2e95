"""Removal of garbage, safe at any crash and next to builds."""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from crash_points import count_steps, kill_at
from graph_system import CHAIN, FORK, SYSTEMS, Node, build_graph, write_graph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from removals import assert_whole, collect, sealed_in, states

from pipeline_assets.build import drive
from pipeline_assets.build.run import Run
from pipeline_assets.spine import durable
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import collect_chain
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import Identity, Manifest
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.staging import sibling_path

pytestmark = pytest.mark.usefixtures("_only_graphs")
GRAPHS = st.lists(st.tuples(st.sampled_from("xyz"), st.sets(st.integers(0, 4), max_size=2)), min_size=1, max_size=5)


@contextlib.contextmanager
def before_hiding(name: str, action: Callable[[], object]) -> Iterator[None]:
    """Run an action once, before the removal hides the artifact of this name."""

    def act(kind: durable.Operation, path: Path) -> None:
        if kind == "rename" and path.name.startswith(f".{name}.building."):
            durable.failpoint = None
            action()

    durable.failpoint = act
    try:
        yield
        assert durable.failpoint is None, "nothing was hidden"
    finally:
        durable.failpoint = None


@pytest.mark.parametrize("days", [-400, -2, 400])
def test_a_jump_of_the_clock_keeps_no_garbage(tmp_path: Path, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    build_graph(tmp_path, "words", FORK).unlink()
    clock = time.time

    with before_hiding("a", lambda: monkeypatch.setattr(time, "time", lambda: clock() + days * 86_400)):
        collect(tmp_path)

    assert sealed_in(tmp_path) == set()


def test_removal_restores_the_inputs_of_a_build_that_begins_during_it(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", FORK).unlink()

    def begin() -> None:
        build_graph(tmp_path, "words", {"a": ("one", ()), "new": ("five", ("a",))})

    with before_hiding("a", begin):
        assert collect(tmp_path)[-1] == "graph/words/a"

    assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/new"}
    assert_whole(tmp_path)
    assert set(states(tmp_path).values()) == {"current None"}


def test_an_artifact_that_cannot_be_removed_keeps_its_inputs(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN).unlink()

    with locked(tmp_path / "graph" / "words" / "b" / "member"):
        collect(tmp_path)
        assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/b"}

    collect(tmp_path)
    assert sealed_in(tmp_path) == set()


def test_a_recipe_that_becomes_unreadable_during_the_removal_keeps_everything(tmp_path: Path) -> None:
    recipe = build_graph(tmp_path, "words", CHAIN)
    recipe.unlink()

    with before_hiding("a", lambda: recipe.write_text("system: [")), pytest.raises(InputError) as refused:
        collect(tmp_path)

    assert refused.value.where == str(recipe)
    assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/b", "graph/words/c"}
    assert_whole(tmp_path)


@contextlib.contextmanager
def unsealed(root: Path, recipe_folder: Path) -> Iterator[Callable[[], None]]:
    """Build `graph/new/x` from `graph/words/a` without a recipe; yield its seal."""
    recipe = write_graph(recipe_folder, "new", {"x": ("five", ("words/a",))})
    [target] = SYSTEMS.read_recipe(recipe).targets()
    with open_staging_dir(root / target.folder, target.plan(root)) as staging:
        file = staging.write("word.txt", b"five")
        inputs = [{"name": entry["name"], "digest": entry["digest"]} for entry in target.inputs(root)]
        identity = Identity(target.stage, target.recipe, inputs, None, {}, {"documents": 1}, [file.content])
        manifest = Manifest(target.kind.name, "x", identity, [file.stored], {})
        yield lambda: (staging.seal(manifest), None)[1]


def test_build_sealed_in_survey_two_gets_its_inputs_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    build_graph(root, "words", CHAIN).unlink()
    walk, builds, seals = os.walk, contextlib.ExitStack(), list[Callable[[], None]]()

    def seal_and_walk(top: Path) -> object:
        if seals:
            seals.pop()()
        return walk(top)

    monkeypatch.setattr(os, "walk", seal_and_walk)
    with builds, before_hiding("a", lambda: seals.append(builds.enter_context(unsealed(root, tmp_path / "outside")))):
        collect(root)

    assert sealed_in(root) == {"graph/words/a", "graph/new/x"}
    assert_whole(root)


def test_removal_after_a_kill_restores_the_inputs_of_a_finished_build(tmp_path: Path) -> None:
    root = tmp_path / "root"
    build_graph(root, "words", {"a": ("one", ())}).unlink()
    with unsealed(root, tmp_path / "outside") as seal:
        folder = root / "graph" / "words" / "a"
        folder.rename(sibling_path(folder, "building", 2))  # by a removal that is killed
        seal()

    assert collect(root) == []

    assert sealed_in(root) == {"graph/words/a", "graph/new/x"}
    assert_whole(root)
    shutil.rmtree(root / "graph" / "new")
    folder.rename(sibling_path(folder, "building", 2))
    assert collect(root) == ["graph/words/.a.building.2"]
    assert sealed_in(root) == set()


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_at_any_step_keeps_all_needed_inputs_and_the_next_removal_finishes(stride: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    for name in ("kept", "old"):
        build_graph(whole, name, FORK)
    (whole / "recipes" / "old.yaml").unlink()
    shutil.copytree(whole / "graph" / "old" / "a", whole / "graph" / "old" / ".b.building.7")
    steps = count_steps(lambda: collect(shutil.copytree(whole, tmp_path / "counted")))

    for step in range(1, steps + 1, stride):
        root = shutil.copytree(whole, tmp_path / str(step))
        assert kill_at(step, lambda root=root: collect(root))  # type: ignore[misc]
        assert_whole(root)
        collect(root)
        assert sealed_in(root) == {f"graph/kept/{name}" for name in "abcd"}
        assert [path for path in (root / "graph" / "old").iterdir() if path.suffix != ".lock"] == []
        shutil.rmtree(root)
    assert steps > 20


def graph(drawn: list[tuple[str, set[int]]]) -> dict[str, Node]:
    names = "abcde"
    return {
        names[number]: (word, tuple(names[i] for i in sorted(inputs) if i < number))
        for number, (word, inputs) in enumerate(drawn)
    }


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(built=st.lists(GRAPHS, min_size=1, max_size=3), later=st.lists(st.none() | GRAPHS, min_size=3, max_size=3))
def test_remaining_artifacts_are_intact_with_all_inputs_and_no_state_changes(
    built: list[list[tuple[str, set[int]]]], later: list[list[tuple[str, set[int]]] | None], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for number, drawn in enumerate(built):
        build_graph(root, f"r{number}", graph(drawn)).unlink()
        if (changed := later[number]) is not None:
            write_graph(root, f"r{number}", graph(changed))
    before = states(root)

    collect(root)

    assert states(root) == before
    assert_whole(root)
    # Every remaining artifact is needed by a recipe or by an artifact that a recipe requests.
    requested = [root / folder for folder in before if (root / folder / "manifest.json").exists()]
    needed = {artifact.folder for folder in requested for artifact in collect_chain(folder, root).artifacts}
    assert {root / folder for folder in sealed_in(root)} - needed == set()
    assert collect(root) == []


def build_and_delete_recipes(root: Path, name: str, end: Event) -> None:
    """Build changing recipes of one name, and delete some of them."""
    dice = random.Random(name)
    while not end.is_set():
        path = write_graph(root, name, dice.choice([CHAIN, FORK, {"a": CHAIN["a"], "d": FORK["d"]}]))
        with contextlib.suppress(InputError, FileNotFoundError):
            for target in SYSTEMS.read_recipe(path).targets():
                drive.build(target, Run(root, RunSettings(workers=0), replace=True))
        if dice.random() < 0.5:
            path.unlink()


def collect_once(root: Path) -> None:
    """Collect garbage; ignore a recipe that vanishes while it is read."""
    try:
        collect(root)
    except UsageError as error:
        assert error.what == "recipe not found"


@pytest.mark.slow
def test_concurrent_builds_and_killed_removals_keep_all_needed_inputs(tmp_path: Path) -> None:
    processes, dice, deadline = multiprocessing.get_context("fork"), random.Random(1), time.monotonic() + 8
    end = processes.Event()
    builders = [
        processes.Process(target=build_and_delete_recipes, args=(tmp_path, name, end), daemon=True) for name in "xy"
    ]
    for builder in builders:
        builder.start()
    exit_codes = set[int | None]()
    while time.monotonic() < deadline or len(exit_codes) < 2:
        removals = [processes.Process(target=collect_once, args=(tmp_path,)) for _ in range(2)]
        for removal in removals:
            removal.start()
        if dice.random() < 0.5:
            time.sleep(dice.uniform(0, 0.1))
            removals[0].kill()
        for removal in removals:
            removal.join()
            exit_codes.add(removal.exitcode)
    end.set()
    for builder in builders:
        builder.join()

    assert exit_codes == {0, -signal.SIGKILL}
    assert_whole(tmp_path)
    for name in ("x", "y"):
        build_graph(tmp_path, name, CHAIN, replace=True)
    collect(tmp_path)
    assert sealed_in(tmp_path) == {f"graph/{name}/{node}" for name in "xy" for node in "abc"}
