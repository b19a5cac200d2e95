"""Scores by the app's functions through Modal's client equal local scores."""

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
from modal_loopback import ModalOnLoopback, wait_for
from paused_runs import find
from refusals import refusal
from tiny_scoring import KINDS, build_rows, save_whole_model, write_pool

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
    """Serve 60 rows of pools and a tiny model."""
    folder = tmp_path_factory.mktemp("hub")
    write_pool(
        folder / "datasets" / "me" / "pools", build_rows(3 * SHARDS), "candidates_a/train-00000-of-00001.parquet"
    )
    save_whole_model(folder / "models" / "me" / "tiny")
    with LoopbackHub(folder) as hub:
        yield hub


def build_recipe(hub: LoopbackHub, **scoring: Any) -> dict[str, Any]:
    files = HubFiles(Path("unused"), endpoint=hub.endpoint)
    model = {"name": "me/tiny", "revision": files.for_models().resolve("me/tiny")}
    pools = {"dataset": "me/pools", "revision": files.resolve("me/pools"), "splits": ["train"]}
    return {
        "system": "nemotron",
        "name": "mine",
        "scoring": {"model": model, "shard_rows": 3, "rescored": 4, "batch_tokens": 64, **scoring},
        "datasets": [{**pools, "files": {"train": ["candidates_*/train*.parquet"]}}],
    }


def build_scores(root: Path, hub: LoopbackHub, remote: ModalLauncherFactory | None, **scoring: Any) -> Manifest:
    """Build the scores in this process."""
    targets = [
        target
        for target in NemotronRecipe.from_mapping(build_recipe(hub, **scoring), "the test").targets()
        if target.kind.name in KINDS
    ]
    files = HubFiles(root / "cache", endpoint=hub.endpoint)
    run = Run(root, RunSettings(0), files, remote_launcher=remote)
    return [target.kind.build(target, run).manifest for target in targets][-1]


@pytest.fixture
def modal(hub: LoopbackHub, tmp_path: Path) -> Iterator[ModalOnLoopback]:
    functions = {name: f"waiting_functions:{name}" for name in ("fetch", "score")}
    modal = ModalOnLoopback(tmp_path / "modal", functions, {"HF_ENDPOINT": hub.endpoint})
    try:
        with modal.connected():
            yield modal
    finally:
        modal.stop()


@pytest.fixture(scope="module")
def local_scores(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Return the scores of this machine."""
    return build_scores(tmp_path_factory.mktemp("here"), hub, None)


def test_scores_equal_local_ones_and_another_data_root_reuses_them(
    local_scores: Manifest, hub: LoopbackHub, modal: ModalOnLoopback, tmp_path: Path
) -> None:
    def list_scores() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in modal.mount.rglob("*.parquet")}

    (modal.mount / "go").touch()
    settings = ModalSettings(gpu="none", gpu_price=4.0, prices_read="2026-05-07", places=4)

    manifest, before = build_scores(tmp_path / "root", hub, ModalLauncherFactory(settings)), list_scores()
    again = build_scores(tmp_path / "second", hub, ModalLauncherFactory(ModalSettings(gpu="none")))

    assert manifest.digest == again.digest == local_scores.digest
    assert list_scores() == before
    kept = sorted(path.suffix for path in (modal.mount / "scores").rglob("*") if path.is_file())
    assert kept == [".json"] * (SHARDS + 2) + [".parquet"] * (SHARDS + 2)
    terms = manifest.provenance["modal"]
    assert (terms["gpu"], terms["gpu_price"], terms["prices_read"], terms["places"]) == ("none", 4.0, "2026-05-07", 4)


def test_rows_longer_than_the_model_allows_are_refused_before_any_call(
    hub: LoopbackHub, modal: ModalOnLoopback, tmp_path: Path
) -> None:
    launcher = ModalLauncherFactory(ModalSettings(gpu="none"))

    message = refusal(lambda: build_scores(tmp_path / "root", hub, launcher, max_length=1_000_000), UsageError)

    assert message.startswith("scoring.max_length: must be at most the model's ")
    assert [path for path in modal.mount.rglob("*") if path.is_file()] == []


def start_dagster_run(root: Path, modal: ModalOnLoopback, hub: LoopbackHub) -> subprocess.Popen[bytes]:
    """Start a run of the whole recipe like a run worker of Dagster."""
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
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", "pipeline_assets.definitions", "-j", "mine"]
    return subprocess.Popen(command, env=variables, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def root(hub: LoopbackHub, tmp_path: Path) -> Path:
    """Create a data root with the recipe and a Dagster instance."""
    root = tmp_path / "root"
    (root / "recipes").mkdir(parents=True)
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(build_recipe(hub)))
    (root / "dagster").mkdir()
    (root / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return root


def test_a_killed_dagster_run_finds_its_calls_and_pays_each_once(
    local_scores: Manifest, hub: LoopbackHub, modal: ModalOnLoopback, root: Path
) -> None:
    first = start_dagster_run(root, modal, hub)
    with contextlib.closing(first.stdout):
        wait_for(lambda: len(find(root, CALLS)) == SHARDS or first.poll() is not None)
        assert first.poll() is None, first.stdout.read()[-3000:].decode()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    outstanding = modal.calls()

    second = start_dagster_run(root, modal, hub)
    wait_for(lambda: len(modal.calls("fetch")) == 1)
    (modal.mount / "go").touch()
    output = second.communicate(timeout=200)[0].decode()

    assert second.returncode == 0, output[-3000:]
    assert len(outstanding) == SHARDS
    names = [json.loads(call["asked"])["name"] for call in modal.calls()]
    assert sorted(names) == sorted({*names}) and len(names) == SHARDS + 2  # two jobs score rows again
    assert [len(call["starts"]) for call in modal.calls()] == [1] * len(names)
    assert open_artifact(root / SCORES).manifest.digest == local_scores.digest


def test_an_interrupted_command_cancels_its_calls(hub: LoopbackHub, modal: ModalOnLoopback, root: Path) -> None:
    first = start_dagster_run(root, modal, hub)
    with contextlib.closing(first.stdout):
        wait_for(lambda: len(find(root, CALLS)) == SHARDS)
        os.kill(first.pid, signal.SIGINT)
        first.wait(60)

    assert len(list((modal.folder / "calls").glob("*.canceled"))) == SHARDS
    assert not list(root.rglob("score.calls/*.json"))
