"""Runs of the stage of words with every engine."""

import multiprocessing
from pathlib import Path

import pytest
from word_artifact import ENGLISH, Words

from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.fork_server import SERVER_NAME
from pipeline_assets.spine.stage import Work
from pipeline_assets.spine.staging import Receipt, StagingDir

INLINE = RunSettings()
ONE, TWO = RunSettings(1), RunSettings(2)
SPAWNED = RunSettings(2, "spawn")
MANY = [Words(f"{number:03}", (f"word{number}",)) for number in range(100)]

every_way = pytest.mark.parametrize(
    "settings",
    [INLINE, ONE, TWO, SPAWNED],
    ids=["here", "one forked", "two forked", "two spawned"],
)


def run(work: Work[Words], building: StagingDir, settings: RunSettings, shards: list[Words] = ENGLISH) -> list[Receipt]:
    return list(run_stage("write", work, shards, building, settings))


def read_parts(building: StagingDir) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((building.folder / "parts").iterdir())}


def children() -> list[int]:
    """List the workers of this process and of its fork server."""
    found: list[int] = []
    for child in multiprocessing.active_children():
        if child.name == SERVER_NAME:
            found += map(int, Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split())
        else:
            found.append(child.pid or 0)
    return found
