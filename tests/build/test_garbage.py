"""Removal of garbage: only needless files, safe at any crash and next to builds."""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from crash_points import count_steps, killed_at
from graph_system import SYSTEMS, Node, build_graph, write_graph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_assets.build import drive, recipe_paths
from pipeline_assets.build.garbage import Survey
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.run import Run
from pipeline_assets.spine import durable
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import AREAS, Lineage, collect_chain
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import Identity
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.provenance import Stopwatch
from pipeline_assets.spine.staging import leftover_path
from pipeline_assets.trust.result import Scope
from pipeline_assets.trust.verify import read_and_check, scan_chain

CHAIN: dict[str, Node] = {"a": ("one", ()), "b": ("two", ("a",)), "c": ("three", ("b",))}
FORK: dict[str, Node] = CHAIN | {"d": ("four", ("a",))}


@pytest.fixture(autouse=True)
def _only_graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Shipped recipes are of systems that this test does not have."""
    (tmp_path / "no recipes").mkdir()
    monkeypatch.setattr("pipeline_assets.build.recipe_paths.PROJECT_RECIPES", tmp_path / "no recipes")
    yield
    AREAS.remove("graph")
    AREAS.append("graph")


def collect(root: Path, **options: object) -> list[str]:
    """Find and remove garbage; return its folders in order."""
    survey = Survey(root, SYSTEMS, **options)  # type: ignore[arg-type]
    survey.remove(survey.garbage)
    return [str(entry.folder.relative_to(root)) for entry in survey.garbage]


def sealed_in(root: Path) -> set[str]:
    return {str(folder.relative_to(root)) for folder in Lineage(root).sealed}


def assert_whole(root: Path) -> None:
    """Assert that every artifact is intact, with all its inputs."""
    for folder in Lineage(root).sealed:
        verification = scan_chain(folder, Scope(root, None, False, 1, 60.0), SYSTEMS.label_names)
        read_and_check(verification)
        assert verification.verdict == "intact", verification.findings


def states(root: Path) -> dict[str, str]:
    recipes, errors = SYSTEMS.load_recipes(root)
    assert not errors
    return {
        str(status.target.folder): f"{status.condition} {status.reason}"
        for recipe in recipes
        for status in artifact_statuses(root, recipe.targets())
    }


def test_artifacts_of_a_deleted_recipe_are_garbage_downstream_first(tmp_path: Path) -> None:
    for name in ("kept", "old"):
        write_graph(tmp_path, name, CHAIN)
        build_graph(tmp_path, name)
    (tmp_path / "recipes" / "old.yaml").unlink()

    assert collect(tmp_path) == ["graph/old/c", "graph/old/b", "graph/old/a"]

    assert sealed_in(tmp_path) == {"graph/kept/a", "graph/kept/b", "graph/kept/c"}
    assert [path.name for path in (tmp_path / "graph" / "old").iterdir() if path.suffix != ".lock"] == []
    assert collect(tmp_path) == []
    assert_whole(tmp_path)


def test_inputs_of_a_stale_artifact_are_kept(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    write_graph(tmp_path, "words", {"c": ("three", ())})

    assert collect(tmp_path) == []

    shutil.rmtree(tmp_path / "graph" / "words" / "c")
    assert collect(tmp_path) == ["graph/words/b", "graph/words/a"]


def test_an_artifact_that_another_recipe_reads_is_kept_before_and_after_that_build(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()
    write_graph(tmp_path, "reader", {"d": ("four", ("words/b",))})

    assert collect(tmp_path) == ["graph/words/c"]
    build_graph(tmp_path, "reader")
    assert collect(tmp_path) == []
    assert_whole(tmp_path)


def test_an_artifact_with_a_file_that_another_artifact_was_built_from_is_kept(tmp_path: Path) -> None:
    """As a trained tokenizer, which a recipe of another corpus names by its path."""
    write_graph(tmp_path, "words", {"a": ("one", ()), "b": ("two", ())})
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()
    recipe = {"system": "toy", "name": "loud", "path": "graph/words/a", "mark": "!"}
    (tmp_path / "recipes" / "loud.yaml").write_text(yaml.safe_dump(recipe))
    SYSTEMS.add("toy", "toy_system")
    try:
        for target in SYSTEMS.read_recipe(tmp_path / "recipes" / "loud.yaml").targets():
            drive.build(target, Run(tmp_path, RunSettings(workers=0)))

        assert collect(tmp_path) == ["graph/words/b"]
        assert_whole(tmp_path)
    finally:
        AREAS.remove("toy")
        del SYSTEMS.pages["toy"]


def test_a_younger_artifact_keeps_its_older_inputs(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", FORK)
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()
    for name in ("a", "b", "c"):
        os.utime(tmp_path / "graph" / "words" / name / "manifest.json", (0, time.time() - 3 * 86_400))

    assert collect(tmp_path, min_age_s=2 * 86_400) == ["graph/words/c", "graph/words/b"]

    assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/d"}
    assert_whole(tmp_path)


def test_while_a_recipe_or_a_manifest_cannot_be_read_no_artifact_is_garbage(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    recipe = tmp_path / "recipes" / "words.yaml"
    recipe.write_text("system: [")

    assert collect(tmp_path) == []
    recipe.unlink()
    manifest = tmp_path / "graph" / "words" / "c" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")
    assert collect(tmp_path) == []

    assert [error.where for error in Survey(tmp_path, SYSTEMS).doubts] == [str(manifest)]


@contextlib.contextmanager
def interrupted(root: Path, name: str, node: str) -> Iterator[Path]:
    """Open the staging directory of a node, as a living builder does."""
    [target] = [
        target for target in SYSTEMS.read_recipe(root / "recipes" / f"{name}.yaml").targets() if target.name == node
    ]

    with open_staging_dir(root / target.folder, target.plan(root)) as staging:
        yield staging.folder


def test_inputs_and_folder_of_a_living_builder_are_kept_although_no_recipe_is_left(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    shutil.rmtree(tmp_path / "graph" / "words" / "c")

    cached = tmp_path / "hub_cache" / "some--one" / "bytes" / f"sha256-{'a' * 64}"
    cached.mkdir(parents=True)
    (cached / "0-4.part").write_text("text")
    os.utime(cached / "0-4.part", (0, 0))

    with interrupted(tmp_path, "words", "c") as folder:
        (tmp_path / "recipes" / "words.yaml").unlink()
        assert collect(tmp_path) == []
        assert folder.exists() and any(cached.iterdir())
    assert collect(tmp_path, min_age_s=3600) == [str(cached.relative_to(tmp_path))]
    assert not any(cached.iterdir())
    assert collect(tmp_path) == ["graph/words/.c.building.2", "graph/words/b", "graph/words/a"]

    assert sealed_in(tmp_path) == set()


def test_an_interrupted_build_that_run_continues_is_kept_and_a_needless_leftover_is_not(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    shutil.rmtree(tmp_path / "graph" / "words" / "c")
    with interrupted(tmp_path, "words", "c") as folder:
        pass
    shutil.copytree(folder, needless := tmp_path / "graph" / "words" / ".a.building.9")
    before = states(tmp_path)

    assert collect(tmp_path) == ["graph/words/.a.building.9"]

    assert folder.exists() and not needless.exists()
    assert states(tmp_path) | {"graph/words/a": ""} == before | {"graph/words/a": ""}


def test_the_only_copy_of_an_artifact_whose_replacement_was_cut_off_is_kept(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", {"a": ("one", ())})
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()
    folder = tmp_path / "graph" / "words" / "a"
    old = folder.rename(folder.with_name(".a.old.2"))

    assert collect(tmp_path) == []
    assert old.exists()


def test_a_folder_in_which_another_process_builds_a_member_is_kept(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", {"a": ("one", ())})
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()

    with locked(tmp_path / "graph" / "words" / "a" / "member"):
        assert collect(tmp_path) == ["graph/words/a"]
        assert sealed_in(tmp_path) == {"graph/words/a"}


def test_an_artifact_that_another_process_builds_is_kept(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", {"a": ("one", ())})
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()

    with locked(tmp_path / "graph" / "words" / "a"):
        assert collect(tmp_path) == ["graph/words/a"]
        assert sealed_in(tmp_path) == {"graph/words/a"}

    assert collect(tmp_path) == ["graph/words/a"]
    assert sealed_in(tmp_path) == set()


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


def test_a_build_that_begins_during_the_removal_gets_its_inputs_back(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", FORK)
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()

    def begin() -> None:
        write_graph(tmp_path, "words", {"a": ("one", ()), "new": ("five", ("a",))})
        build_graph(tmp_path, "words")

    with before_hiding("a", begin):
        assert collect(tmp_path)[-1] == "graph/words/a"

    assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/new"}
    assert_whole(tmp_path)
    assert set(states(tmp_path).values()) == {"current None"}


def test_a_recipe_that_becomes_unreadable_during_the_removal_keeps_everything(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    recipe = tmp_path / "recipes" / "words.yaml"
    recipe.unlink()

    with before_hiding("a", lambda: recipe.write_text("system: [")):
        assert len(collect(tmp_path)) == 3

    assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/b", "graph/words/c"}
    assert_whole(tmp_path)


def test_an_artifact_of_a_recipe_file_that_was_named_by_its_path_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is in no folder that a removal looks into."""
    for name in ("path", "name"):
        recipe = write_graph(tmp_path, name, CHAIN)
        typed = f"corpusmill run {recipe} --data d" if name == "path" else "corpusmill run name"
        monkeypatch.setattr(Stopwatch, "command", {"typed": typed, "id": "1"})
        build_graph(tmp_path, name)
        recipe.unlink()

    assert collect(tmp_path) == ["graph/name/c", "graph/name/b", "graph/name/a"]
    assert sealed_in(tmp_path) == {"graph/path/a", "graph/path/b", "graph/path/c"}


def link_an_artifact(root: Path, away: Path) -> Path:
    (root / "graph" / "words" / "b").rename(away / "b")
    (root / "graph" / "words" / "b").symlink_to(away / "b")
    return root / "graph" / "words" / "b"


def link_recipes_to_a_disk_that_is_away(root: Path, away: Path) -> Path:
    (root / "recipes").rmdir()
    (root / "recipes").symlink_to(away / "recipes")
    return root / "recipes"


def link_an_area_to_a_disk_that_is_away(root: Path, away: Path) -> Path:
    (root / "corpora").symlink_to(away / "corpora")
    return root / "corpora"


def lose_the_shipped_recipes(root: Path, away: Path) -> Path:
    recipe_paths.PROJECT_RECIPES.rmdir()
    return recipe_paths.PROJECT_RECIPES


@pytest.mark.parametrize(
    "hide",
    [
        link_an_artifact,
        link_recipes_to_a_disk_that_is_away,
        link_an_area_to_a_disk_that_is_away,
        lose_the_shipped_recipes,
    ],
)
def test_while_needs_may_be_out_of_sight_no_artifact_is_garbage(
    hide: Callable[[Path, Path], Path], tmp_path: Path
) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    away.mkdir()
    write_graph(root, "words", CHAIN)
    build_graph(root, "words")
    (root / "recipes" / "words.yaml").unlink()
    hidden = hide(root, away)

    assert collect(root) == []
    assert [error.where for error in Survey(root, SYSTEMS).doubts] == [str(hidden)]


def test_inputs_of_an_artifact_whose_replacement_was_cut_off_are_kept(tmp_path: Path) -> None:
    write_graph(tmp_path, "words", CHAIN)
    build_graph(tmp_path, "words")
    (tmp_path / "recipes" / "words.yaml").unlink()
    folder = tmp_path / "graph" / "words" / "b"
    folder.rename(folder.with_name(".b.old.2"))

    assert collect(tmp_path) == ["graph/words/c"]

    assert sealed_in(tmp_path) == {"graph/words/a"}


@contextlib.contextmanager
def unsealed(root: Path, outside: Path) -> Iterator[Callable[[], None]]:
    """Build `graph/new/x` from `graph/words/a` without a recipe; yield its seal."""
    recipe = write_graph(outside, "new", {"x": ("five", ("words/a",))})
    [target] = SYSTEMS.read_recipe(recipe).targets()
    with open_staging_dir(root / target.folder, target.plan(root)) as staging:
        file = staging.write("word.txt", b"five")
        inputs = [{"name": entry["name"], "digest": entry["digest"]} for entry in target.inputs(root)]
        identity = Identity(target.stage, target.recipe, inputs, None, {}, {"documents": 1}, [file.content])
        yield lambda: (staging.seal(target.kind.name, "x", identity, [file.stored], {}), None)[1]


def test_a_build_that_seals_during_the_second_survey_gets_its_inputs_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    write_graph(root, "words", CHAIN)
    build_graph(root, "words")
    (root / "recipes" / "words.yaml").unlink()
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


def test_after_a_kill_the_next_removal_gives_a_build_that_ended_meanwhile_its_inputs_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_graph(root, "words", {"a": ("one", ())})
    build_graph(root, "words")
    (root / "recipes" / "words.yaml").unlink()
    with unsealed(root, tmp_path / "outside") as seal:
        folder = root / "graph" / "words" / "a"
        folder.rename(leftover_path(folder, "building", 2))  # by a removal that is killed
        seal()

    assert collect(root) == []

    assert sealed_in(root) == {"graph/words/a", "graph/new/x"}
    assert_whole(root)
    shutil.rmtree(root / "graph" / "new")
    folder.rename(leftover_path(folder, "building", 2))
    assert collect(root) == ["graph/words/.a.building.2"]
    assert sealed_in(root) == set()


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_step_nothing_that_remains_lacks_an_input_and_the_next_removal_ends_it(
    stride: int, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    for name in ("kept", "old"):
        write_graph(whole, name, FORK)
        build_graph(whole, name)
    (whole / "recipes" / "old.yaml").unlink()
    shutil.copytree(whole / "graph" / "old" / "a", whole / "graph" / "old" / ".b.building.7")
    steps = count_steps(lambda: collect(shutil.copytree(whole, tmp_path / "counted")))

    for step in range(1, steps + 1, stride):
        root = shutil.copytree(whole, tmp_path / str(step))
        assert killed_at(step, lambda root=root: collect(root))  # type: ignore[misc]
        assert_whole(root)
        collect(root)
        assert sealed_in(root) == {f"graph/kept/{name}" for name in "abcd"}
        assert [path for path in (root / "graph" / "old").iterdir() if path.suffix != ".lock"] == []
        shutil.rmtree(root)
    assert steps > 20


GRAPHS = st.lists(st.tuples(st.sampled_from("xyz"), st.sets(st.integers(0, 4), max_size=2)), min_size=1, max_size=5)


def graph(drawn: list[tuple[str, set[int]]]) -> dict[str, Node]:
    names = "abcde"
    return {
        names[number]: (word, tuple(names[i] for i in sorted(inputs) if i < number))
        for number, (word, inputs) in enumerate(drawn)
    }


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(built=st.lists(GRAPHS, min_size=1, max_size=3), later=st.lists(st.none() | GRAPHS, min_size=3, max_size=3))
def test_what_remains_is_intact_with_all_inputs_and_no_state_changes(
    built: list[list[tuple[str, set[int]]]], later: list[list[tuple[str, set[int]]] | None], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for number, drawn in enumerate(built):
        path = write_graph(root, f"r{number}", graph(drawn))
        build_graph(root, f"r{number}")
        path.unlink()
        if (changed := later[number]) is not None:
            write_graph(root, f"r{number}", graph(changed))
    before = states(root)

    collect(root)

    assert states(root) == before
    assert_whole(root)
    # Nothing is left that neither a recipe nor an artifact which a recipe requests needs.
    requested = [root / folder for folder in before if (root / folder / "manifest.json").exists()]
    needed = {artifact.folder for folder in requested for artifact in collect_chain(folder, root).artifacts}
    assert {root / folder for folder in sealed_in(root)} - needed == set()
    assert collect(root) == []


def build_and_delete_recipes(root: Path, name: str, until: float) -> None:
    """Build recipes of one name that change, vanish and come back."""
    dice = random.Random(name)
    while time.monotonic() < until:
        path = write_graph(root, name, dice.choice([CHAIN, FORK, {"a": CHAIN["a"], "d": FORK["d"]}]))
        with contextlib.suppress(InputError, FileNotFoundError):
            for target in SYSTEMS.read_recipe(path).targets():
                drive.build(target, Run(root, RunSettings(workers=0), replace=True))
        if dice.random() < 0.5:
            path.unlink()


@pytest.mark.slow
def test_builds_and_killed_removals_at_the_same_time_leave_no_artifact_without_its_inputs(tmp_path: Path) -> None:
    processes, dice, until = multiprocessing.get_context("fork"), random.Random(1), time.monotonic() + 8
    builders = [processes.Process(target=build_and_delete_recipes, args=(tmp_path, name, until)) for name in ("x", "y")]
    for builder in builders:
        builder.start()
    exit_codes = set[int | None]()
    while time.monotonic() < until:
        removals = [processes.Process(target=collect, args=(tmp_path,)) for _ in range(2)]
        for removal in removals:
            removal.start()
        if dice.random() < 0.5:
            time.sleep(dice.uniform(0, 0.1))
            removals[0].kill()
        for removal in removals:
            removal.join()
            exit_codes.add(removal.exitcode)
    for builder in builders:
        builder.join()

    assert exit_codes == {0, -signal.SIGKILL}
    assert_whole(tmp_path)
    for name in ("x", "y"):
        write_graph(tmp_path, name, CHAIN)
        for target in SYSTEMS.read_recipe(tmp_path / "recipes" / f"{name}.yaml").targets():
            drive.build(target, Run(tmp_path, RunSettings(workers=0), replace=True))
    collect(tmp_path)
    assert sealed_in(tmp_path) == {f"graph/{name}/{node}" for name in "xy" for node in "abc"}
