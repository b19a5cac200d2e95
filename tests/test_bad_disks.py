"""Full, read-only and unreadable disks: one clear line, and no partial files."""

import json
import os
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_results import Corpusmill, RecipeIn, Started, only_line
from demo_variants import find_snapshot
from mounts import failing_disk, mounted

from pipeline_assets.demo.loopback_hub import LoopbackHub


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 24 MB that is almost full."""
    with mounted(tmp_path / "disk", "size=24m") as disk:
        (disk / "ballast").write_bytes(b"\0" * (23 << 20))
        yield disk


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    """Mount a read-only folder, or create one without write permission if not root."""
    if os.geteuid() == 0:
        with mounted(tmp_path / "sealed", "ro") as folder:
            yield folder
    else:
        folder = tmp_path / "sealed"
        folder.mkdir(mode=0o555)
        yield folder


def test_read_only_folder_is_one_line(
    corpusmill: Corpusmill, recipe_in: RecipeIn, demo_hub: LoopbackHub, read_only_folder: Path
) -> None:
    run, lines = ("run", recipe_in(), "--data", read_only_folder / "data"), list[str]()

    for words in (run, ("smoke", "--out-dir", read_only_folder / "out")):
        result = corpusmill(*words, env={"HF_ENDPOINT": demo_hub.endpoint})

        assert result.returncode == 1
        lines.append(only_line(result))
        assert list(read_only_folder.iterdir()) == []
    message = "the file system is read-only; mount it for writing, or choose another folder"
    if os.geteuid() != 0:
        message = "writing is not allowed; grant write permission, or choose another folder"
    assert message in lines[0] and lines[1] == f"{read_only_folder}: {message}"


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_file_size_limit_is_reported_with_the_file_and_the_data_root(
    corpusmill: Corpusmill, recipe_in: RecipeIn, demo_hub: LoopbackHub, tmp_path: Path, workers: int
) -> None:
    limit, root = (100_000, resource.RLIM_INFINITY), tmp_path / "data"

    result = corpusmill(
        *("run", recipe_in(), "--data", "data", "--workers", workers),
        env={"HF_ENDPOINT": demo_hub.endpoint},
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )

    assert result.returncode == 1
    message = r"the file reached the file size limit; raise the limit \(ulimit -f\)"
    assert re.fullmatch(f"{root}/.*{message}.*; the data root is {root}", only_line(result))


def test_full_disk_is_reported_with_the_written_file(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "size=64k") as disk:
        (disk / "ballast").write_bytes(b"\0" * (60 << 10))
        result = corpusmill("export", find_snapshot(demo_root), "--out", disk / "copy", "--to", "jsonl")
        entries = os.listdir(disk)

    assert (result.returncode, entries) == (1, ["ballast"])
    message = "no space is left on the disk; free some space, then run the same command to continue"
    assert re.fullmatch(f"{disk}/.*: {message}", only_line(result))


def test_full_disk_of_a_rebuild_is_reported_with_the_data_root_of_the_artifact(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
) -> None:
    artifact = find_snapshot(demo_root).relative_to(demo_root)
    with mounted(tmp_path / "full", "size=8m") as disk:
        shutil.copytree(demo_root / artifact, disk / artifact)
        (disk / "ballast").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
        result = corpusmill("rebuild", disk / artifact)

    assert result.returncode == 1
    expected = f"{disk}/rebuilds.*then run the same command to continue; the data root is {disk}"
    assert re.fullmatch(expected, only_line(result))


def test_concurrent_exports_into_one_folder_leave_one_copy(started: Started, demo_root: Path, tmp_path: Path) -> None:
    words = ("export", find_snapshot(demo_root), "--out", tmp_path / "copy", "--to", "jsonl")

    processes = [started(*words) for _ in range(3)]

    results = [(process.communicate()[1], process.returncode) for process in processes]
    assert sorted(status for _, status in results) == [0, 2, 2]
    assert all("folder already exists" in stderr for stderr, status in results if status)
    assert os.listdir(tmp_path) == ["copy"]


def test_unreadable_disk_is_reported_with_the_file(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path) -> None:
    """The truncated image of a mounted file system gives read errors."""
    with failing_disk(tmp_path / "disk", demo_root) as root:
        artifact = find_snapshot(root)
        verified = corpusmill("verify", artifact)
        exported = corpusmill("export", artifact, "--out", tmp_path / "copy", "--to", "jsonl")

    assert (verified.returncode, exported.returncode) == (1, 1)
    assert "cannot be read (Input/output error)" in verified.stdout
    assert re.match(f"{artifact}/shards/.*Input/output error", only_line(exported))
    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_run_continues_after_a_full_disk_was_freed(
    corpusmill: Corpusmill, recipe_in: RecipeIn, demo_hub: LoopbackHub, small_disk: Path, demo_root: Path
) -> None:
    path = recipe_in()
    env = {"HF_ENDPOINT": demo_hub.endpoint}

    full = corpusmill("run", path, "--data", small_disk, env=env)
    (small_disk / "ballast").unlink()
    again = corpusmill("run", path, "--data", small_disk, "--json", env=env)

    assert full.returncode == 1
    line = only_line(full)
    assert line.startswith(f"{small_disk}/")
    assert "no space is left on the disk; free some space, then run the same command to continue" in line
    assert line.endswith(f"; the data root is {small_disk}")
    assert again.returncode == 0, again.stderr
    undisturbed = corpusmill("run", path, "--data", demo_root, "--json")
    assert [row["digest"] for row in json.loads(again.stdout)] == [
        row["digest"] for row in json.loads(undisturbed.stdout)
    ]
