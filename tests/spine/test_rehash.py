"""Files held against their hashes by threads: each is found right or wrong, and read once."""

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
    """Files a to e, of which b is read in four blocks."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(content(name, size))
    return folder


def content(name: str, size: int) -> bytes:
    return (name.encode() * size)[:size]


def tasks(folder: Path, names: Sequence[str] = tuple(SIZES)) -> list[HashTask]:
    expected = {name: sha256(content(name, SIZES[name])) for name in names}
    return [
        HashTask("owner", name, (folder / name,), SIZES[name], "sha256", expected[name], "sealed with")
        for name in names
    ]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(wanted: Sequence[HashTask], threads: int = 1) -> dict[str, str | None]:
    progress = Progress("verify", sum(task.bytes for task in wanted), "bytes", log_every_s=1000)
    return {task.name: complaint for task, complaint in rehash(wanted, threads, progress)}


def change_unseen(path: Path) -> None:
    """One bit, with size, time and inode as they were."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(bytes([path.read_bytes()[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_every_file_is_read_once_and_as_claimed(folder: Path, threads: int) -> None:
    assert read(tasks(folder), threads) == dict.fromkeys(SIZES)
    assert read([], threads) == {}


def test_a_file_that_changed_or_cannot_be_read_is_complained_of_and_hides_no_other(folder: Path) -> None:
    change_unseen(folder / "e")
    (folder / "a").unlink()
    (folder / "d").unlink()
    (folder / "d").mkdir()

    found = read(tasks(folder))

    actual = sha256((folder / "e").read_bytes())
    assert found == {
        "a": "cannot be read (No such file or directory)",
        "b": None,
        "c": None,
        "d": "cannot be read (Is a directory)",
        "e": f"sha256 is {actual}, sealed with {sha256(content('e', 5000))}",
    }


def test_pieces_are_held_against_the_hash_of_the_whole(folder: Path) -> None:
    paths = tuple(folder / name for name in "cab")
    whole = b"".join(path.read_bytes() for path in paths)
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(whole) + whole).hexdigest()

    found = read(
        [
            HashTask("x", "sha256", paths, len(whole), "sha256", sha256(whole), "listed as"),
            HashTask("x", "git", paths, len(whole), "git-sha1", git_sha1, "listed as"),
            HashTask("x", "wrong", paths, len(whole), "git-sha1", "0" * 40, "listed as"),
        ]
    )

    assert (found["sha256"], found["git"]) == (None, None)
    assert found["wrong"] == f"git-sha1 is {git_sha1}, listed as {'0' * 40}"


def test_calling_it_off_stops_the_threads_in_the_middle_of_a_file(folder: Path) -> None:
    progress = Progress("verify", sum(SIZES.values()), "bytes", log_every_s=1000)
    results = rehash(tasks(folder, "abd"), 1, progress)
    first = next(results)
    results.close()  # type: ignore[attr-defined]

    assert first[0].name == "b"
    assert "left" in progress.format_line()


def test_progress_counts_what_cannot_be_read_too(folder: Path) -> None:
    (folder / "d").unlink()
    total = sum(SIZES.values())
    progress = Progress("verify", total, "bytes", log_every_s=1000)

    list(rehash(tasks(folder), 2, progress))

    assert progress.format_line().startswith(f"verify: {total / 1e6:.1f} of {total / 1e6:.1f} MB, ")
    assert "left" not in progress.format_line()
