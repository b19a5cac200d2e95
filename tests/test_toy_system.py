"""Every feature derived from kinds works for a system unknown to the code.

tests/toy_system.py has two kinds.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_system
import yaml
from command_results import DOCS, code_blocks
from crash_points import count_steps, kill_at
from fuzz_cases import CommandOutcome, run_command

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
    """Write a data root with two recipes of the system over the same three files."""
    for number in range(3):
        path = tmp_path / "texts" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"first of {number}\n\nlast of {number}\n")
    (tmp_path / "recipes").mkdir()
    for name, mark in (("words", "!"), ("others", "?")):
        content = {"system": "toy", "name": name, "path": "texts", "mark": mark}
        (tmp_path / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


def run(root: Path, *args: object) -> CommandOutcome:
    outcome = run_command([*map(str, args)], root / "cache")
    assert outcome.failure is None, outcome.failure
    return outcome


def build(root: Path, workers: int = 0) -> None:
    for target in SYSTEMS.read_recipe(root / "recipes" / "words.yaml").targets():
        drive.build(target, Run(root, RunSettings(workers)))


def read_digest(root: Path) -> str:
    return open_artifact(root / LOUD).manifest.digest


def test_recipes_are_assets_with_checks_and_edges(root: Path) -> None:
    graph = build_definitions(root).resolve_asset_graph()
    keys = {key.to_user_string(): key for key in graph.get_all_asset_keys() if key.path[0] == "toy"}

    assert sorted(keys) == ["toy/others/loud", "toy/others/raw", "toy/words/loud", "toy/words/raw"]
    assert graph.get(keys["toy/words/loud"]).parent_keys == {keys["toy/words/raw"]}
    assert {check.name for check in graph.asset_check_keys if check.asset_key == keys["toy/words/loud"]} == {
        "files_match_manifest",
        "ledger_adds_up",
    }


def test_every_command_works_on_its_artifacts(root: Path) -> None:
    data = ("--data", root)

    planned = run(root, "plan", "words", *data)
    assert planned.status == 0 and "toy/loud" in planned.stdout
    assert run(root, "run", "words", "--workers", 2, *data).status == 0
    assert run(root, "status", "words", *data).stdout.count("current") == 2
    traced = json.loads(run(root, "trace", root / LOUD, "--row", 3, "--json", *data).stdout)
    assert (traced["beginning"], traced["source"]["row"]) == ("LAST OF 1!", 2)
    assert "FIRST OF 0!" in run(root, "peek", root / LOUD, "--row", 0).stdout
    assert run(root, "run", "others", "--workers", 0, *data).status == 0
    assert "6" in run(root, "diff", root / LOUD, root / "toy/others/loud").stdout
    assert run(root, "verify", root / LOUD, "--upstream", "--content", *data).status == 0
    assert "identical" in run(root, "rebuild", root / LOUD, *data).stdout


@pytest.mark.parametrize(("share", "workers"), [(0.2, 0), (0.6, 2), (0.9, 0)])
def test_a_killed_build_continues_to_the_same_bytes(share: float, workers: int, root: Path) -> None:
    build(root)
    expected = read_digest(root)
    shutil.rmtree(root / "toy")
    steps = count_steps(lambda: build(root))
    shutil.rmtree(root / "toy")

    assert kill_at(round(share * steps), lambda: build(root, workers))
    build(root, 2 - workers)

    assert read_digest(root) == expected


def test_the_page_on_architecture_shows_this_system() -> None:
    [code] = code_blocks(DOCS / "architecture.md", "python")

    assert code == Path(toy_system.__file__).read_text()
