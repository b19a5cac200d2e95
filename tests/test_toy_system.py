"""A system of two kinds, tests/toy_system.py, has all that is made from kinds: nothing else knows of it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_system
import yaml
from command_results import DOCS, blocks_of
from crash_points import count_steps, killed_at
from fuzz_cases import Told, typed

from pipeline_assets.build import drive
from pipeline_assets.build.run import Run
from pipeline_assets.code_location import build_definitions
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

LOUD = Path("toy", "words", "loud")


@pytest.fixture(scope="module", autouse=True)
def toy() -> Iterator[None]:
    SYSTEMS.add("toy", "toy_system")
    yield
    AREAS.remove("toy")
    del SYSTEMS.pages["toy"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with two recipes of the system, over the same three files."""
    for number in range(3):
        path = tmp_path / "texts" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"first of {number}\n\nlast of {number}\n")
    (tmp_path / "recipes").mkdir()
    for name, mark in (("words", "!"), ("others", "?")):
        content = {"system": "toy", "name": name, "path": "texts", "mark": mark}
        (tmp_path / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


def command(root: Path, *words: object) -> Told:
    told = typed([*map(str, words)], root / "cache")
    assert told.failure is None, told.failure
    return told


def build(root: Path, workers: int = 0) -> None:
    for target in SYSTEMS.read_recipe(root / "recipes" / "words.yaml").targets():
        drive.build(target, Run(root, RunSettings(workers)))


def digest(root: Path) -> str:
    return open_artifact(root / LOUD).manifest.digest


def test_its_recipes_are_assets_with_checks_jobs_and_edges(root: Path) -> None:
    graph = build_definitions(root).resolve_asset_graph()
    keys = {key.to_user_string(): key for key in graph.get_all_asset_keys() if key.path[0] == "toy"}

    assert sorted(keys) == ["toy/others/loud", "toy/others/raw", "toy/words/loud", "toy/words/raw"]
    assert graph.get(keys["toy/words/loud"]).parent_keys == {keys["toy/words/raw"]}
    assert {check.name for check in graph.asset_check_keys if check.asset_key == keys["toy/words/loud"]} == {
        "files_match_manifest",
        "ledger_adds_up",
    }


def test_it_is_planned_built_shown_and_looked_into_by_the_commands_of_all(root: Path) -> None:
    data = ("--data", root)

    planned = command(root, "plan", "words", *data)
    assert planned.status == 0 and "toy/loud" in planned.stdout
    assert command(root, "run", "words", "--workers", 2, *data).status == 0
    assert command(root, "status", "words", *data).stdout.count("current") == 2
    told = json.loads(command(root, "trace", root / LOUD, "--row", 3, "--json", *data).stdout)
    assert (told["beginning"], told["source"]["row"]) == ("LAST OF 1!", 2)
    assert "FIRST OF 0!" in command(root, "peek", root / LOUD, "--row", 0).stdout
    assert command(root, "run", "others", "--workers", 0, *data).status == 0
    assert "6" in command(root, "diff", root / LOUD, root / "toy/others/loud").stdout
    assert command(root, "verify", root / LOUD, "--upstream", "--content", *data).status == 0
    assert "identical" in command(root, "rebuild", root / LOUD, *data).stdout


@pytest.mark.parametrize(("share", "workers"), [(0.2, 0), (0.6, 2), (0.9, 0)])
def test_killed_anywhere_it_comes_to_the_same_bytes(share: float, workers: int, root: Path) -> None:
    build(root)
    whole = digest(root)
    shutil.rmtree(root / "toy")
    steps = count_steps(lambda: build(root))
    shutil.rmtree(root / "toy")

    assert killed_at(round(share * steps), lambda: build(root, workers))
    build(root, 2 - workers)

    assert digest(root) == whole


def test_the_page_on_architecture_shows_this_system() -> None:
    [code] = blocks_of(DOCS / "architecture.md", "python")

    assert code == Path(toy_system.__file__).read_text()
