"""Files are rehashed by threads: each is read once and compared with its hash."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.rehash import HashTask, rehash

MIB = 1 << 20
SIZES = {"a": 10, "b": 3 * MIB + 7, "c": 0, "d": MIB, "e": 5000}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write files a to e; b is read in four blocks."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(build_content(name, size))
    return folder


def build_content(name: str, size: int) -> bytes:
    return (name.encode() * size)[:size]


def build_tasks(folder: Path, names: Sequence[str] = tuple(SIZES)) -> list[HashTask]:
    expected = {name: sha256(build_content(name, SIZES[name])) for name in names}
    return [
        HashTask("owner", name, (folder / name,), SIZES[name], "sha256", expected[name], "sealed with")
        for name in names
    ]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run_rehash(tasks: Sequence[HashTask], threads: int = 1) -> dict[str, str | None]:
    progress = Progress("verify", sum(task.bytes for task in tasks), "bytes", log_every_s=1000)
    return {task.name: error for task, error in rehash(tasks, threads, progress)}


def flip_bit_unnoticed(path: Path) -> None:
    """Flip one bit and keep size, time and inode."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(bytes([path.read_bytes()[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_every_file_is_read_once_and_matches_its_hash(folder: Path, threads: int) -> None:
    assert run_rehash(build_tasks(folder), threads) == dict.fromkeys(SIZES)
    assert run_rehash([], threads) == {}


def test_each_changed_or_unreadable_file_is_reported(folder: Path) -> None:
    flip_bit_unnoticed(folder / "e")
    (folder / "a").unlink()
    (folder / "d").unlink()
    (folder / "d").mkdir()

    errors = run_rehash(build_tasks(folder))

    actual = sha256((folder / "e").read_bytes())
    assert errors == {
        "a": "cannot be read (No such file or directory)",
        "b": None,
        "c": None,
        "d": "cannot be read (Is a directory)",
        "e": f"sha256 is {actual}, sealed with {sha256(build_content('e', 5000))}",
    }


def test_pieces_are_compared_with_the_hash_of_the_whole_file(folder: Path) -> None:
    paths = tuple(folder / name for name in "cab")
    whole = b"".join(path.read_bytes() for path in paths)
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(whole) + whole).hexdigest()

    errors = run_rehash(
        [
            HashTask("x", "sha256", paths, len(whole), "sha256", sha256(whole), "listed as"),
            HashTask("x", "git", paths, len(whole), "git-sha1", git_sha1, "listed as"),
            HashTask("x", "wrong", paths, len(whole), "git-sha1", "0" * 40, "listed as"),
        ]
    )

    assert (errors["sha256"], errors["git"]) == (None, None)
    assert errors["wrong"] == f"git-sha1 is {git_sha1}, listed as {'0' * 40}"


def test_closing_the_results_stops_threads_in_the_middle_of_a_file(folder: Path) -> None:
    progress = Progress("verify", sum(SIZES.values()), "bytes", log_every_s=1000)
    results = rehash(build_tasks(folder, "abd"), 1, progress)
    first = next(results)
    results.close()  # type: ignore[attr-defined]

    assert first[0].name == "b"
    assert "left" in progress.format_line()


def test_progress_includes_unreadable_files(folder: Path) -> None:
    (folder / "d").unlink()
    total = sum(SIZES.values())
    progress = Progress("verify", total, "bytes", log_every_s=1000)

    list(rehash(build_tasks(folder), 2, progress))

    assert progress.format_line().startswith(f"verify: {total / 1e6:.1f} of {total / 1e6:.1f} MB, ")
    assert "left" not in progress.format_line()
