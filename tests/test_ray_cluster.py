"""Runs on a cluster that a user started, and nodes that they refuse."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_results import Corpusmill
from free_ports import free_port
from ray_cluster import PATH, PROJECT, ray_cluster, start_driver

from pipeline_assets.build.run import Run
from pipeline_assets.spine.errors import UsageError

pytestmark = pytest.mark.slow
WRITE = """
import logging, os, sys
from pathlib import Path
from word_artifact import ENGLISH, write_environment
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.opening import open_staging_dir
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
try:
    with open_staging_dir(Path(sys.argv[1]) / "words", {}) as building:
        for receipt in run_stage("write", write_environment, ENGLISH, building, RunSettings(2, engine="ray")):
            print(receipt.counts, receipt.notes)
except InputError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ray_cluster(1, num_cpus=2) as cluster:
        yield cluster.address


def read_output(driver: "subprocess.Popen[str]") -> list[str]:
    output, errors = driver.communicate(timeout=240)
    assert driver.returncode == 0, errors
    return output.splitlines()


def test_successive_runs_join_a_cluster_and_send_it_no_token(address: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        lines = read_output(start_driver(WRITE, tmp_path / name, address=address, HF_TOKEN="hf_secret"))

        assert f"Ray at {address}: 1 node, 2 CPUs, at most 2 workers" in lines
        receipts = [line for line in lines if line.startswith("{")]
        assert [line.partition("} ")[0] for line in receipts] == [f"{{'documents': {count}" for count in (2, 3, 1)]
        assert all("'HF_TOKEN': None" in line for line in receipts)


def test_doctor_connects_to_the_cluster(address: str, tmp_path: Path) -> None:
    program = "from pathlib import Path; from pipeline_assets.commands.doctor import PROBES, run_probe;"
    program += "print(*run_probe(PROBES['ray'], Path()))"

    assert read_output(start_driver(program, tmp_path, address=address))[-1].endswith(
        f"; connected to {address}: 1 node, 2 CPUs"
    )


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "ray://127.0.0.1:10001", "host:99999", "a b:1", ":6379"])
def test_a_malformed_address_is_refused(address: str, tmp_path: Path) -> None:
    message = f"RAY_ADDRESS={address}: must be HOST:PORT or auto; set it to HOST:PORT of a cluster's head"
    with pytest.raises(UsageError, match=re.escape(message)):
        Run.from_settings(tmp_path, {"CORPUSMILL_ENGINE": "ray", "RAY_ADDRESS": address})


@pytest.mark.parametrize("address", ["user:s3cret@host:1", "ray://user:s3cret@host:1"])
def test_a_password_in_an_address_is_not_in_the_message(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must be HOST:PORT or auto") as error:
        Run.from_settings(tmp_path, {"CORPUSMILL_ENGINE": "ray", "RAY_ADDRESS": address})

    assert "s3cret" not in str(error.value)


def test_an_unreachable_cluster_is_reported_before_the_first_artifact(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "a note"}\n')
    address = f"127.0.0.1:{free_port()}"
    args = ["stage-a", "normalize", "--input", tmp_path / "notes.jsonl", "--out-dir", tmp_path / "out"]

    result = corpusmill(*args, "--domain", "web", "--source", "notes", "--engine", "ray", env={"RAY_ADDRESS": address})

    message = (
        f"corpusmill: RAY_ADDRESS={address}: cannot connect to Ray: [Errno 111] Connection refused; set it to HOST:PORT"
    )
    assert result.returncode == 1 and message in result.stderr
    assert list((tmp_path / "out").rglob("manifest.json")) == []


def test_a_node_with_another_program_is_refused_in_one_line(address: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(PROJECT / "pipeline_assets", copy / "pipeline_assets", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "pipeline_assets/spine/visible.py").open("a").write("# changed\n")
    path = os.pathsep.join([str(copy), *PATH.split(os.pathsep)[1:]])

    lines = read_output(start_driver(WRITE, tmp_path / "data", address=address, path=path))

    assert lines[-1].startswith("RetryableError node ")
    assert lines[-1].endswith(
        " of Ray: the program differs from the one on the machine that runs the command; "
        "install the same corpusmill, Python and libraries on all nodes"
    )


def test_a_node_that_does_not_see_the_data_root_is_refused_in_one_line(address: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs "{root}" && exec "$0" "$@"']
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("a file system can't be mounted here")

    lines = read_output(start_driver(WRITE, root, address=address, prefix=mount))

    assert lines[-1].endswith(
        f" of Ray: {root}/.words.building.1 is missing or another folder; mount the data root there on all nodes"
    )
