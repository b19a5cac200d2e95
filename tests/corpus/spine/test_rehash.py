"""Files held against their hashes by threads: each found right or wrong, none twice, whatever stopped the last process.

Between two processes nothing counts but the journal, so a file that was changed behind the back of size, time and inode
shows whether it was read again.
"""

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash_points import killed_at

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.rehash import HashResult, HashTask, Journal, rehash
from pipeline_assets.corpus.spine.usage import Progress

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


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


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


def read(wanted: Sequence[HashTask], journal: Journal, threads: int = 1) -> dict[str, HashResult]:
    progress = Progress("verify", sum(task.bytes for task in wanted), "bytes", every_s=1000)
    return {result.task.name: result for result in rehash(wanted, journal, threads, progress)}


def change_unseen(path: Path) -> None:
    """One bit, with size, time and inode as they were."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(bytes([path.read_bytes()[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_every_file_is_read_once_and_as_claimed(folder: Path, threads: int) -> None:
    found = read(tasks(folder), Journal(None), threads)

    assert {name: result.bytes_read for name, result in found.items()} == SIZES
    assert all(
        result.complaint is None and result.actual == result.task.expected and result.found_at is None
        for result in found.values()
    )


def test_nothing_to_read_gives_nothing() -> None:
    assert read([], Journal(None)) == {}


def test_a_changed_bit_is_shown_with_both_hashes_and_hides_no_other(folder: Path) -> None:
    change_unseen(folder / "b")
    change_unseen(folder / "e")

    found = read(tasks(folder), Journal(None))

    actual = sha256((folder / "e").read_bytes())
    assert found["e"].complaint == f"sha256 is {actual}, sealed with {sha256(content('e', 5000))}"
    assert sorted(name for name, result in found.items() if result.complaint) == ["b", "e"]


def test_a_file_that_cannot_be_read_is_complained_of_and_hides_no_other(folder: Path) -> None:
    (folder / "a").unlink()
    (folder / "d").unlink()
    (folder / "d").mkdir()

    found = read(tasks(folder), Journal(None))

    assert found["a"].complaint == "it can't be read (No such file or directory)"
    assert (found["d"].complaint, found["d"].actual) == ("it can't be read (Is a directory)", None)
    assert found["b"].complaint is None


def test_pieces_are_held_against_the_hash_of_the_whole(folder: Path) -> None:
    paths = tuple(folder / name for name in "cab")
    whole = b"".join(path.read_bytes() for path in paths)
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(whole) + whole).hexdigest()

    found = read(
        [
            HashTask("x", "sha256", paths, len(whole), "sha256", sha256(whole), "listed as"),
            HashTask("x", "git", paths, len(whole), "git-sha1", git_sha1, "listed as"),
            HashTask("x", "wrong", paths, len(whole), "git-sha1", "0" * 40, "listed as"),
        ],
        Journal(None),
    )

    assert (found["sha256"].complaint, found["git"].complaint) == (None, None)
    assert found["wrong"].complaint == f"git-sha1 is {git_sha1}, listed as {'0' * 40}"


def test_what_a_former_process_found_right_is_not_read_again(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        read(tasks(folder, "ab"), journal)
    change_unseen(folder / "a")

    with Journal(notes) as journal:
        found = read(tasks(folder), journal)

    assert {name: result.bytes_read for name, result in found.items()} == SIZES | {"a": 0, "b": 0}
    assert [name for name, result in found.items() if result.found_at] == ["a", "b"]
    assert all(result.complaint is None for result in found.values())


def test_what_it_found_wrong_is_read_again(folder: Path, notes: Path) -> None:
    right = (folder / "e").read_bytes()
    change_unseen(folder / "e")
    with Journal(notes) as journal:
        assert read(tasks(folder), journal)["e"].complaint is not None
    (folder / "e").write_bytes(right)

    with Journal(notes) as journal:
        found = read(tasks(folder), journal)

    assert (found["e"].complaint, found["e"].bytes_read) == (None, 5000)


@pytest.mark.parametrize("change", ["time", "inode", "size"])
def test_a_file_that_was_touched_since_is_read_again(folder: Path, notes: Path, change: str) -> None:
    with Journal(notes) as journal:
        read(tasks(folder), journal)
    file = folder / "e"
    before = file.stat()
    if change == "time":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif change == "inode":
        (folder / "copy").write_bytes(file.read_bytes())
        (folder / "copy").rename(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        file.write_bytes(b"e" * 4999)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    with Journal(notes) as journal:
        found = read(tasks(folder), journal)

    assert [name for name, result in found.items() if result.bytes_read] == ["e"]


def test_a_claim_of_another_hash_is_not_settled_by_what_is_known(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        read(tasks(folder, "e"), journal)
        other = HashTask("owner", "e", (folder / "e",), 5000, "sha256", "0" * 64, "sealed with")

        assert read([other], journal)["e"].complaint is not None


def test_killed_at_any_step_the_next_process_reads_only_what_is_missing(folder: Path, notes: Path) -> None:
    # One thread reads the largest first: b, d, e, a, c.
    known = []
    at = 1

    def verify() -> None:
        with Journal(notes) as journal:
            read(tasks(folder), journal)

    while killed_at(at, verify):
        with Journal(notes) as journal:
            found = read(tasks(folder), journal)
        before = {name for name, result in found.items() if result.found_at}
        assert all(result.complaint is None for result in found.values())
        assert all(result.bytes_read == (0 if name in before else SIZES[name]) for name, result in found.items())
        known.append(before)
        notes.unlink()
        at += 1

    # The first steps make the file and its first line, the last makes the notes durable.
    assert known == [set(), set(), set(), set(), {"b"}, {"b", "d"}, {"b", "d", "e"}, {*"abde"}, {*"abcde"}]


def test_calling_it_off_stops_the_threads_in_the_middle_of_a_file(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        progress = Progress("verify", sum(SIZES.values()), "bytes", every_s=1000)
        results = rehash(tasks(folder, "abd"), journal, 1, progress)
        first = next(results)
        results.close()  # type: ignore[attr-defined]

    assert first.task.name == "b"
    with Journal(notes) as journal:
        found = read(tasks(folder, "abd"), journal)
    assert found["b"].bytes_read == 0


def test_progress_counts_what_is_read_and_what_was_known(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        read(tasks(folder, "b"), journal)
    (folder / "d").unlink()
    total = sum(SIZES.values())
    progress = Progress("verify", total, "bytes", every_s=1000)

    with Journal(notes) as journal:
        list(rehash(tasks(folder), journal, 2, progress))

    assert progress.line().startswith(f"verify: {total / 1e6:.1f} of {total / 1e6:.1f} MB, ")
    assert "left" not in progress.line()


def test_a_full_disk_under_the_notes_stops_no_reading(
    folder: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(step: durable.Step, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(notes) as journal:
        monkeypatch.setattr(durable, "failpoint", full)
        found = read(tasks(folder), journal)
        monkeypatch.undo()

    assert all(result.complaint is None for result in found.values())
    assert caplog.messages == [f"{notes}: progress is no longer kept (No space left on device)"]
