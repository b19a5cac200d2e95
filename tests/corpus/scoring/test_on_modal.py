"""Scores made by the app's own functions, called by Modal's client: those of this machine, and each paid for once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from held_runs import find
from modal_loopback import ModalOnLoopback, wait_for
from refusals import refusal
from tiny_scoring import MADE, rows_of, save_whole_model, write_pool

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.systems.nemotron import NemotronRecipe
from resources.modal_launcher import ModalLauncherFactory

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[3]
SHARDS = 20
CALLS = "**/score.calls/*.json"
SCORES = "nemotron/mine/nll_scores/pools/train"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    """60 rows of pools, and a tiny model."""
    folder = tmp_path_factory.mktemp("hub")
    write_pool(folder / "datasets" / "me" / "pools", rows_of(3 * SHARDS), "candidates_a/train-00000-of-00001.parquet")
    save_whole_model(folder / "models" / "me" / "tiny")
    with LoopbackHub(folder) as hub:
        yield hub


def recipe_of(hub: LoopbackHub, **scoring: Any) -> dict[str, Any]:
    files = HubFiles(Path("unused"), endpoint=hub.endpoint)
    model = {"name": "me/tiny", "revision": files.for_models().resolve("me/tiny")}
    pools = {"dataset": "me/pools", "revision": files.resolve("me/pools"), "splits": ["train"]}
    return {
        "system": "nemotron",
        "name": "mine",
        "scoring": {"model": model, "shard_rows": 3, "rescored": 4, "batch_tokens": 64, **scoring},
        "datasets": [{**pools, "files": {"train": ["candidates_*/train*.parquet"]}}],
    }


def scores_of(root: Path, hub: LoopbackHub, elsewhere: ModalLauncherFactory | None, **scoring: Any) -> Manifest:
    """Scores, made in this process."""
    targets = [
        one
        for one in NemotronRecipe.from_mapping(recipe_of(hub, **scoring), "the test").targets()
        if one.kind.name in MADE
    ]
    files = HubFiles(root / "cache", endpoint=hub.endpoint)
    run = Run(root, RunSettings(0), files, remote_launcher=elsewhere)
    return [target.kind.build(target, run).manifest for target in targets][-1]


@pytest.fixture
def modal(hub: LoopbackHub, tmp_path: Path) -> Iterator[ModalOnLoopback]:
    functions = {name: f"waiting_functions:{name}" for name in ("fetch", "score")}
    modal = ModalOnLoopback(tmp_path / "modal", functions, {"HF_ENDPOINT": hub.endpoint})
    try:
        with modal.called():
            yield modal
    finally:
        modal.stop()


@pytest.fixture(scope="module")
def here(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The scores of this machine."""
    return scores_of(tmp_path_factory.mktemp("here"), hub, None)


def test_scores_are_those_of_this_machine_and_another_data_root_finds_those_that_are_there(
    here: Manifest, hub: LoopbackHub, modal: ModalOnLoopback, tmp_path: Path
) -> None:
    def written() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in modal.mount.rglob("*.parquet")}

    (modal.mount / "go").touch()
    settings = ModalSettings(gpu="none", gpu_price=4.0, prices_read="2026-05-07", places=4)

    made, once = scores_of(tmp_path / "root", hub, ModalLauncherFactory(settings)), written()
    again = scores_of(tmp_path / "second", hub, ModalLauncherFactory(ModalSettings(gpu="none")))

    assert made.digest == again.digest == here.digest
    assert written() == once
    kept = sorted(path.suffix for path in (modal.mount / "scores").rglob("*") if path.is_file())
    assert kept == [".json"] * (SHARDS + 2) + [".parquet"] * (SHARDS + 2)
    told = made.provenance["modal"]
    assert (told["gpu"], told["gpu_price"], told["prices_read"], told["places"]) == ("none", 4.0, "2026-05-07", 4)


def test_rows_longer_than_the_model_takes_are_refused_before_any_call(
    hub: LoopbackHub, modal: ModalOnLoopback, tmp_path: Path
) -> None:
    launcher = ModalLauncherFactory(ModalSettings(gpu="none"))

    line = refusal(lambda: scores_of(tmp_path / "root", hub, launcher, max_length=1_000_000), UsageError)

    assert line.startswith("scoring.max_length: must be at most the model's ")
    assert [path for path in modal.mount.rglob("*") if path.is_file()] == []


def dagster_run(root: Path, modal: ModalOnLoopback, hub: LoopbackHub) -> subprocess.Popen[bytes]:
    """A run of the whole recipe in a process of its own, as a run worker of Dagster has it."""
    variables = {
        **os.environ,
        **modal.variables,
        "CORPUSMILL_DATA": str(root),
        "CORPUSMILL_LAUNCHER": "modal",
        "CORPUSMILL_MODAL_GPU": "none",
        "CORPUSMILL_MODAL_PLACES": str(SHARDS),
        "DAGSTER_HOME": str(root / "dagster"),
        "HF_ENDPOINT": hub.endpoint,
        "PYTHONPATH": str(PROJECT),
    }
    words = [sys.executable, "-m", "dagster", "job", "execute", "-m", "pipeline_assets.definitions", "-j", "mine"]
    return subprocess.Popen(words, env=variables, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def root(hub: LoopbackHub, tmp_path: Path) -> Path:
    """A data root with the recipe, and an instance of Dagster."""
    root = tmp_path / "root"
    (root / "recipes").mkdir(parents=True)
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(recipe_of(hub)))
    (root / "dagster").mkdir()
    (root / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return root


def test_a_dagster_run_that_was_killed_finds_its_calls_again_and_pays_none_twice(
    here: Manifest, hub: LoopbackHub, modal: ModalOnLoopback, root: Path
) -> None:
    first = dagster_run(root, modal, hub)
    with contextlib.closing(first.stdout):
        wait_for(lambda: len(find(root, CALLS)) == SHARDS or first.poll() is not None)
        assert first.poll() is None, first.stdout.read()[-3000:].decode()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    outstanding = modal.calls()

    second = dagster_run(root, modal, hub)
    wait_for(lambda: len(modal.calls("fetch")) == 1)
    (modal.mount / "go").touch()
    told = second.communicate(timeout=200)[0].decode()

    assert second.returncode == 0, told[-3000:]
    assert len(outstanding) == SHARDS
    asked = [json.loads(call["asked"])["name"] for call in modal.calls()]
    assert sorted(asked) == sorted({*asked}) and len(asked) == SHARDS + 2  # two jobs score rows again
    assert [len(call["starts"]) for call in modal.calls()] == [1] * len(asked)
    assert open_artifact(root / SCORES).manifest.digest == here.digest


def test_a_command_that_is_interrupted_cancels_its_calls(hub: LoopbackHub, modal: ModalOnLoopback, root: Path) -> None:
    first = dagster_run(root, modal, hub)
    with contextlib.closing(first.stdout):
        wait_for(lambda: len(find(root, CALLS)) == SHARDS)
        os.kill(first.pid, signal.SIGINT)
        first.wait(60)

    assert len(list((modal.folder / "calls").glob("*.canceled"))) == SHARDS
    assert not list(root.rglob("score.calls/*.json"))
