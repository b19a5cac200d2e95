"""Temporary names are unique to a process, and removed after it is dead."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_assets.spine.durable import DurableFile, write_durably
from pipeline_assets.spine.temporary_names import temporary_path

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.txt"


def test_temporary_files_of_dead_processes_are_removed_by_the_next_write(path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = temporary_path(path).name
    names = {
        "dead": own.replace(f".{os.getpid()}.", f".{dead.pid}."),
        "impossible": own.replace(f".{os.getpid()}.", f".{2**70}."),
        "alive": own.replace(f".{os.getpid()}.", f".{os.getppid()}."),
        "remote": ".other.txt.elsewhere-7.1.0.tmp",
        "remote and old": ".other.txt.elsewhere-8.1.0.tmp",
    }
    for name in names.values():
        (path.parent / name).write_text("half")
    os.utime(path.parent / names["remote and old"], (1, 1))

    write_durably(path, b"whole")

    kept = {name for name in os.listdir(path.parent) if name.endswith(".tmp")}
    assert kept == {names["alive"], names["remote"]}


# Containers on the network of their host have its name, but each numbers its processes anew.
_NEW_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
_WRITE = "import sys; from pathlib import Path; from pipeline_assets.spine.durable import write_durably; "


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*_NEW_NAMESPACE, "true"], capture_output=True).returncode != 0,
    reason="process namespaces need Linux and root",
)
def test_temporary_file_of_a_process_in_another_container_is_kept(path: Path) -> None:
    write_other = _WRITE + "write_durably(Path(sys.argv[1]), b'other')"

    with DurableFile(path) as file:
        file.write(b"own")
        other = [*_NEW_NAMESPACE, sys.executable, "-c", write_other, path.with_name("other.txt")]
        subprocess.run(other, check=True, cwd=PROJECT)

    assert sorted((entry.name, entry.read_bytes()) for entry in path.parent.iterdir()) == [
        ("other.txt", b"other"),
        ("words.txt", b"own"),
    ]


def test_temporary_file_of_an_earlier_process_with_this_id_is_not_overwritten(path: Path) -> None:
    number = int(temporary_path(path).name.split(".")[-2])
    leftover = temporary_path(path).name.replace(f".{number + 1}.tmp", f".{number + 2}.tmp")
    path.with_name(leftover).write_text("left")

    with DurableFile(path) as file:
        file.write(b"new")
        assert path.with_name(leftover).read_text() == "left"

    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127])
def test_file_may_have_a_name_of_maximum_length(tmp_path: Path, name: str) -> None:
    write_durably(tmp_path / name, b"x")

    assert os.listdir(tmp_path) == [name]
