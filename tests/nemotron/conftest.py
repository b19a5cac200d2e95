"""Fixtures for tests of the Nemotron system and of docs/nemotron.md."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill, Result, Wrong, only_line, type_page
from nemotron_build import SHIPPED, build
from nemotron_hub import write_dataset, write_hub

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe


@pytest.fixture(scope="session")
def nemotron_hub(tmp_path_factory: pytest.TempPathFactory, real: bool) -> Iterator[LoopbackHub]:
    """Serve all five datasets."""
    folder = tmp_path_factory.mktemp("nemotron") / "hub"
    write_hub(folder, real)
    with LoopbackHub(folder) as hub:
        yield hub


@pytest.fixture(scope="session")
def recipe(nemotron_hub: LoopbackHub) -> NemotronRecipe:
    """Pin the shipped recipe to the commits of the hub."""
    content = yaml.safe_load(SHIPPED.read_text())
    for section in content["datasets"]:
        section["revision"] = nemotron_hub.commits()[section["dataset"]]
    return NemotronRecipe.from_mapping(content, SHIPPED)


@pytest.fixture(scope="session")
def built_recipe(
    nemotron_hub: LoopbackHub,
    recipe: NemotronRecipe,
    build_once: Callable[[str, Callable[[Path], None]], Path],
    real: bool,
) -> Path:
    """Build all artifacts of the recipe; return their digests and the cache."""

    def build_all(folder: Path) -> None:
        hub = HubFiles(folder / "cache", nemotron_hub.endpoint)
        digests = build(recipe, folder / "data", hub, RunSettings())
        (folder / "digests.json").write_text(json.dumps(digests))

    return build_once("nemotron_real" if real else "nemotron_made", build_all)


@pytest.fixture(scope="session")
def cache(built_recipe: Path) -> Path:
    """Return a cache with all files that the recipe reads."""
    return built_recipe / "cache"


@pytest.fixture(scope="session")
def undisturbed(built_recipe: Path) -> dict[str, str]:
    """Return the digests of all artifacts of the recipe by role."""
    return dict(json.loads((built_recipe / "digests.json").read_bytes()))


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder of local datasets: one of the five, and one of Harmony text."""
    folder = tmp_path_factory.mktemp("work")
    write_dataset(folder / "datasets" / "Nemotron-Math-v2", "nvidia/Nemotron-Math-v2")
    (folder / "datasets" / "harmony-tools").mkdir()
    text = "<|start|>user<|message|>2 + 2?<|end|><|start|>assistant<|message|>4<|end|>"
    lines = [f'{{"text": "{text}", "accuracy": "0.5"}}\n', '{"text": "no Harmony"}\n']
    (folder / "datasets" / "harmony-tools" / "train.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def typed(corpusmill: Corpusmill, nemotron_hub: LoopbackHub, work: Path) -> list[Result]:
    """Run every command of docs/nemotron.md, in order."""
    env = {"HF_ENDPOINT": nemotron_hub.endpoint, "CORPUSMILL_WORKERS": "0"}
    return [result for _, result in type_page("nemotron.md", corpusmill, cwd=work, env=env)]


@pytest.fixture(scope="session")
def scored_root(build_once: Callable[[str, Callable[[Path], None]], Path], corpusmill: Corpusmill) -> Path:
    """Build and score the pools of six generated datasets; tests only read them.

    The hub of the data root has the published pools.
    """

    def build(root: Path) -> None:
        env = {"HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_WORKERS": "2"}
        done = corpusmill("nemotron", "smoke", "--out-dir", root, "--score", env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "126 artifacts built" in done.stdout

    return build_once("scored", build)


@pytest.fixture
def wrong(corpusmill: Corpusmill, tmp_path: Path) -> Wrong:
    """Return a function for wrong commands; it returns the status and the line."""

    def answer(*arguments: object, **env: str) -> tuple[int, str]:
        common = ("--out-dir", tmp_path / "out", "--cpu-threads", "0")
        result = corpusmill("nemotron", *arguments, *common, cwd=tmp_path, env={"CORPUSMILL_HUB_TRIES": "1", **env})
        return result.returncode, only_line(result)

    return answer
