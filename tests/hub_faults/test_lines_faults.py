"""Faults of a hub while JSON lines are drawn, with the outcomes of Parquet files."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from answer_faults import Fault, FaultKind
from crash_points import count_steps, kill_at
from fault_cases import GET, TRIES
from faulty_hub import FaultyHub
from healing_build import DATASET
from huggingface_hub import constants
from stage_a_build import normalize, only, recipe_with

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot import line_prefixes
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.stage_a import StageARecipe

ROWS = [{"text": f"Text of page {number}, which nobody else has.", "id": str(number)} for number in range(2000)]
SECTION = {
    "files": ["data/*"],
    "columns": {"text": "text", "id": "id", "created_at": None, "license": None},
    "rules": [],
    "language": None,
    "amount": {"documents": 2500},
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyHub]:
    """Two files of compressed lines, each in several blocks."""
    monkeypatch.setattr(line_prefixes, "_FIRST_BLOCK_BYTES", 4000)
    folder = tmp_path / "hub" / "datasets" / DATASET / "data"
    folder.mkdir(parents=True)
    for name, rows in (("a", ROWS[:1500]), ("b", ROWS[1500:])):
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
    with (
        mock.patch.object(constants, "HF_HUB_DISABLE_TELEMETRY", True),
        mock.patch.object(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True),
        FaultyHub(tmp_path / "hub") as running,
    ):
        yield running


@pytest.fixture
def recipe(hub: FaultyHub, tmp_path: Path) -> StageARecipe:
    return recipe_with(tmp_path, only("pages", **SECTION), hub.commits()[DATASET])


def build_digest(recipe: StageARecipe, hub: FaultyHub, folder: Path) -> str:
    """Build the documents in a folder with its own cache; return their digest."""
    files = HubFiles(folder / "cache", hub.endpoint, tries=TRIES, wait_s=0.01)
    return normalize(recipe, folder / "data", files).manifest.digest


def test_wrong_bytes_in_a_block_of_a_whole_file_are_detected_and_fetched_again(
    recipe: StageARecipe, hub: FaultyHub, tmp_path: Path
) -> None:
    undisturbed = build_digest(recipe, hub, tmp_path / "undisturbed")

    hub.inject(Fault(FaultKind.WRONG_BYTES, GET, 1, 1))
    with pytest.raises(InputError, match=r"the gzip stream is damaged|downloaded bytes do not match sha256:"):
        build_digest(recipe, hub, tmp_path / "damaged")
    hub.inject()

    assert build_digest(recipe, hub, tmp_path / "damaged") == undisturbed


def test_a_killed_build_resumes_to_the_same_documents(recipe: StageARecipe, hub: FaultyHub, tmp_path: Path) -> None:
    undisturbed = build_digest(recipe, hub, tmp_path / "undisturbed")
    steps = count_steps(lambda: build_digest(recipe, hub, tmp_path / "counted"))

    for step in range(0, steps, max(steps // 12, 1)):
        folder = tmp_path / f"killed-{step}"
        kill_at(step, lambda folder=folder: build_digest(recipe, hub, folder))
        assert build_digest(recipe, hub, folder) == undisturbed, step
