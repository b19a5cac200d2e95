"""Three nodes of Ray build the artifacts of one process through any failure."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_systems import build_system
from paused_runs import find
from ray_cluster import NODE, kill_worker, ray_cluster, start_driver

from pipeline_assets.spine.engine import RunSettings

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3000)]
BUILD = """
import json, sys
from pathlib import Path
from demo_systems import build_system
from pipeline_assets.spine.engine import RunSettings
print(json.dumps(build_system(sys.argv[1], Path(sys.argv[2]), RunSettings(3, engine="ray"))))
"""
WRITE = """
import json, sys
from functools import partial
from pathlib import Path
from word_artifact import ENGLISH, die_of_words
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.opening import open_staging_dir
with open_staging_dir(Path(sys.argv[2]) / "words", {}) as building:
    work, settings = partial(die_of_words, deadly=("four",)), RunSettings(3, engine="ray")
    print(json.dumps([receipt.counts for receipt in run_stage("write", work, ENGLISH, building, settings)]))
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    with ray_cluster(3) as started:
        yield started


def kill_node(cluster: Any) -> None:
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)


def replace_node(cluster: Any) -> None:
    kill_node(cluster)
    cluster.add_node(**NODE, wait=True)


def add_node(cluster: Any) -> None:
    cluster.add_node(**NODE, wait=True)


def run_driver(script: str, cluster: Any, *arguments: object, event: Callable[[Any], None] | None = None) -> Any:
    """Run a driver, with an event after its first shard, and return its JSON output."""
    driver = start_driver(script, *arguments, address=cluster.address)
    if event is not None:
        wait_for_receipts(Path(str(arguments[-1])))
        assert driver.poll() is None
        event(cluster)
    output, errors = driver.communicate(timeout=900)
    assert driver.returncode == 0, errors[-2000:]
    return json.loads(output.splitlines()[-1])


def wait_for_receipts(root: Path, count: int = 1) -> None:
    deadline = time.monotonic() + 300
    while len(find(root, "**/.receipts/*/*.json")) < count:
        assert time.monotonic() < deadline, "no shard is finished"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("system", "event"),
    [("healing", kill_worker), ("stage_a", kill_node), ("nemotron", replace_node), ("stage2", add_node)],
)
def test_a_system_has_the_same_digests_on_three_nodes(
    system: str, event: Callable[[Any], None], cluster: Any, tmp_path: Path
) -> None:
    expected = build_system(system, tmp_path / "here", RunSettings())

    assert run_driver(BUILD, cluster, system, tmp_path / "ray", event=event) == expected


@pytest.mark.parametrize("system", ["healing", "stage_a", "nemotron", "stage2"])
def test_a_run_after_a_killed_driver_has_the_same_digests(system: str, cluster: Any, tmp_path: Path) -> None:
    expected = build_system(system, tmp_path / "here", RunSettings())
    driver = start_driver(BUILD, system, tmp_path / "ray", address=cluster.address)
    wait_for_receipts(tmp_path / "ray")
    assert driver.poll() is None
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()

    assert run_driver(BUILD, cluster, system, tmp_path / "ray") == expected


def test_a_poison_row_is_rejected_on_three_nodes(cluster: Any, tmp_path: Path) -> None:
    assert run_driver(WRITE, cluster, "words", tmp_path) == [
        {"documents": 2},
        {"documents": 2, "killed_worker": 1},
        {"documents": 1},
    ]
